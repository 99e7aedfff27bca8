//! API requests that wait until their write is in force or rejected.

use api::{Outcome, Wait, WrittenObject};
use state::frontend::Progress;
use state::reflect::Verdict;
use state::tables::Tables;

use super::Reconcile;

/// Maximum number of objects of one request that one step checks, to bound its time: a complete
/// list may have very many.
const AT_ONCE: usize = 1024;

impl Reconcile<'_> {
    /// Answers the requests whose write is in force or rejected.
    pub(super) fn answer_waits(&mut self) {
        self.waits.extend(self.shared.take_waits());
        self.waits.retain(|wait| !wait.answer.is_closed());
        for mut wait in std::mem::take(&mut self.waits) {
            match self.outcome(&mut wait) {
                // The client may have disconnected.
                Some(outcome) => drop(wait.answer.send(outcome)),
                None => self.waits.push(wait),
            }
        }
    }

    /// Returns the outcome; `None` while the write is pending. Objects in force are removed from
    /// the request, so that they are not checked again.
    fn outcome(&self, wait: &mut Wait) -> Option<Outcome> {
        let tables = self.desired.writer.tables();
        let observed = self.reconciler.observed() >= tables.revision();
        if self.desired.objects().revision() < wait.revision || !observed {
            return None;
        }
        for _ in 0..AT_ONCE {
            let Some(object) = wait.objects.last() else { return Some(Outcome::InForce) };
            match self.in_force(object, wait.is_complete_list, &tables) {
                Ok(true) => drop(wait.objects.pop()),
                Ok(false) => return None,
                Err(reason) => {
                    return Some(Outcome::Rejected { object: object.key.clone(), reason });
                }
            }
        }
        None
    }

    /// Returns whether all lcores serve the object, or the reason if they won't.
    fn in_force(
        &self,
        object: &WrittenObject,
        is_complete_list: bool,
        tables: &Tables,
    ) -> Result<bool, String> {
        match self.desired.verdict(&object.key) {
            Verdict::Accepted => {}
            Verdict::Shadowed(_) if is_complete_list => return Ok(true),
            Verdict::Shadowed(by) => {
                return Err(format!("source `{by}` has precedence and defines this object"));
            }
            Verdict::Rejected(error) => return Err(error.to_string()),
        }
        let entry = object.service.as_ref().and_then(|service| tables.entry(service));
        let rows = entry.iter().flat_map(|entry| &entry.frontends).map(|row| row.address());
        let mut done = true;
        for address in rows.chain(&object.addresses) {
            match self.reconciler.progress(address) {
                Progress::Done => {}
                Progress::Pending => done = false,
                Progress::Error(why) => return Err(format!("{address}: {why}")),
            }
        }
        Ok(done)
    }
}
