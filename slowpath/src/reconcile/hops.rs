//! Next hops of backends. Those of new backends are resolved before the backends get traffic, so
//! that the first packet to a backend finds a MAC address.

use std::collections::BTreeSet;
use std::mem;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use state::address::Endpoint;
use state::watch::TableChanges;
use tables::command::Event;

use crate::control::report::NextHopStatus;
use crate::kernel::neighbors::NextHops;
use crate::kernel::neighbors::kernel::Kernel;
use crate::plane::path_mtus::PathMtus;
use crate::plane::region::RegionPlane;

/// How long a change waits for the next hops of new backends. After that a backend is added even if
/// its next hop is not resolved: its source decides whether it is active, and the other backends of
/// the change must not wait longer.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolved next hops, and the MTUs of the paths to them.
pub(super) struct Hops {
    next_hops: NextHops,
    kernel: Box<dyn Kernel + Send>,
    path_mtus: PathMtus,
    /// Until when the present change may wait for the next hops of its new backends.
    until: Option<Instant>,
    /// Whether resolution was requested for next hops that are not in the region.
    new_hops_requested: bool,
}

impl Hops {
    /// Creates the state with the next hops that the previous slowpath left in the region.
    /// `interfaces` are names and MTUs of the kernel's interfaces, one for each arm.
    pub(super) fn new(
        interfaces: &[(String, u16)],
        kernel: Box<dyn Kernel + Send>,
        plane: &RegionPlane<'_>,
        now: Instant,
    ) -> Hops {
        let mut next_hops = NextHops::new(interfaces, now);
        for (arm, addr, mac) in plane.next_hops() {
            next_hops.remember(arm, addr, mac, now);
        }
        let path_mtus = PathMtus::find(plane.region(), now);
        Hops { next_hops, kernel, path_mtus, until: None, new_hops_requested: false }
    }

    /// Handles an event of an lcore about a next hop.
    pub(super) fn handle_event(&mut self, event: &Event, plane: &RegionPlane<'_>, now: Instant) {
        match *event {
            Event::NextHopNeeded { next_hop } => {
                if let Some((arm, addr)) = plane.next_hop(next_hop) {
                    self.next_hops.request_probe(arm, addr, now);
                }
            }
            Event::PathMtu { next_hop, mtu } => {
                let to = plane.next_hop(next_hop).map(|(_, addr)| addr.to_string());
                let to = to.unwrap_or_else(|| format!("next hop {next_hop}"));
                tracing::warn!(
                    event = "path_mtu_low",
                    destination = %to,
                    mtu,
                    "path MTU is below the interface MTU"
                );
                self.path_mtus.record(next_hop, now);
            }
            Event::Switched { .. } | Event::TraceStage { .. } => {}
        }
    }

    /// Returns true when the next hops of all new backends are resolved or [`RESOLVE_TIMEOUT`] has
    /// passed, after giving the resolutions to the plane. With `may_wait` false, it returns true
    /// immediately, with the resolutions that exist.
    pub(super) fn resolve_new(
        &mut self,
        changes: &TableChanges,
        plane: &mut RegionPlane<'_>,
        may_wait: bool,
        now: Instant,
    ) -> bool {
        let unresolved_hops = unresolved_hops(changes, plane);
        if unresolved_hops.is_empty() {
            self.until = None;
            return true;
        }
        if may_wait {
            let until = *self.until.get_or_insert(now + RESOLVE_TIMEOUT);
            let existing = plane.next_hops().map(|(arm, addr, _)| (arm, addr));
            self.new_hops_requested = true;
            self.next_hops.set_needed(existing.chain(unresolved_hops.iter().copied()), now);
            let resolved = |(arm, to): &(u8, IpAddr)| self.next_hops.resolved(*arm, *to).is_some();
            if now < until && !unresolved_hops.iter().all(resolved) {
                return false;
            }
        }
        self.until = None;
        let resolved =
            unresolved_hops.iter().filter_map(|(arm, to)| self.next_hops.resolved(*arm, *to));
        plane.cache_resolved(resolved);
        true
    }

    /// Makes the next hops in the region the ones to resolve, if they changed. A record that was
    /// freed and created again has no MAC address although its neighbor is resolved, so the next
    /// step writes the resolutions of records without a MAC again.
    pub(super) fn follow(&mut self, plane: &mut RegionPlane<'_>, now: Instant) {
        if !(plane.take_hops_changed() | mem::take(&mut self.new_hops_requested)) {
            return;
        }
        let all = plane.next_hops();
        self.next_hops.set_needed(all.map(|(arm, addr, _)| (arm, addr)), now);
        for (arm, addr, _) in plane.next_hops().filter(|(.., mac)| mac.is_none()) {
            self.next_hops.report_again(arm, addr);
        }
    }

    /// Writes newly resolved next hops to the region, and expires learned path MTUs.
    pub(super) fn step(&mut self, plane: &mut RegionPlane<'_>, now: Instant) {
        for resolved in self.next_hops.step(self.kernel.as_mut(), now) {
            plane.set_next_hop(&resolved);
        }
        self.path_mtus.expire(plane.region(), now);
    }

    /// Returns the next hops for the status.
    pub(super) fn status(&self) -> NextHopStatus {
        let (needed, known) = self.next_hops.counts();
        NextHopStatus { needed, known, error: self.next_hops.error().map(str::to_owned) }
    }
}

/// Returns arm and address of each new backend to which the region has no next hop.
fn unresolved_hops(changes: &TableChanges, plane: &RegionPlane<'_>) -> BTreeSet<(u8, IpAddr)> {
    let hops_at = |endpoint: &Endpoint| {
        let instances = changes.tables.instances_at(endpoint);
        instances.map(|instance| (instance.arm as u8, instance.endpoint.addr)).collect::<Vec<_>>()
    };
    let hops: Vec<(u8, IpAddr)> = match &changes.touched {
        Some(touched) => touched.iter().flat_map(|one| &one.endpoints).flat_map(hops_at).collect(),
        None => changes.tables.endpoints().flat_map(|(endpoint, _)| hops_at(endpoint)).collect(),
    };
    hops.into_iter().filter(|(arm, addr)| !plane.has_next_hop(*arm, *addr)).collect()
}
