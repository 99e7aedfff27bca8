//! BGP neighbors in the region's settings: their packets to the kernel share the rate limit of
//! local ports, so that a flood of other packets does not end a session.

use std::net::IpAddr;

use announce::select::preferred_policies;
use tables::record::NEIGHBORS;

use super::Reconcile;
use crate::sources::desired::precedence;

impl Reconcile<'_> {
    /// Sets the BGP neighbors of the policies that select this appliance. If they changed, requests
    /// a full pass, whose commit writes them to the region.
    pub(super) fn follow_neighbors(&mut self) {
        let objects = self.desired.objects();
        if self.neighbors_at == Some(objects.revision()) {
            return;
        }
        self.neighbors_at = Some(objects.revision());
        let labels = &self.appliance.labels;
        let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
        let policies = preferred_policies(objects, &precedence(self.intake.config()));
        let policies = policies.iter().filter(|policy| policy.spec.selects(label));
        let routers = policies.flat_map(|policy| &policy.spec.routers);
        let mut neighbors: Vec<IpAddr> =
            routers.flat_map(|router| &router.neighbors).map(|neighbor| neighbor.address).collect();
        neighbors.sort_unstable();
        neighbors.dedup();
        if neighbors.len() > NEIGHBORS {
            tracing::warn!(
                event = "bgp_neighbors_excess",
                neighbors = neighbors.len(),
                limit = NEIGHBORS,
                "too many BGP neighbors for the punt class of local ports"
            );
            neighbors.truncate(NEIGHBORS);
        }
        if self.plane.set_neighbors(neighbors) {
            self.reconciler.start_full_pass();
        }
    }
}
