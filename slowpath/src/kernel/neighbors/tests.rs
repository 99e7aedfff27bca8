//! Tests of next hops over an emulated kernel.

use super::*;
use std::io;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

#[derive(Default)]
struct FakeKernel {
    /// Whether interfaces exist, except `missing`.
    has_links: bool,
    /// Name of an interface that does not exist.
    missing: &'static str,
    /// Router of all routes; `None` if destinations are on the link.
    via: Option<IpAddr>,
    no_route: bool,
    neighbors: Vec<Neighbor>,
    events: Vec<KernelEvent>,
    probed: Vec<IpAddr>,
}

impl Kernel for FakeKernel {
    fn link(&mut self, name: &str) -> io::Result<Option<Link>> {
        let exists = self.has_links && name != self.missing;
        Ok(exists.then_some(Link { index: 7, mac: OWN_MAC, mtu: 1500, up: true }))
    }
    fn route(&mut self, _: u32, to: IpAddr) -> io::Result<Option<Route>> {
        if self.no_route {
            return Ok(None);
        }
        Ok(Some(Route { via: self.via.unwrap_or(to), mtu: None }))
    }
    fn neighbors(&mut self, _: u32) -> io::Result<Vec<Neighbor>> {
        Ok(self.neighbors.clone())
    }
    fn probe(&mut self, _: u32, addr: IpAddr) -> io::Result<()> {
        self.probed.push(addr);
        Ok(())
    }
    fn poll_events(&mut self) -> Vec<KernelEvent> {
        std::mem::take(&mut self.events)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn responding(addr: &str) -> Neighbor {
    Neighbor { index: 7, addr: ip(addr), mac: Some(MAC), fresh: true }
}

fn start(kernel: &mut FakeKernel, now: Instant, to: &[&str]) -> (NextHops, Vec<Resolved>) {
    let mut hops = NextHops::new(&[("weir-in".into(), 9001)], now);
    hops.set_needed(to.iter().map(|t| (0, ip(t))), now);
    let first = hops.step(kernel, now);
    (hops, first)
}

#[test]
fn probes_an_unknown_neighbor_and_reports_its_reply() {
    let now = Instant::now();
    let mut kernel = FakeKernel { has_links: true, ..FakeKernel::default() };
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert_eq!(first[0].mac, None);
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
    kernel.events.push(KernelEvent::Neighbor(responding("10.0.0.2")));
    let second = hops.step(&mut kernel, now);
    assert_eq!((second[0].mac, second[0].src_mac, second[0].mtu), (Some(MAC), OWN_MAC, 9001));
    assert!(hops.step(&mut kernel, now).is_empty(), "reported once");
    assert_eq!(hops.counts(), (1, 1));
}

#[test]
fn backends_behind_one_router_share_its_mac_and_probes() {
    let now = Instant::now();
    let mut kernel =
        FakeKernel { has_links: true, via: Some(ip("10.0.0.1")), ..FakeKernel::default() };
    let (mut hops, _) = start(&mut kernel, now, &["192.0.2.1", "192.0.2.2"]);
    assert_eq!(kernel.probed, [ip("10.0.0.1")]);
    kernel.events.push(KernelEvent::Neighbor(responding("10.0.0.1")));
    assert_eq!(hops.step(&mut kernel, now).len(), 2);
}

#[test]
fn a_stale_neighbor_is_probed_and_keeps_its_mac_meanwhile() {
    let now = Instant::now();
    let mut kernel = FakeKernel { has_links: true, ..FakeKernel::default() };
    kernel.neighbors.push(responding("10.0.0.2"));
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert_eq!(first[0].mac, Some(MAC));
    assert!(kernel.probed.is_empty(), "a fresh entry is not probed");
    kernel.events.push(KernelEvent::Neighbor(Neighbor { fresh: false, ..responding("10.0.0.2") }));
    assert!(hops.step(&mut kernel, now).is_empty());
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
}

#[test]
fn a_silent_neighbor_keeps_its_mac_for_a_minute() {
    let now = Instant::now();
    let mut kernel = FakeKernel { has_links: true, ..FakeKernel::default() };
    kernel.neighbors.push(responding("10.0.0.2"));
    let (mut hops, _) = start(&mut kernel, now, &["10.0.0.2"]);
    let silent = Neighbor { mac: None, fresh: false, ..responding("10.0.0.2") };
    kernel.neighbors = vec![silent];
    kernel.events.push(KernelEvent::Neighbor(silent));
    assert!(hops.step(&mut kernel, now).is_empty());
    assert!(hops.step(&mut kernel, now + Duration::from_secs(59)).is_empty());
    let lost = hops.step(&mut kernel, now + Duration::from_secs(61));
    assert_eq!(lost[0].mac, None);
    assert!(kernel.probed.len() >= 3, "probed repeatedly");
}

#[test]
fn a_missing_interface_is_reported_and_found_once_it_exists() {
    let now = Instant::now();
    let mut kernel = FakeKernel::default();
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert!(first.is_empty());
    assert!(hops.error().unwrap().contains("weir-in does not exist"));
    kernel.has_links = true;
    kernel.events.push(KernelEvent::Resync);
    hops.step(&mut kernel, now + RESCAN_MIN_INTERVAL);
    assert_eq!(hops.error(), None);
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
}

#[test]
fn a_missing_interface_does_not_keep_the_other_arm_from_being_read() {
    let now = Instant::now();
    let mut kernel = FakeKernel { has_links: true, missing: "weir-in", ..FakeKernel::default() };
    kernel.neighbors.push(responding("10.0.0.2"));
    let mut hops = NextHops::new(&[("weir-in".into(), 9001), ("weir-out".into(), 9001)], now);
    hops.set_needed([(1, ip("10.0.0.2"))], now);
    let first = hops.step(&mut kernel, now);
    assert_eq!(first[0].mac, Some(MAC));
    assert!(hops.error().is_some_and(|error| error.contains("weir-in does not exist")));
}

#[test]
fn a_remembered_mac_is_used_until_the_kernel_reports_one_or_60_s_pass() {
    let now = Instant::now();
    let mut kernel = FakeKernel { has_links: true, ..FakeKernel::default() };
    let mut hops = NextHops::new(&[("weir-in".into(), 9001)], now);
    hops.remember(0, ip("10.0.0.2"), Some([9; 6]), now);
    assert_eq!(hops.step(&mut kernel, now)[0].mac, Some([9; 6]));
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
    kernel.events.push(KernelEvent::Neighbor(responding("10.0.0.2")));
    assert_eq!(hops.step(&mut kernel, now)[0].mac, Some(MAC), "the kernel's entry has precedence");

    hops.remember(0, ip("10.0.0.3"), Some([9; 6]), now);
    hops.step(&mut kernel, now + RESCAN_INTERVAL);
    assert_eq!(hops.step(&mut kernel, now + HOLD)[0].mac, None);
}

#[test]
fn a_next_hop_keeps_its_mac_for_60_s_after_its_route_is_lost() {
    let now = Instant::now();
    let mut kernel = FakeKernel { has_links: true, ..FakeKernel::default() };
    kernel.neighbors.push(responding("10.0.0.2"));
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert_eq!(first[0].mac, Some(MAC));
    let lost_at = now + RESCAN_MIN_INTERVAL;
    kernel.no_route = true;
    kernel.events.push(KernelEvent::Resync);
    assert!(hops.step(&mut kernel, lost_at).is_empty());
    assert!(hops.step(&mut kernel, lost_at + HOLD / 2).is_empty());
    assert_eq!(hops.step(&mut kernel, lost_at + HOLD)[0].mac, None);
    assert!(hops.step(&mut kernel, lost_at + HOLD * 2).is_empty());
    kernel.no_route = false;
    kernel.events.push(KernelEvent::Resync);
    assert_eq!(hops.step(&mut kernel, lost_at + HOLD * 3)[0].mac, Some(MAC));
}
