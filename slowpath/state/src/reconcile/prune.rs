//! Decides when the plane is pruned, and how much of it at once.

use std::time::Instant;

use super::schedule::{Prune, delay};
use super::{Now, OpenBatch, Reconciler, Settings};
use crate::address::Address;

impl Reconciler {
    /// Makes the next step prune, provided that sources have completed their initial lists.
    pub fn prune_now(&mut self, now: Now) {
        if self.prune.due.is_some() {
            self.prune.due = Some(now.steady);
        }
    }

    /// Returns whether the plane is to be pruned: it is due, or changes were not observed, so that
    /// deleted frontends can only be found by what remains in the plane.
    pub(super) fn is_prune_due(&self, now: Instant) -> bool {
        let missed = self.gap.is_some() && self.pass.is_none() && self.prune.failures == 0;
        self.prune.due.is_some_and(|due| due <= now || missed)
    }

    /// Prunes a part if pruning is due. Returns whether pruning is complete.
    pub(super) fn prune(&mut self, batch: &mut OpenBatch<'_>) -> bool {
        let (now, tables) = (batch.now.steady, batch.tables);
        if !tables.initialized() || !self.is_prune_due(now) {
            return false;
        }
        let Settings { retry_min, retry_max, .. } = self.settings;
        let desired = |address: &Address| tables.frontend(address).is_some();
        match batch.plane.prune(&desired, self.settings.prune_at_once) {
            Ok(false) => {
                self.prune = Prune { due: Some(now), ..Prune::default() };
                false
            }
            Ok(true) => {
                self.prune = Prune { due: Some(now + self.settings.prune), ..Prune::default() };
                self.quarantined.retain(|address, _| tables.frontend(address).is_some());
                self.end_inherited_quarantine(now);
                true
            }
            Err(error) => {
                let retry_at = now + delay(retry_min, retry_max, self.prune.failures);
                let failures = self.prune.failures + 1;
                self.prune = Prune { due: Some(retry_at), failures, error: Some(error) };
                false
            }
        }
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
