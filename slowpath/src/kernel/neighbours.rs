//! Next hops from the kernel's routes and neighbors: resolves and refreshes the MAC of each
//! backend.
//!
//! The exception interfaces (one TAP per arm) carry the appliance's addresses and routes, so the
//! kernel performs ARP and neighbor discovery there, and its results are copied. The kernel
//! verifies only the neighbors that it sends to itself. Since the fastpath bypasses it, slowpath
//! makes it verify those that backends need (`NTF_USE`) before their entries expire.
//!
//! The module has no clock and no socket: time and the [`Kernel`] are arguments.

pub mod kernel;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kernel::{Kernel, Link, Neighbour, News, Route};

/// Interval of probes for a neighbor without a MAC. The kernel itself probes three times a second.
const ASK_UNKNOWN: Duration = Duration::from_secs(1);
/// Interval of probes for a stale neighbor. An entry turns stale after 15 to 45 s.
const ASK_STALE: Duration = Duration::from_secs(5);
/// How long the last MAC of a neighbor that stopped responding remains in use. While the fastpath
/// restarts, nothing responds on the TAP, and dropping the MAC would lose packets needlessly.
const HOLD: Duration = Duration::from_secs(60);
/// Interval of full reads of routes and neighbors in the absence of notifications.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Minimum interval between full reads.
const LOOK_AT_MOST: Duration = Duration::from_millis(200);

/// The resolution of a next hop, to be written into its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// Arm of the next hop: 0 ingress, 1 egress.
    pub arm: u8,
    /// Destination: the address of a backend.
    pub to: IpAddr,
    /// Destination MAC; `None` while unknown.
    pub mac: Option<[u8; 6]>,
    /// MAC of the appliance on that arm.
    pub src_mac: [u8; 6],
    /// Maximum size of an IP packet on this route in bytes.
    pub mtu: u16,
}

struct Way {
    route: Option<Route>,
    remembered: Option<([u8; 6], Instant)>,
    told: Option<Resolved>,
}

struct Router {
    mac: Option<[u8; 6]>,
    fresh: bool,
    lost: Option<Instant>,
    ask: Instant,
}

/// The exception interface of one arm.
struct Arm {
    name: String,
    mtu: u16,
    link: Option<Link>,
}

/// All next hops in use.
pub struct NextHops {
    arms: Vec<Arm>,
    ways: HashMap<(u8, IpAddr), Way>,
    routers: HashMap<(u8, IpAddr), Router>,
    look: Instant,
    looked: Option<Instant>,
    trouble: Option<String>,
}

impl NextHops {
    /// Creates the state for arms with these TAP names and port MTUs, ingress first.
    pub fn new(arms: &[(String, u16)], now: Instant) -> NextHops {
        let arm = |(name, mtu): &(String, u16)| Arm { name: name.clone(), mtu: *mtu, link: None };
        NextHops {
            arms: arms.iter().map(arm).collect(),
            ways: HashMap::new(),
            routers: HashMap::new(),
            look: now,
            looked: None,
            trouble: None,
        }
    }

    /// Replaces the set of (arm, destination) pairs in use.
    pub fn want(&mut self, wanted: impl IntoIterator<Item = (u8, IpAddr)>, now: Instant) {
        let mut before = std::mem::take(&mut self.ways);
        for key in wanted {
            let way = before.remove(&key).unwrap_or_else(|| {
                self.look = now;
                Way { route: None, remembered: None, told: None }
            });
            self.ways.insert(key, way);
        }
    }

    /// Reports the resolution of a destination again at the next step, because its record was
    /// replaced.
    pub fn tell_again(&mut self, arm: u8, to: IpAddr) {
        if let Some(way) = self.ways.get_mut(&(arm, to)) {
            way.told = None;
        }
    }

    /// Handles a packet without a MAC for its destination: probes at the next step.
    pub fn ask(&mut self, arm: u8, to: IpAddr, now: Instant) {
        match self.ways.get(&(arm, to)).map(|way| way.route) {
            Some(Some(route)) => {
                if let Some(router) = self.routers.get_mut(&(arm, route.via)) {
                    router.ask = router.ask.min(now);
                }
            }
            Some(None) => self.look = self.look.min(now),
            None => {}
        }
    }

    /// Adds a next hop resolved by an earlier slowpath. Its MAC remains in use for 60 s unless
    /// the kernel reports one.
    pub fn remember(&mut self, arm: u8, to: IpAddr, mac: Option<[u8; 6]>, now: Instant) {
        let remembered = mac.map(|mac| (mac, now + HOLD));
        self.ways.insert((arm, to), Way { route: None, remembered, told: None });
    }

    /// Returns why next hops can't be resolved at the moment, for `weir status`.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns the number of destinations in use, and the number of those with a MAC.
    pub fn known(&self) -> (usize, usize) {
        let known = |way: &&Way| way.told.is_some_and(|told| told.mac.is_some());
        (self.ways.len(), self.ways.values().filter(known).count())
    }

    /// Returns the last reported resolution of a destination if it has a MAC.
    pub fn resolved(&self, arm: u8, to: IpAddr) -> Option<Resolved> {
        let told = self.ways.get(&(arm, to)).and_then(|way| way.told);
        told.filter(|told| told.mac.is_some())
    }

    /// Processes notifications, sends the probes that are due, and returns the next hops that
    /// changed.
    pub fn step(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Vec<Resolved> {
        for news in kernel.news() {
            match news {
                News::Everything => self.look = self.look.min(now),
                News::Neighbour(neighbour) => self.heard(&neighbour, now),
            }
        }
        let rested = self.looked.is_none_or(|at| now >= at + LOOK_AT_MOST);
        if now >= self.look && rested {
            self.look = now + LOOK_AGAIN;
            self.looked = Some(now);
            self.trouble = self.look_at_everything(kernel, now).err();
        }
        self.ask_due(kernel, now);
        self.changed(now)
    }

    fn look_at_everything(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Result<(), String> {
        for number in 0..self.arms.len() {
            let name = self.arms[number].name.clone();
            let said = |what: &str, e: std::io::Error| format!("{what} of {name}: {e}");
            let link = kernel.link(&name).map_err(|e| said("link", e))?;
            self.arms[number].link = link;
            let arm = number as u8;
            for (_, way) in self.ways.iter_mut().filter(|((of, _), _)| *of == arm) {
                way.route = None;
            }
            let Some(link) = link else {
                return Err(format!("interface {name} does not exist: is the fastpath running?"));
            };
            for ((_, to), way) in self.ways.iter_mut().filter(|((of, _), _)| *of == arm) {
                way.route = kernel.route(link.index, *to).map_err(|e| said("a route", e))?;
            }
            self.keep_routers(arm, now);
            // The kernel sends no notification for an entry that it dropped: trust only listed
            // entries.
            for (_, router) in self.routers.iter_mut().filter(|((of, _), _)| *of == arm) {
                router.fresh = false;
            }
            for neighbour in kernel.neighbours(link.index).map_err(|e| said("neighbours", e))? {
                self.heard(&neighbour, now);
            }
        }
        Ok(())
    }

    /// Updates the set of routers of an arm to those that its routes use.
    fn keep_routers(&mut self, arm: u8, now: Instant) {
        let via = |((of, _), way): (&(u8, IpAddr), &Way)| (*of == arm).then_some(way.route?.via);
        let needed: Vec<IpAddr> = self.ways.iter().filter_map(via).collect();
        let mut before = std::mem::take(&mut self.routers);
        for via in needed {
            let router = before.remove(&(arm, via));
            self.routers.entry((arm, via)).or_insert_with(|| {
                router.unwrap_or(Router { mac: None, fresh: false, lost: None, ask: now })
            });
        }
        self.routers.extend(before.into_iter().filter(|((of, _), _)| *of != arm));
    }

    fn heard(&mut self, neighbour: &Neighbour, now: Instant) {
        let of = |arm: &Arm| arm.link.is_some_and(|link| link.index == neighbour.index);
        let Some(arm) = self.arms.iter().position(of) else { return };
        let Some(router) = self.routers.get_mut(&(arm as u8, neighbour.addr)) else { return };
        router.fresh = neighbour.fresh;
        match neighbour.mac {
            Some(mac) => {
                router.mac = Some(mac);
                router.lost = None;
            }
            None => router.lost = router.lost.or(Some(now)),
        }
    }

    fn ask_due(&mut self, kernel: &mut dyn Kernel, now: Instant) {
        for ((arm, via), router) in &mut self.routers {
            if router.lost.is_some_and(|at| now >= at + HOLD) {
                router.mac = None;
            }
            if router.fresh || now < router.ask {
                continue;
            }
            let unknown = router.mac.is_none() || router.lost.is_some();
            router.ask = now + if unknown { ASK_UNKNOWN } else { ASK_STALE };
            let Some(link) = self.arms.get(*arm as usize).and_then(|arm| arm.link) else {
                continue;
            };
            if let Err(e) = kernel.probe(link.index, *via) {
                let hint = crate::kernel::privileges::root_hint(&e);
                self.trouble = Some(format!("asking for the MAC of {via}: {e}{hint}"));
            }
        }
    }

    fn changed(&mut self, now: Instant) -> Vec<Resolved> {
        let mut changed = Vec::new();
        for ((number, to), way) in &mut self.ways {
            let Some(arm) = self.arms.get(*number as usize) else { continue };
            let Some(link) = arm.link else { continue };
            let router = way.route.and_then(|route| self.routers.get(&(*number, route.via)));
            let lost_route = way.route.is_none() && way.remembered.is_none();
            if let Some(mac) = way.told.and_then(|told| told.mac).filter(|_| lost_route) {
                way.remembered = Some((mac, now + HOLD));
            }
            let route_mtu = way.route.and_then(|route| route.mtu).unwrap_or(u32::MAX);
            let mtu = u16::try_from(route_mtu).unwrap_or(u16::MAX).min(arm.mtu);
            let learned = router.and_then(|router| router.mac);
            if learned.is_some() {
                way.remembered = None;
            }
            let remembered = way.remembered.filter(|(_, until)| now < *until);
            let mac = learned.or(remembered.map(|(mac, _)| mac));
            let answer = Resolved { arm: *number, to: *to, mac, src_mac: link.mac, mtu };
            if way.told != Some(answer) {
                way.told = Some(answer);
                changed.push(answer);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests;
