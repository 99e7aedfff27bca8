//! Those who changed something and wait until all lcores serve it.

use api::{Outcome, Wait};
use state::address::Address;
use state::frontend::Progress;
use state::reflect::Verdict;

use super::Reconcile;

impl Reconcile<'_> {
    /// Answers those whose change has come as far as it gets.
    pub(super) fn answer_waits(&mut self) {
        self.waits.extend(self.shared.take_waits());
        self.waits.retain(|wait| !wait.answer.is_closed());
        for wait in std::mem::take(&mut self.waits) {
            match self.outcome(&wait) {
                // Who has gone meanwhile doesn't hear it.
                Some(outcome) => drop(wait.answer.send(outcome)),
                None => self.waits.push(wait),
            }
        }
    }

    /// None: it is on its way.
    fn outcome(&self, wait: &Wait) -> Option<Outcome> {
        let tables = self.desired.writer.tables();
        let heard = self.reconciler.seen() >= tables.revision();
        if self.desired.objects().revision() < wait.revision || !heard {
            return None;
        }
        match self.desired.verdict(&wait.key) {
            Verdict::Accepted => {}
            Verdict::Shadowed(by) => {
                let why = format!("source `{by}` is preferred and says what it is");
                return Some(Outcome::Refused(why));
            }
            Verdict::Refused(error) => return Some(Outcome::Refused(error.to_string())),
        }
        let entry = wait.service.as_ref().and_then(|service| tables.entry(service));
        let rows = entry.iter().flat_map(|entry| &entry.frontends).map(|row| row.address());
        let mut done = true;
        for address in rows.chain(&wait.addresses).collect::<Vec<&Address>>() {
            match self.reconciler.progress(address) {
                Progress::Done => {}
                Progress::Pending => done = false,
                Progress::Error(why) => {
                    return Some(Outcome::Refused(format!("{address}: {why}")));
                }
            }
        }
        done.then_some(Outcome::Done)
    }
}
