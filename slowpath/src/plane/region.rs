//! The region as a plane: frontends are told one by one to its one writer.
//!
//! ```text
//!  Wanted --> choice.rs --> say.rs -----------> region: frontend -> service -> slots
//!             places, name,   |  ^                                     |
//!             policy, slots   |  '-- undo, frontend by frontend        v
//!                             '--> backends.rs: wishes of all services -> backend -> next hop
//!  commit: services without frontends go, settings, tunnels.rs; one store of the generation
//! ```
//! Only what changed is compiled and written. A service lives while a frontend refers to it, a
//! backend while a service does; then it is drained: it keeps its flows, gets no new ones, and
//! leaves when its last flow ends. Beside the region it is remembered what several services wish of
//! one backend, which is read from it again after a restart, and in which order big services'
//! backends stand in their Maglev tables, which is computed anew where it is not known.

mod backends;
mod choice;
pub(crate) mod desired;
pub(crate) mod dump;
mod leaving;
mod say;
mod tunnels;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use config::checked::Config;
use foldhash::HashMap;
use packet::addr::Addr;
use smallvec::SmallVec;
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::dump::Record;
use state::plane::{Generation, Plane, Refusal, Wanted};
use tables::maglev::{Order, Seed};
use tables::next_hop::NextHop;
use tables::region::{Region, RegionError};
use tables::writer::Writer;

use super::compile;
use crate::kernel::neighbours::Resolved;
use desired::{Key, Need, Wish};
use leaving::Leaving;

/// The region's writer, and what has to be remembered beside the tables.
pub struct RegionPlane<'r> {
    region: &'r Region,
    writer: Writer<'r>,
    config: Arc<Config>,
    appliance: Appliance,
    /// Routers that BGP policies name.
    neighbors: Vec<IpAddr>,
    /// Frontends that were told and that no packet can meet.
    unmet: BTreeMap<Address, Wanted>,
    /// Those that were told for all addresses of ours.
    wildcards: BTreeMap<Address, Wanted>,
    /// What the last writer left as quarantined.
    quarantined: Vec<(Address, Endpoint)>,
    /// How many lcores take packets.
    lcores: u32,
    /// What each service asks of each backend.
    wishes: HashMap<Key, SmallVec<[(u32, Wish); 1]>>,
    /// The order of backends, by key and protocol, in the tables of services that have many.
    orders: HashMap<u32, Order<(Key, u8)>>,
    /// By what backends send back, and how many do.
    needs: BTreeMap<Need, u32>,
    /// Needs or gateways changed since the tunnels were put.
    tunnels_changed: bool,
    /// Backends that leave when their last flow ends, or at this time.
    draining: HashMap<Key, Option<Instant>>,
    /// There may be next hops that no backend refers to.
    hops_idle: bool,
    /// Next hops came or went.
    hops_changed: bool,
    /// What is known of next hops that are about to be taken.
    met: HashMap<(u8, Addr), Resolved>,
    tunnel_names: Vec<(u32, String)>,
    /// Tunnels that leave, and when.
    leaving: Leaving,
    /// Services that may have lost their last frontend.
    forsaken: BTreeSet<u32>,
    /// What could not be put back as it was, so that the batch must not be seen.
    broken: Option<Refusal>,
    /// What became of the last batch, until somebody asks.
    outcome: Option<Result<(), Refusal>>,
    /// Changes of the writer when the batch began, and those that only refused frontends made.
    batch: (u64, u64),
    swept: Option<Instant>,
}

impl<'r> RegionPlane<'r> {
    /// The region that it writes.
    pub fn region(&self) -> &'r Region {
        self.region
    }

    /// Becomes the region's writer; finds what the last one left.
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
            unmet: BTreeMap::new(),
            wildcards: BTreeMap::new(),
            quarantined: Vec::new(),
            lcores: hugepages::forwarding_lcores(config, Path::new("/")),
            wishes: HashMap::default(),
            orders: HashMap::default(),
            needs: BTreeMap::new(),
            tunnels_changed: true,
            draining: HashMap::default(),
            hops_idle: true,
            hops_changed: true,
            met: HashMap::default(),
            tunnel_names: Vec::new(),
            leaving: Leaving::new(),
            forsaken: BTreeSet::new(),
            broken: None,
            outcome: None,
            batch: (0, 0),
            swept: None,
        };
        plane.find();
        plane.quarantined = dump::quarantined(&plane.writer.committed());
        Ok(plane)
    }

    /// Reads from the region what has to be known of it.
    fn find(&mut self) {
        self.wishes.clear();
        self.needs.clear();
        self.tunnels_changed = true;
        self.forsaken.clear();
        let set = self.writer.committed();
        for (id, _) in set.services() {
            let wishes = self.wishes_of(id);
            self.remember_wishes(id, wishes.iter().map(|known| (&known.key, &known.wish)));
            if self.writer.frontends_of(id) == 0 {
                self.forsaken.insert(id);
            }
        }
        let drained = set.backends().map(|(_, b)| Key { addr: b.addr, port: b.port });
        let drained = drained.filter(|key| !self.wishes.contains_key(key));
        let before = std::mem::take(&mut self.draining);
        self.draining = drained.map(|key| (key, before.get(&key).copied().flatten())).collect();
        self.find_leaving();
    }

    /// Whether a batch may begin: all lcores serve the committed generation. Until then its
    /// predecessor's room can't be used again.
    pub fn ready(&self) -> bool {
        self.writer.acknowledged(self.region.generation())
    }

    /// Takes gateways and settings from another configuration, at the next commit; returns the one
    /// before, to be given back if that commit is refused.
    pub fn configure(&mut self, config: Arc<Config>) -> Arc<Config> {
        self.tunnels_changed = true;
        std::mem::replace(&mut self.config, config)
    }

    /// Routers that BGP policies name, whose packets have the punt class of local ports from the
    /// next commit on. Returns whether they are others than before.
    pub fn set_neighbors(&mut self, neighbors: Vec<IpAddr>) -> bool {
        let changed = self.neighbors != neighbors;
        self.neighbors = neighbors;
        changed
    }

    /// What the appliance is decides where node ports answer; frontends are to be told again.
    pub fn set_appliance(&mut self, appliance: &Appliance) {
        self.appliance.clone_from(appliance);
    }

    /// What is known of the next hops of backends that are about to be told, so that the first
    /// packet to one of them finds a MAC address.
    pub fn acquaint(&mut self, resolved: impl IntoIterator<Item = Resolved>) {
        let met = resolved.into_iter().map(|one| ((one.arm, Addr::from(one.to)), one));
        self.met = met.collect();
    }

    fn introduce(&mut self, id: u32, arm: u8, addr: &Addr) {
        if let Some(resolved) = self.met.remove(&(arm, *addr)) {
            self.write_hop(id, &resolved);
        }
    }

    /// Forgets what was said since the last commit.
    fn discard(&mut self) {
        if let Err(e) = self.writer.abort() {
            tracing::error!("the tables could not be put back as they were: {e}");
        }
        self.broken = None;
        self.hops_idle = true;
        self.find();
    }

    /// What became of the batch that was committed since this was last asked; none without one.
    pub fn take_outcome(&mut self) -> Option<Result<(), Refusal>> {
        self.outcome.take()
    }

    /// Whether next hops came or went since this was last asked.
    pub fn take_hops_changed(&mut self) -> bool {
        std::mem::take(&mut self.hops_changed)
    }

    /// Whether there is a next hop to this address.
    pub fn has_next_hop(&self, arm: u8, addr: IpAddr) -> bool {
        self.writer.next_hop_id(&addr.into(), arm).is_some()
    }

    /// Names of tunnels by id.
    pub fn tunnel_names(&self) -> Vec<(u32, String)> {
        self.tunnel_names.clone()
    }

    /// All next hops: arm, address, and the MAC that is known.
    pub fn next_hops(&self) -> impl Iterator<Item = (u8, IpAddr, Option<[u8; 6]>)> + use<'r> {
        let hops = self.writer.committed().next_hops();
        hops.map(|(_, addr, h)| (h.arm, IpAddr::from(addr), h.known.then_some(h.mac)))
    }

    /// Arm and address of a next hop.
    pub fn next_hop(&self, id: u32) -> Option<(u8, IpAddr)> {
        let (addr, hop) = self.writer.committed().next_hop_to(id)?;
        Some((hop.arm, addr.into()))
    }

    /// Writes what was learned of a next hop; lcores see it at once.
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
        if let Err(refusal) = self.writer.set_next_hop(id, &hop) {
            tracing::warn!("next hop {}: {refusal}", resolved.to);
        }
    }

    /// All that belongs to a commit and is no frontend.
    fn finish(&mut self) -> Result<(), Refusal> {
        if let Some(broken) = self.broken.take() {
            return Err(broken);
        }
        self.let_forsaken_go().map_err(Refusal::new)?;
        let flows = self.region.sizes().flows;
        let new_flow_limits = hugepages::new_flow_limits(&self.config, flows, self.lcores);
        let settings = compile::settings(&self.config, &self.neighbors, new_flow_limits);
        self.writer.put_settings(&settings).map_err(Refusal::new)?;
        if self.tunnels_changed {
            self.put_tunnels()?;
            self.tunnels_changed = false;
        }
        Ok(())
    }
}

impl Plane for RegionPlane<'_> {
    fn begin(&mut self) -> Result<(), Refusal> {
        if !self.ready() {
            return Err(Refusal::new(
                "a lcore still reads the generation before the committed one; `weir status` says \
                 which",
            ));
        }
        self.batch = (self.writer.changes(), 0);
        Ok(())
    }

    fn update(&mut self, wanted: &Wanted) -> Result<(), Refusal> {
        let before = self.writer.changes();
        let said = self.say(wanted);
        if said.is_err() {
            self.batch.1 += self.writer.changes() - before;
        }
        said
    }

    fn delete(&mut self, address: &Address) -> Result<(), Refusal> {
        self.unsay(address)
    }

    fn prune(
        &mut self,
        wanted: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, Refusal> {
        self.sweep(wanted, at_most).map_err(Refusal::new)
    }

    fn commit(&mut self) -> Result<Generation, Refusal> {
        let done = self.finish().and_then(|()| {
            let (first, refused) = self.batch;
            // What was refused is as it was before; writing it again would be no news.
            if refused > 0 && self.writer.changes() - first == refused {
                self.discard();
                return Ok(self.region.generation());
            }
            self.writer.commit().map_err(Refusal::new)
        });
        self.outcome = Some(done.clone().map(drop));
        done.inspect_err(|_| self.discard())
    }

    fn acknowledged(&self) -> Option<Generation> {
        self.region.live_lcores().map(|(_, lcore)| lcore.acknowledged()).min()
    }

    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        self.quarantined.clone()
    }

    fn dump(&self) -> Vec<Record> {
        dump::records(self.region, self.unmet.values(), self.appliance.external_cluster_ip)
    }
}
