//! What the control loop publishes for the API and the metrics.

use std::sync::Arc;

use super::Reconcile;
use crate::live::{Published, Wanted};
use crate::sources::desired::precedence;

impl Reconcile<'_> {
    /// Tells those who answer questions what is asked now.
    pub(super) fn publish_wanted(&self) {
        let (objects, tables) = (self.desired.objects().clone(), self.desired.writer.tables());
        let (appliance, precedence) =
            (Arc::clone(&self.appliance), precedence(self.intake.config()));
        self.shared.publish_wanted(Wanted { objects, tables, appliance, precedence });
    }

    /// The same, and that it is in the region.
    pub(super) fn publish(&self) {
        self.publish_wanted();
        let tunnels = self.plane.tunnel_names();
        self.shared.publish_tables(Published::new(self.desired.writer.tables(), tunnels));
    }
}
