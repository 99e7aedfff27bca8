//! Next hops. Those of new backends are resolved before the backends are served, so that the first
//! packet to one of them finds a MAC address.

use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use state::address::Endpoint;
use state::watch::News;
use tables::command::Event;

use crate::control::report::NextHopStatus;
use crate::kernel::neighbours::NextHops;
use crate::kernel::neighbours::kernel::Kernel;
use crate::plane::path_mtus::PathMtus;
use crate::plane::region::RegionPlane;

/// How long a change waits for the next hop of a new backend. Then the backend is served without:
/// its source declares its state, and other backends of the change must not wait for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Resolved next hops, and the MTUs of the paths to them.
pub(super) struct Hops {
    known: NextHops,
    kernel: Box<dyn Kernel + Send>,
    path_mtus: PathMtus,
    /// Until when a change may wait for the next hops of its new backends.
    until: Option<Instant>,
    /// Resolution was requested for next hops that the region may never contain.
    strangers_asked: bool,
}

impl Hops {
    /// Starts with the next hops that the last slowpath left in the region. `interfaces` are names
    /// and MTUs of the kernel's interfaces, one per arm.
    pub(super) fn new(
        interfaces: &[(String, u16)],
        kernel: Box<dyn Kernel + Send>,
        plane: &RegionPlane<'_>,
        now: Instant,
    ) -> Hops {
        let mut known = NextHops::new(interfaces, now);
        for (arm, addr, mac) in plane.next_hops() {
            known.remember(arm, addr, mac, now);
        }
        let path_mtus = PathMtus::find(plane.region(), now);
        Hops { known, kernel, path_mtus, until: None, strangers_asked: false }
    }

    /// Handles an event of an lcore about a next hop.
    pub(super) fn hear(&mut self, event: &Event, plane: &RegionPlane<'_>, now: Instant) {
        match *event {
            Event::NeighbourWanted { next_hop } => {
                if let Some((arm, addr)) = plane.next_hop(next_hop) {
                    self.known.ask(arm, addr, now);
                }
            }
            Event::PathMtu { next_hop, mtu } => {
                let to = plane.next_hop(next_hop).map(|(_, addr)| addr.to_string());
                let to = to.unwrap_or_else(|| format!("next hop {next_hop}"));
                tracing::warn!("the path to {to} carries {mtu} bytes at most");
                self.path_mtus.learned(next_hop, now);
            }
            Event::Switched { .. } | Event::TraceStage { .. } => {}
        }
    }

    /// Returns true when the next hops of all new backends are resolved, or [`PATIENCE`] is over;
    /// the region then gets them before the backends. With `may_wait` false it never waits: before
    /// the first commit the appliance takes no traffic.
    pub(super) fn met(
        &mut self,
        news: &News,
        plane: &mut RegionPlane<'_>,
        may_wait: bool,
        now: Instant,
    ) -> bool {
        let strangers = strangers(news, plane);
        if strangers.is_empty() {
            self.until = None;
            return true;
        }
        if may_wait {
            let until = *self.until.get_or_insert(now + PATIENCE);
            let known = plane.next_hops().map(|(arm, addr, _)| (arm, addr));
            self.strangers_asked = true;
            self.known.want(known.chain(strangers.iter().copied()), now);
            let resolved = |(arm, to): &(u8, IpAddr)| self.known.resolved(*arm, *to).is_some();
            if now < until && !strangers.iter().all(resolved) {
                return false;
            }
        }
        self.until = None;
        let resolved = strangers.iter().filter_map(|(arm, to)| self.known.resolved(*arm, *to));
        plane.acquaint(resolved);
        true
    }

    /// Resolves the next hops that the region has now. A record that was freed and made again lacks
    /// the MAC address of its predecessor, although the neighbor is still resolved.
    pub(super) fn follow(&mut self, plane: &mut RegionPlane<'_>, now: Instant) {
        if !(plane.take_hops_changed() | mem::take(&mut self.strangers_asked)) {
            return;
        }
        let all = plane.next_hops();
        self.known.want(all.map(|(arm, addr, _)| (arm, addr)), now);
        for (arm, addr, _) in plane.next_hops().filter(|(.., mac)| mac.is_none()) {
            self.known.tell_again(arm, addr);
        }
    }

    /// Writes newly resolved next hops to the region, and expires learned path MTUs.
    pub(super) fn step(&mut self, plane: &mut RegionPlane<'_>, now: Instant) {
        for resolved in self.known.step(self.kernel.as_mut(), now) {
            plane.set_next_hop(&resolved);
        }
        self.path_mtus.expire(plane.region(), now);
    }

    /// Returns the next hops for the status.
    pub(super) fn status(&self) -> NextHopStatus {
        let (wanted, known) = self.known.known();
        NextHopStatus { wanted, known, trouble: self.known.trouble().map(str::to_owned) }
    }
}

/// Returns arms and addresses of new backends to which the region has no next hop.
fn strangers(news: &News, plane: &RegionPlane<'_>) -> BTreeSet<(u8, IpAddr)> {
    let place = |endpoint: &Endpoint| {
        let instances = news.tables.instances_at(endpoint);
        instances.map(|instance| (instance.arm as u8, instance.endpoint.addr)).collect::<Vec<_>>()
    };
    let places: Vec<(u8, IpAddr)> = match &news.touched {
        Some(touched) => touched.iter().flat_map(|one| &one.endpoints).flat_map(place).collect(),
        None => news.tables.endpoints().flat_map(|(endpoint, _)| place(endpoint)).collect(),
    };
    places.into_iter().filter(|(arm, addr)| !plane.has_next_hop(*arm, *addr)).collect()
}
