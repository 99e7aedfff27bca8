//! Waiters for writes to be in force.

use api::{About, Outcome, Wait};
use state::frontend::Progress;
use state::reflect::Verdict;
use state::tables::Tables;

use super::Reconcile;

/// Maximum number of objects of one waiter checked in one step: a complete list may have very many.
const AT_ONCE: usize = 1024;

impl Reconcile<'_> {
    /// Completes the waiters whose write is in force or rejected.
    pub(super) fn answer_waits(&mut self) {
        self.waits.extend(self.shared.take_waits());
        self.waits.retain(|wait| !wait.answer.is_closed());
        for mut wait in std::mem::take(&mut self.waits) {
            match self.outcome(&mut wait) {
                // The receiver may be gone.
                Some(outcome) => drop(wait.answer.send(outcome)),
                None => self.waits.push(wait),
            }
        }
    }

    /// Returns the outcome; `None` while the write is pending. Objects in force are not checked
    /// again.
    fn outcome(&self, wait: &mut Wait) -> Option<Outcome> {
        let tables = self.desired.writer.tables();
        let heard = self.reconciler.seen() >= tables.revision();
        if self.desired.objects().revision() < wait.revision || !heard {
            return None;
        }
        for _ in 0..AT_ONCE {
            let Some(about) = wait.about.last() else { return Some(Outcome::Done) };
            match self.in_force(about, wait.whole, &tables) {
                Ok(true) => drop(wait.about.pop()),
                Ok(false) => return None,
                Err(why) => return Some(Outcome::Refused { object: about.key.clone(), why }),
            }
        }
        None
    }

    /// Returns whether all lcores serve the object, or why they won't.
    fn in_force(&self, about: &About, whole: bool, tables: &Tables) -> Result<bool, String> {
        match self.desired.verdict(&about.key) {
            Verdict::Accepted => {}
            Verdict::Shadowed(_) if whole => return Ok(true),
            Verdict::Shadowed(by) => {
                return Err(format!("source `{by}` is preferred and says what it is"));
            }
            Verdict::Refused(error) => return Err(error.to_string()),
        }
        let entry = about.service.as_ref().and_then(|service| tables.entry(service));
        let rows = entry.iter().flat_map(|entry| &entry.frontends).map(|row| row.address());
        let mut done = true;
        for address in rows.chain(&about.addresses) {
            match self.reconciler.progress(address) {
                Progress::Done => {}
                Progress::Pending => done = false,
                Progress::Error(why) => return Err(format!("{address}: {why}")),
            }
        }
        Ok(done)
    }
}
