//! A region in order: at each start of a fastpath, and after a change of plane.

use super::Region;
use crate::addresses::Addresses;
use crate::affinity::Affinities;
use crate::flow::{Flows, Recovery};
use crate::fragment::Fragments;
use crate::return_leg::ReturnLegs;
use crate::scope::Scopes;

impl Region {
    /// Puts in order what the lcores that were have left: see [`Flows::recover`]. The filter of
    /// flows' addresses only ever fills up, and is made anew where it is crowded.
    pub fn recover(&self) -> Recovery {
        let flows = Flows::new(self);
        let recovery = flows.recover();
        let addresses = Addresses::of_flows(self);
        if addresses.is_crowded() || flows.live() == 0 {
            let live = (0..flows.capacity()).filter_map(|path| flows.snapshot(path));
            addresses.renew(live.map(|flow| flow.front.end(flow.initiator.other()).0));
        }
        Fragments::new(self).recover();
        Affinities::new(self).recover();
        Scopes::new(self).recover();
        ReturnLegs::new(self).recover();
        recovery
    }
}
