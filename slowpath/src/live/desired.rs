//! The desired state, as last received from the sources.

use std::sync::Arc;

use state::appliance::Appliance;
use state::dump::Record;
use state::name::Precedence;
use state::object::Objects;
use state::tables::Tables;
use tables::region::Region;

use crate::plane::region::dump;

/// The desired state, as last received from the sources.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    /// The objects as received.
    pub objects: Objects,
    /// The tables derived from the objects.
    pub tables: Tables,
    /// The appliance's attributes that selection uses.
    pub appliance: Arc<Appliance>,
    /// Precedence of the sources.
    pub precedence: Precedence,
}

impl DesiredState {
    /// Returns the content of the region as records of the map model. Frontends that no packet can
    /// reach are omitted; the table of frontends lists them as `Unreachable`.
    pub fn dump(&self, region: &Region) -> Vec<Record> {
        dump::records(region, std::iter::empty(), self.appliance.external_cluster_ip)
    }
}
