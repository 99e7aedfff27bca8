//! What others are told, and how they wake the loop.

use std::sync::Arc;

use super::Reconcile;
use crate::desired::precedence;
use crate::live::{Published, Shared, Wanted};
use crate::sources::file::Wake;

/// What wakes the control loop.
pub fn wake(shared: &Arc<Shared>) -> Wake {
    let shared = Arc::clone(shared);
    Arc::new(move || shared.wake())
}

impl Reconcile<'_> {
    /// Tells those who answer questions what is asked now.
    pub(super) fn publish_wanted(&self) {
        let (objects, tables) = (self.desired.objects().clone(), self.desired.writer.tables());
        let (appliance, precedence) = (Arc::clone(&self.appliance), precedence(&self.config));
        self.shared.publish_wanted(Wanted { objects, tables, appliance, precedence });
    }

    /// The same, and that it is in the region.
    pub(super) fn publish(&self) {
        self.publish_wanted();
        let tunnels = self.plane.tunnel_names();
        self.shared.publish_tables(Published::new(self.desired.writer.tables(), tunnels));
    }
}
