//! The region as a plane: applies frontends one by one through the region's single writer.
//!
//! ```text
//!   DesiredFrontend --> selection.rs --> apply.rs ------> region: frontend -> service -> slots
//!              keys, name,     |  ^                                     |
//!              policy, slots   |  '-- undo, frontend by frontend        v
//!                              '--> backends.rs: requirements of services -> backend -> next hop
//!   commit: remove unused services, write settings and tunnels; one store of the generation
//! ```
//! Only changes are compiled and written. A service exists while a frontend refers to it, a backend
//! while a service does. A backend that no service refers to drains: it keeps its flows, gets no
//! new ones, and is removed when its last flow ends, at the latest after 5 minutes.
//!
//! Two things are kept beside the region: what each service requires of each backend, which is read
//! from the region again after a restart; and the order of backends in the Maglev tables of large
//! services, which is recomputed if it is missing.

mod apply;
mod backends;
pub(crate) mod desired;
pub(crate) mod dump;
mod removal;
mod selection;
mod tunnels;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use foldhash::HashMap;
use packet::addr::Addr;
use smallvec::SmallVec;
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::dump::Record;
use state::plane::{DesiredFrontend, Generation, Plane, PlaneError};
use tables::maglev::{Order, Seed};
use tables::next_hop::NextHop;
use tables::region::{Region, RegionError};
use tables::writer::{TableUse, Writer};

use super::compile;
use crate::kernel::neighbors::Resolved;
use desired::{Key, Need, Requirement};
use removal::RetiredTunnels;

/// The writer of the region, and the state kept beside the tables.
pub struct RegionPlane<'r> {
    region: &'r Region,
    writer: Writer<'r>,
    config: Arc<Config>,
    appliance: Appliance,
    /// BGP neighbors of the policies.
    neighbors: Vec<IpAddr>,
    /// Frontends that no packet can reach, and which therefore are not in the region.
    unplaced: BTreeMap<Address, DesiredFrontend>,
    /// Frontends on the unspecified address, which have a copy for each address of the appliance.
    wildcards: BTreeMap<Address, DesiredFrontend>,
    /// Backends that had failed their health checks when the previous slowpath ended, by frontend.
    quarantined: Vec<(Address, Endpoint)>,
    /// Number of lcores that forward packets.
    lcores: u32,
    /// What each service requires of each backend.
    requirements: HashMap<Key, SmallVec<[(u32, Requirement); 1]>>,
    /// Sorted backends of services with many backends, by service id. They are kept from one Maglev
    /// table to the next; a backend is identified by key and protocol.
    orders: HashMap<u32, Order<(Key, u8)>>,
    /// Tunnels that backends send through, and the number of requirements that need each.
    needs: BTreeMap<Need, u32>,
    /// Whether needs or gateways changed since the tunnels were written.
    tunnels_changed: bool,
    /// Backends that are removed when their last flow ends, or at this time; `None` until the first
    /// check after the commit.
    draining: HashMap<Key, Option<Instant>>,
    /// Whether there may be next hops that no backend refers to.
    hops_idle: bool,
    /// Whether next hops were added or removed.
    hops_changed: bool,
    /// Resolutions for next hops that the next batch is about to add.
    resolved_hops: HashMap<(u8, Addr), Resolved>,
    tunnel_names: Vec<(u32, String)>,
    /// Retired tunnels, and when they are removed.
    retired_tunnels: RetiredTunnels,
    /// Ids of services that may have lost their last frontend.
    unreferenced: BTreeSet<u32>,
    /// An error that left the prepared tables inconsistent, so that the batch must not be
    /// committed.
    broken: Option<PlaneError>,
    /// Result of the last commit, until it is taken.
    outcome: Option<Result<(), PlaneError>>,
    /// Duration of the last commit, until it is taken.
    commit_took: Option<Duration>,
    /// The writer's count of changes when the batch began, and the number of changes since then
    /// that were made for rejected frontends.
    batch: (u64, u64),
    /// When the flow table was last scanned for references to what waits to be removed.
    last_scan: Option<Instant>,
}

impl<'r> RegionPlane<'r> {
    /// Returns the region.
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// Returns the duration of the last commit, once.
    pub fn take_commit_time(&mut self) -> Option<Duration> {
        self.commit_took.take()
    }

    /// Returns the occupancy of the region's tables.
    pub fn table_uses(&self) -> Vec<TableUse> {
        self.writer.table_uses().to_vec()
    }

    /// Claims the region as its writer, and reads the state that the previous writer left.
    pub fn attach(
        region: &'r Region,
        config: &Arc<Config>,
    ) -> Result<RegionPlane<'r>, RegionError> {
        let mut writer = Writer::attach(region)?;
        writer.set_seed(Seed::from_bytes(config.tables.seed));
        region.set_label(tables::region::Label::Appliance, &config.name);
        let mut plane = RegionPlane {
            region,
            writer,
            config: Arc::clone(config),
            appliance: Appliance::default(),
            neighbors: Vec::new(),
            unplaced: BTreeMap::new(),
            wildcards: BTreeMap::new(),
            quarantined: Vec::new(),
            lcores: hugepages::forwarding_lcores(config, Path::new("/")),
            requirements: HashMap::default(),
            orders: HashMap::default(),
            needs: BTreeMap::new(),
            tunnels_changed: true,
            draining: HashMap::default(),
            hops_idle: true,
            hops_changed: true,
            resolved_hops: HashMap::default(),
            tunnel_names: Vec::new(),
            retired_tunnels: RetiredTunnels::new(),
            unreferenced: BTreeSet::new(),
            broken: None,
            outcome: None,
            commit_took: None,
            batch: (0, 0),
            last_scan: None,
        };
        plane.recover();
        plane.quarantined = dump::quarantined(&plane.writer.committed());
        Ok(plane)
    }

    /// Rebuilds the state kept beside the region from the region's tables.
    fn recover(&mut self) {
        self.requirements.clear();
        self.needs.clear();
        self.tunnels_changed = true;
        self.unreferenced.clear();
        let set = self.writer.committed();
        for (id, _) in set.services() {
            let requirements = self.requirements_of(id);
            self.add_requirements(
                id,
                requirements.iter().map(|recorded| (&recorded.key, &recorded.requirement)),
            );
            if self.writer.frontends_of(id) == 0 {
                self.unreferenced.insert(id);
            }
        }
        let drained = set.backends().map(|(_, b)| Key { addr: b.addr, port: b.port });
        let drained = drained.filter(|key| !self.requirements.contains_key(key));
        let before = std::mem::take(&mut self.draining);
        self.draining = drained.map(|key| (key, before.get(&key).copied().flatten())).collect();
        self.find_retired();
    }

    /// Returns whether a batch may begin: all lcores serve the committed generation. Until then,
    /// entries of the generation before it can't be reused.
    pub fn ready(&self) -> bool {
        self.writer.acknowledged(self.region.generation())
    }

    /// Applies gateways and settings of another configuration at the next commit. Returns the
    /// former configuration, which the caller restores if that commit fails.
    pub fn configure(&mut self, config: Arc<Config>) -> Arc<Config> {
        self.tunnels_changed = true;
        std::mem::replace(&mut self.config, config)
    }

    /// Sets the BGP neighbors. From the next commit on, their packets to the kernel share the rate
    /// limit of local ports. Returns whether they changed.
    pub fn set_neighbors(&mut self, neighbors: Vec<IpAddr>) -> bool {
        let changed = self.neighbors != neighbors;
        self.neighbors = neighbors;
        changed
    }

    /// Sets the appliance's attributes, which decide at which addresses frontends are served. The
    /// caller has to apply all frontends again.
    pub fn set_appliance(&mut self, appliance: &Appliance) {
        self.appliance.clone_from(appliance);
    }

    /// Sets resolutions for next hops of backends that the next batch adds, so that the first
    /// packet to such a backend finds a MAC address.
    pub fn cache_resolved(&mut self, resolved: impl IntoIterator<Item = Resolved>) {
        let resolved_hops = resolved.into_iter().map(|one| ((one.arm, Addr::from(one.to)), one));
        self.resolved_hops = resolved_hops.collect();
    }

    /// Writes the resolution that [`RegionPlane::cache_resolved`] has for a new next hop, if any.
    fn fill_resolved_hop(&mut self, id: u32, arm: u8, addr: &Addr) {
        if let Some(resolved) = self.resolved_hops.remove(&(arm, *addr)) {
            self.write_hop(id, &resolved);
        }
    }

    /// Rolls back to the last commit.
    fn discard(&mut self) {
        if let Err(e) = self.writer.abort() {
            tracing::error!(
                event = "tables_not_rolled_back",
                error = %e,
                "tables not rolled back to the last commit"
            );
        }
        self.broken = None;
        self.hops_idle = true;
        self.recover();
    }

    /// Takes the result of the last commit; `None` if there was none since the last call.
    pub fn take_outcome(&mut self) -> Option<Result<(), PlaneError>> {
        self.outcome.take()
    }

    /// Returns whether next hops were added or removed since the last call.
    pub fn take_hops_changed(&mut self) -> bool {
        std::mem::take(&mut self.hops_changed)
    }

    /// Returns whether the region has a next hop to this address.
    pub fn has_next_hop(&self, arm: u8, addr: IpAddr) -> bool {
        self.writer.next_hop_id(&addr.into(), arm).is_some()
    }

    /// Returns the names of tunnels by id.
    pub fn tunnel_names(&self) -> Vec<(u32, String)> {
        self.tunnel_names.clone()
    }

    /// Returns all next hops: arm, address, and MAC if it is known.
    pub fn next_hops(&self) -> impl Iterator<Item = (u8, IpAddr, Option<[u8; 6]>)> + use<'r> {
        let hops = self.writer.committed().next_hops();
        hops.map(|(_, addr, h)| (h.arm, IpAddr::from(addr), h.known.then_some(h.mac)))
    }

    /// Returns arm and address of a next hop.
    pub fn next_hop(&self, id: u32) -> Option<(u8, IpAddr)> {
        let (addr, hop) = self.writer.committed().next_hop_to(id)?;
        Some((hop.arm, addr.into()))
    }

    /// Writes the resolution of a next hop. Lcores use it immediately, without a commit.
    pub fn set_next_hop(&mut self, resolved: &Resolved) {
        if let Some(id) = self.writer.next_hop_id(&Addr::from(resolved.to), resolved.arm) {
            self.write_hop(id, resolved);
        }
    }

    fn write_hop(&mut self, id: u32, resolved: &Resolved) {
        let hop = NextHop {
            mac: resolved.mac.unwrap_or_default(),
            src_mac: resolved.src_mac,
            mtu: resolved.mtu,
            arm: resolved.arm,
            known: resolved.mac.is_some(),
        };
        if let Err(error) = self.writer.set_next_hop(id, &hop) {
            tracing::warn!(
                event = "next_hop_unwritten",
                address = %resolved.to,
                %error,
                "next hop not written"
            );
        }
    }

    /// Completes the prepared tables before a commit: removes unreferenced services, and writes the
    /// settings and, if they changed, the tunnels.
    fn finish(&mut self) -> Result<(), PlaneError> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        self.remove_unreferenced_services().map_err(PlaneError::new)?;
        let flows = self.region.sizes().flows;
        let new_flow_limits = hugepages::new_flow_limits(&self.config, flows, self.lcores);
        let settings = compile::settings(&self.config, &self.neighbors, new_flow_limits);
        self.writer.put_settings(&settings).map_err(PlaneError::new)?;
        if self.tunnels_changed {
            self.put_tunnels()?;
            self.tunnels_changed = false;
        }
        Ok(())
    }
}

impl Plane for RegionPlane<'_> {
    fn begin(&mut self) -> Result<(), PlaneError> {
        if !self.ready() {
            return Err(PlaneError::new(
                "an lcore still reads the generation before the committed one; `weir status` shows \
                 which",
            ));
        }
        self.batch = (self.writer.changes(), 0);
        Ok(())
    }

    fn update(&mut self, desired: &DesiredFrontend) -> Result<(), PlaneError> {
        let before = self.writer.changes();
        let applied = self.apply(desired);
        if applied.is_err() {
            self.batch.1 += self.writer.changes() - before;
        }
        applied
    }

    fn delete(&mut self, address: &Address) -> Result<(), PlaneError> {
        self.remove(address)
    }

    fn prune(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, PlaneError> {
        self.prune_frontends(desired, at_most).map_err(PlaneError::new)
    }

    fn commit(&mut self) -> Result<Generation, PlaneError> {
        let began = Instant::now();
        let done = self.finish().and_then(|()| {
            let (first, of_rejected) = self.batch;
            // All changes were made for rejected frontends, which keep their former state, so there
            // is nothing to commit.
            if of_rejected > 0 && self.writer.changes() - first == of_rejected {
                self.discard();
                return Ok(self.region.generation());
            }
            self.writer.commit().map_err(PlaneError::new)
        });
        self.outcome = Some(done.clone().map(drop));
        self.commit_took = Some(began.elapsed());
        done.inspect_err(|_| self.discard())
    }

    fn acknowledged(&self) -> Option<Generation> {
        self.region.live_lcores().map(|(_, lcore)| lcore.acknowledged()).min()
    }

    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        self.quarantined.clone()
    }

    fn dump(&self) -> Vec<Record> {
        dump::records(self.region, self.unplaced.values(), self.appliance.external_cluster_ip)
    }
}
