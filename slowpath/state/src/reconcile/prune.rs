//! Pruning: the deletion of the plane's entries that the tables do not have. Decides when it is
//! due, and handles its result.

use std::time::Instant;

use super::schedule::{Prune, delay};
use super::{Now, OpenBatch, Reconciler, Settings};
use crate::address::Address;
use crate::plane::PlaneError;
use crate::tables::Tables;

impl Reconciler {
    /// Makes the next step prune. Has no effect until the sources have completed their initial
    /// lists: the first prune then follows immediately.
    pub fn prune_now(&mut self, now: Now) {
        if self.prune.due.is_some() {
            self.prune.due = Some(now.steady);
        }
    }

    /// Returns whether the plane has to be pruned now: a prune is due, or changes were not
    /// observed, so that only the plane's entries show which frontends were deleted.
    pub(super) fn is_prune_due(&self, now: Instant) -> bool {
        let missed = self.gap.is_some() && self.pass.is_none() && self.prune.failures == 0;
        self.prune.due.is_some_and(|due| due <= now || missed)
    }

    /// Prunes a part of the plane if pruning is due. Returns whether nothing is left to prune once
    /// the batch is committed; `None` if pruning is not due or failed.
    pub(super) fn prune(&mut self, batch: &mut OpenBatch<'_>) -> Option<bool> {
        let (now, tables) = (batch.now.steady, batch.tables);
        if !tables.initialized() || !self.is_prune_due(now) {
            return None;
        }
        let desired = |address: &Address| tables.frontend(address).is_some();
        match batch.plane.prune(&desired, self.settings.prunes_per_step) {
            Ok(complete) => Some(complete),
            Err(error) => {
                self.prune_failed(now, error);
                None
            }
        }
    }

    /// Sets when the next prune is due, after the batch of a prune was committed.
    pub(super) fn prune_committed(&mut self, now: Instant, tables: &Tables, complete: bool) {
        let due = if complete { now + self.settings.prune } else { now };
        self.prune = Prune { due: Some(due), ..Prune::default() };
        if complete {
            self.quarantined.retain(|address, _| tables.frontend(address).is_some());
            self.end_inherited_quarantine(now);
        }
    }

    /// Records that pruning failed, to be retried after a delay that doubles with each failure.
    pub(super) fn prune_failed(&mut self, now: Instant, error: PlaneError) {
        let Settings { retry_min, retry_max, .. } = self.settings;
        let retry_at = now + delay(retry_min, retry_max, self.prune.failures);
        let failures = self.prune.failures + 1;
        self.prune = Prune { due: Some(retry_at), failures, error: Some(error) };
    }

    /// Ends the quarantine inherited from an earlier process once [`Settings::prune`] has passed
    /// since the first step. Without a health check, nothing else would end it.
    fn end_inherited_quarantine(&mut self, now: Instant) {
        if self.started.is_some_and(|started| now >= started + self.settings.prune)
            && !self.quarantined.is_empty()
        {
            self.quarantined.clear();
            self.start_full_pass();
        }
    }
}
