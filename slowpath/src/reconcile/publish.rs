//! Publishes the control loop's state for the API and the metrics.

use std::sync::Arc;

use super::Reconcile;
use crate::live::{DesiredState, PublishedTables};
use crate::sources::desired::precedence;

impl Reconcile<'_> {
    /// Publishes the desired state.
    pub(super) fn publish_desired(&self) {
        let (objects, tables) = (self.desired.objects().clone(), self.desired.writer.tables());
        let (appliance, precedence) =
            (Arc::clone(&self.appliance), precedence(self.intake.config()));
        self.shared.publish_desired(DesiredState { objects, tables, appliance, precedence });
    }

    /// Publishes the desired state, and the state of the region after a commit.
    pub(super) fn publish(&self) {
        self.publish_desired();
        let tunnels = self.plane.tunnel_names();
        self.shared.publish_tables(PublishedTables::new(self.desired.writer.tables(), tunnels));
    }
}
