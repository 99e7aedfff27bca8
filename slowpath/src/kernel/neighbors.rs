//! Next hops of backends, from the kernel's routes and neighbors: resolves and refreshes the MAC
//! address that packets to each backend are sent to.
//!
//! Each arm has a kernel interface (a TAP, or with XDP the NIC) with the appliance's addresses and
//! routes. The kernel performs ARP and neighbor discovery there, and slowpath copies the results.
//! The kernel verifies a neighbor only while the kernel itself sends packets to it. The data plane
//! bypasses the kernel, so slowpath requests verification of the neighbors that backends need
//! (`NTF_USE`) before their entries expire.
//!
//! The module has no clock and no socket: time and the [`Kernel`] are arguments.

pub mod kernel;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kernel::{Kernel, KernelEvent, Link, Neighbor, Route};

/// Interval of probes for a neighbor without a MAC. For each, the kernel sends up to three
/// requests, one second apart.
const PROBE_UNKNOWN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of probes for a stale neighbor. By default the kernel's entries turn stale after 15 to
/// 45 s.
const PROBE_STALE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the last MAC remains in use after its neighbor stopped responding or its route was
/// lost. While the fastpath restarts, nothing responds on the TAP, and dropping the MAC would lose
/// packets needlessly.
const HOLD: Duration = Duration::from_secs(60);
/// Interval of full reads of routes and neighbors in the absence of notifications.
const RESCAN_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum interval between full reads.
const RESCAN_MIN_INTERVAL: Duration = Duration::from_millis(200);

/// The resolution of a next hop, to be written into its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// Arm of the next hop: 0 ingress, 1 egress.
    pub arm: u8,
    /// Destination: the address of a backend.
    pub to: IpAddr,
    /// Destination MAC; `None` while unknown.
    pub mac: Option<[u8; 6]>,
    /// Source MAC: that of the appliance on that arm.
    pub src_mac: [u8; 6],
    /// Maximum size of an IP packet on this route in bytes.
    pub mtu: u16,
}

struct NextHopState {
    /// The kernel's route to the destination at the last full read.
    route: Option<Route>,
    /// A MAC used while the kernel reports none, and until when.
    remembered: Option<([u8; 6], Instant)>,
    /// The resolution that `step` returned last.
    reported: Option<Resolved>,
}

/// A neighbor that a [`Route::via`] names: a router, or a destination on the link itself.
struct Router {
    mac: Option<[u8; 6]>,
    /// Whether the kernel considers its entry valid without another probe.
    fresh: bool,
    /// Since when the kernel has reported the neighbor without a MAC.
    lost: Option<Instant>,
    /// Earliest time of the next probe.
    probe_at: Instant,
}

/// The kernel interface of one arm.
struct Arm {
    name: String,
    mtu: u16,
    link: Option<Link>,
}

/// All next hops in use.
pub struct NextHops {
    arms: Vec<Arm>,
    hops: HashMap<(u8, IpAddr), NextHopState>,
    routers: HashMap<(u8, IpAddr), Router>,
    /// When to read all routes and neighbors again.
    rescan_at: Instant,
    last_rescan: Option<Instant>,
    error: Option<String>,
}

impl NextHops {
    /// Creates the state for arms with these kernel interfaces and port MTUs, ingress first.
    pub fn new(arms: &[(String, u16)], now: Instant) -> NextHops {
        let arm = |(name, mtu): &(String, u16)| Arm { name: name.clone(), mtu: *mtu, link: None };
        NextHops {
            arms: arms.iter().map(arm).collect(),
            hops: HashMap::new(),
            routers: HashMap::new(),
            rescan_at: now,
            last_rescan: None,
            error: None,
        }
    }

    /// Replaces the set of (arm, destination) pairs to resolve. A new pair makes a full read of
    /// routes and neighbors due.
    pub fn set_needed(&mut self, needed: impl IntoIterator<Item = (u8, IpAddr)>, now: Instant) {
        let mut before = std::mem::take(&mut self.hops);
        for key in needed {
            let hop = before.remove(&key).unwrap_or_else(|| {
                self.rescan_at = now;
                NextHopState { route: None, remembered: None, reported: None }
            });
            self.hops.insert(key, hop);
        }
    }

    /// Reports the resolution of a destination again at the next step, because its record was
    /// replaced.
    pub fn report_again(&mut self, arm: u8, to: IpAddr) {
        if let Some(hop) = self.hops.get_mut(&(arm, to)) {
            hop.reported = None;
        }
    }

    /// Requests a probe of the destination's next hop at the next step, because a packet to it had
    /// no MAC.
    pub fn request_probe(&mut self, arm: u8, to: IpAddr, now: Instant) {
        match self.hops.get(&(arm, to)).map(|hop| hop.route) {
            Some(Some(route)) => {
                if let Some(router) = self.routers.get_mut(&(arm, route.via)) {
                    router.probe_at = router.probe_at.min(now);
                }
            }
            Some(None) => self.rescan_at = self.rescan_at.min(now),
            None => {}
        }
    }

    /// Adds a next hop resolved by an earlier slowpath. Its MAC remains in use until the kernel
    /// reports one, at most for [`HOLD`].
    pub fn remember(&mut self, arm: u8, to: IpAddr, mac: Option<[u8; 6]>, now: Instant) {
        let remembered = mac.map(|mac| (mac, now + HOLD));
        self.hops.insert((arm, to), NextHopState { route: None, remembered, reported: None });
    }

    /// Returns why next hops can't be resolved at the moment, for `weir status`.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns the number of destinations in use, and the number of those with a MAC.
    pub fn counts(&self) -> (usize, usize) {
        let has_mac =
            |hop: &&NextHopState| hop.reported.is_some_and(|reported| reported.mac.is_some());
        (self.hops.len(), self.hops.values().filter(has_mac).count())
    }

    /// Returns the last reported resolution of a destination if it has a MAC.
    pub fn resolved(&self, arm: u8, to: IpAddr) -> Option<Resolved> {
        let reported = self.hops.get(&(arm, to)).and_then(|hop| hop.reported);
        reported.filter(|reported| reported.mac.is_some())
    }

    /// Processes notifications, reads routes and neighbors if that is due, sends due probes, and
    /// returns the next hops whose resolution changed.
    pub fn step(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Vec<Resolved> {
        for event in kernel.poll_events() {
            match event {
                KernelEvent::Resync => self.rescan_at = self.rescan_at.min(now),
                KernelEvent::Neighbor(neighbor) => self.apply_neighbor(&neighbor, now),
            }
        }
        let may_rescan = self.last_rescan.is_none_or(|at| now >= at + RESCAN_MIN_INTERVAL);
        if now >= self.rescan_at && may_rescan {
            self.rescan_at = now + RESCAN_INTERVAL;
            self.last_rescan = Some(now);
            self.error = self.rescan(kernel, now).err();
        }
        self.probe_due(kernel, now);
        self.changed(now)
    }

    fn rescan(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Result<(), String> {
        let arms = 0..self.arms.len();
        // An arm that cannot be read does not keep the others from being read.
        arms.map(|arm| self.rescan_arm(arm, kernel, now)).fold(Ok(()), Result::and)
    }

    fn rescan_arm(
        &mut self,
        number: usize,
        kernel: &mut dyn Kernel,
        now: Instant,
    ) -> Result<(), String> {
        let name = self.arms[number].name.clone();
        let failed =
            |what: &str, e: std::io::Error| format!("cannot read the {what} of {name}: {e}");
        let link = kernel.link(&name).map_err(|e| failed("link", e))?;
        self.arms[number].link = link;
        let arm = number as u8;
        for (_, hop) in self.hops.iter_mut().filter(|((of, _), _)| *of == arm) {
            hop.route = None;
        }
        let Some(link) = link else {
            return Err(format!("interface {name} does not exist: is the fastpath running?"));
        };
        for ((_, to), hop) in self.hops.iter_mut().filter(|((of, _), _)| *of == arm) {
            hop.route = kernel.route(link.index, *to).map_err(|e| failed("routes", e))?;
        }
        self.retain_routers(arm, now);
        // The kernel sends no notification for an entry that it dropped: trust only listed
        // entries.
        for (_, router) in self.routers.iter_mut().filter(|((of, _), _)| *of == arm) {
            router.fresh = false;
        }
        for neighbor in kernel.neighbors(link.index).map_err(|e| failed("neighbors", e))? {
            self.apply_neighbor(&neighbor, now);
        }
        Ok(())
    }

    /// Updates the set of routers of an arm to those that the routes of its destinations use.
    fn retain_routers(&mut self, arm: u8, now: Instant) {
        let via =
            |((of, _), hop): (&(u8, IpAddr), &NextHopState)| (*of == arm).then_some(hop.route?.via);
        let needed: Vec<IpAddr> = self.hops.iter().filter_map(via).collect();
        let mut before = std::mem::take(&mut self.routers);
        for via in needed {
            let router = before.remove(&(arm, via));
            self.routers.entry((arm, via)).or_insert_with(|| {
                router.unwrap_or(Router { mac: None, fresh: false, lost: None, probe_at: now })
            });
        }
        self.routers.extend(before.into_iter().filter(|((of, _), _)| *of != arm));
    }

    fn apply_neighbor(&mut self, neighbor: &Neighbor, now: Instant) {
        let is_arm = |arm: &Arm| arm.link.is_some_and(|link| link.index == neighbor.index);
        let Some(arm) = self.arms.iter().position(is_arm) else { return };
        let Some(router) = self.routers.get_mut(&(arm as u8, neighbor.addr)) else { return };
        router.fresh = neighbor.fresh;
        match neighbor.mac {
            Some(mac) => {
                router.mac = Some(mac);
                router.lost = None;
            }
            None => router.lost = router.lost.or(Some(now)),
        }
    }

    /// Forgets the MACs of neighbors that have been lost for [`HOLD`], and sends the probes that
    /// are due.
    fn probe_due(&mut self, kernel: &mut dyn Kernel, now: Instant) {
        for ((arm, via), router) in &mut self.routers {
            if router.lost.is_some_and(|at| now >= at + HOLD) {
                router.mac = None;
            }
            if router.fresh || now < router.probe_at {
                continue;
            }
            let unknown = router.mac.is_none() || router.lost.is_some();
            router.probe_at =
                now + if unknown { PROBE_UNKNOWN_INTERVAL } else { PROBE_STALE_INTERVAL };
            let Some(link) = self.arms.get(*arm as usize).and_then(|arm| arm.link) else {
                continue;
            };
            if let Err(e) = kernel.probe(link.index, *via) {
                let hint = crate::kernel::privileges::root_hint(&e);
                self.error = Some(format!("cannot request the MAC address of {via}: {e}{hint}"));
            }
        }
    }

    /// Returns the resolutions that differ from those that were returned last.
    fn changed(&mut self, now: Instant) -> Vec<Resolved> {
        let mut changed = Vec::new();
        for ((number, to), hop) in &mut self.hops {
            let Some(arm) = self.arms.get(*number as usize) else { continue };
            let Some(link) = arm.link else { continue };
            let router = hop.route.and_then(|route| self.routers.get(&(*number, route.via)));
            let lost_route = hop.route.is_none() && hop.remembered.is_none();
            if let Some(mac) = hop.reported.and_then(|reported| reported.mac).filter(|_| lost_route)
            {
                hop.remembered = Some((mac, now + HOLD));
            }
            let route_mtu = hop.route.and_then(|route| route.mtu).unwrap_or(u32::MAX);
            let mtu = u16::try_from(route_mtu).unwrap_or(u16::MAX).min(arm.mtu);
            let learned = router.and_then(|router| router.mac);
            if learned.is_some() {
                hop.remembered = None;
            }
            let remembered = hop.remembered.filter(|(_, until)| now < *until);
            let mac = learned.or(remembered.map(|(mac, _)| mac));
            let resolved = Resolved { arm: *number, to: *to, mac, src_mac: link.mac, mtu };
            if hop.reported != Some(resolved) {
                hop.reported = Some(resolved);
                changed.push(resolved);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests;
