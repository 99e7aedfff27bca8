//! Recovery of a region, at each start of fastpath and after a change of data plane.

use super::Region;
use crate::address_filter::AddressFilter;
use crate::affinity::Affinities;
use crate::flow::{Flows, Recovery};
use crate::fragment::Fragments;
use crate::return_leg::ReturnLegs;
use crate::scope::Scopes;

impl Region {
    /// Recovers all tables of the data plane that previous lcores left, and returns the result for
    /// flows ([`Flows::recover`]). Running lcores only set bits in the address filter of flows; it
    /// is rebuilt here if it is crowded or no flow is live.
    pub fn recover(&self) -> Recovery {
        let flows = Flows::new(self);
        let recovery = flows.recover();
        let addresses = AddressFilter::of_flows(self);
        if addresses.needs_rebuild() || flows.live() == 0 {
            let live = (0..flows.capacity()).filter_map(|path| flows.snapshot(path));
            addresses.rebuild(live.map(|flow| flow.front.end(flow.initiator.other()).0));
        }
        Fragments::new(self).recover();
        Affinities::new(self).recover();
        Scopes::new(self).recover();
        ReturnLegs::new(self).recover();
        recovery
    }
}
