//! What there shall be, as the sources said last.

use std::sync::Arc;

use state::appliance::Appliance;
use state::dump::Record;
use state::name::Precedence;
use state::object::Objects;
use state::tables::Tables;
use tables::region::Region;

use crate::plane::region::dump;

/// What there shall be, as the sources said last.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What was given to us.
    pub objects: Objects,
    /// The tables that are made of it.
    pub tables: Tables,
    /// The appliance as selection sees it.
    pub appliance: Arc<Appliance>,
    /// Which source's word counts.
    pub precedence: Precedence,
}

impl Wanted {
    /// What the region holds, in the words of the map model. Frontends that no packet can reach
    /// are not in it; the table of frontends has them, as `Unreachable`.
    pub fn dump(&self, region: &Region) -> Vec<Record> {
        dump::records(region, std::iter::empty(), self.appliance.external_cluster_ip)
    }
}
