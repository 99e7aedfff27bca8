//! The desired state, as the control loop publishes it.

use std::sync::Arc;

use state::appliance::Appliance;
use state::dump::Record;
use state::name::Precedence;
use state::object::Objects;
use state::tables::Tables;
use tables::region::Region;

use crate::plane::region::dump;

/// The desired state, as the control loop last published it.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    /// The stored objects from which `tables` were derived.
    pub objects: Objects,
    /// The tables derived from the objects.
    pub tables: Tables,
    /// The appliance's attributes that selection uses.
    pub appliance: Arc<Appliance>,
    /// Precedence of the sources, for objects of the same name.
    pub precedence: Precedence,
}

impl DesiredState {
    /// Returns the content of the region as dump records. Frontends that no packet can reach are
    /// not in the region; the table of frontends lists them as `Unreachable`.
    pub fn dump(&self, region: &Region) -> Vec<Record> {
        dump::records(region, std::iter::empty(), self.appliance.external_cluster_ip)
    }
}
