//! Next hops over an emulated kernel.

use super::*;
use std::io;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];

#[derive(Default)]
struct Fake {
    link: bool,
    via: Option<IpAddr>,
    no_route: bool,
    neighbours: Vec<Neighbour>,
    news: Vec<News>,
    probed: Vec<IpAddr>,
}

impl Kernel for Fake {
    fn link(&mut self, _: &str) -> io::Result<Option<Link>> {
        Ok(self.link.then_some(Link { index: 7, mac: OURS, mtu: 1500, up: true }))
    }
    fn route(&mut self, _: u32, to: IpAddr) -> io::Result<Option<Route>> {
        if self.no_route {
            return Ok(None);
        }
        Ok(Some(Route { via: self.via.unwrap_or(to), mtu: None }))
    }
    fn neighbours(&mut self, _: u32) -> io::Result<Vec<Neighbour>> {
        Ok(self.neighbours.clone())
    }
    fn probe(&mut self, _: u32, addr: IpAddr) -> io::Result<()> {
        self.probed.push(addr);
        Ok(())
    }
    fn news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn answers(addr: &str) -> Neighbour {
    Neighbour { index: 7, addr: ip(addr), mac: Some(MAC), fresh: true }
}

fn start(kernel: &mut Fake, now: Instant, to: &[&str]) -> (NextHops, Vec<Resolved>) {
    let mut hops = NextHops::new(&[("weir-in".into(), 9001)], now);
    hops.want(to.iter().map(|t| (0, ip(t))), now);
    let first = hops.step(kernel, now);
    (hops, first)
}

#[test]
fn an_unknown_neighbour_is_asked_for_and_written_once_it_answers() {
    let now = Instant::now();
    let mut kernel = Fake { link: true, ..Fake::default() };
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert_eq!(first[0].mac, None);
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
    kernel.news.push(News::Neighbour(answers("10.0.0.2")));
    let second = hops.step(&mut kernel, now);
    assert_eq!((second[0].mac, second[0].src_mac, second[0].mtu), (Some(MAC), OURS, 9001));
    assert!(hops.step(&mut kernel, now).is_empty(), "told once");
    assert_eq!(hops.known(), (1, 1));
}

#[test]
fn backends_behind_one_router_share_its_mac_and_its_questions() {
    let now = Instant::now();
    let mut kernel = Fake { link: true, via: Some(ip("10.0.0.1")), ..Fake::default() };
    let (mut hops, _) = start(&mut kernel, now, &["192.0.2.1", "192.0.2.2"]);
    assert_eq!(kernel.probed, [ip("10.0.0.1")]);
    kernel.news.push(News::Neighbour(answers("10.0.0.1")));
    assert_eq!(hops.step(&mut kernel, now).len(), 2);
}

#[test]
fn a_stale_neighbour_is_verified_and_keeps_its_mac_meanwhile() {
    let now = Instant::now();
    let mut kernel = Fake { link: true, ..Fake::default() };
    kernel.neighbours.push(answers("10.0.0.2"));
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert_eq!(first[0].mac, Some(MAC));
    assert!(kernel.probed.is_empty(), "the kernel trusts it");
    kernel.news.push(News::Neighbour(Neighbour { fresh: false, ..answers("10.0.0.2") }));
    assert!(hops.step(&mut kernel, now).is_empty());
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
}

#[test]
fn a_silent_neighbour_is_held_for_a_minute_and_then_unknown() {
    let now = Instant::now();
    let mut kernel = Fake { link: true, ..Fake::default() };
    kernel.neighbours.push(answers("10.0.0.2"));
    let (mut hops, _) = start(&mut kernel, now, &["10.0.0.2"]);
    let silent = Neighbour { mac: None, fresh: false, ..answers("10.0.0.2") };
    kernel.neighbours = vec![silent];
    kernel.news.push(News::Neighbour(silent));
    assert!(hops.step(&mut kernel, now).is_empty());
    assert!(hops.step(&mut kernel, now + Duration::from_secs(59)).is_empty());
    let gone = hops.step(&mut kernel, now + Duration::from_secs(61));
    assert_eq!(gone[0].mac, None);
    assert!(kernel.probed.len() >= 3, "asked for all the while");
}

#[test]
fn a_missing_interface_is_told_and_found_when_it_comes() {
    let now = Instant::now();
    let mut kernel = Fake::default();
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert!(first.is_empty());
    assert!(hops.trouble().unwrap().contains("weir-in does not exist"));
    kernel.link = true;
    kernel.news.push(News::Everything);
    hops.step(&mut kernel, now + LOOK_AT_MOST);
    assert_eq!(hops.trouble(), None);
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
}

#[test]
fn a_mac_of_the_slowpath_before_is_kept_until_the_kernel_had_time_to_answer() {
    let now = Instant::now();
    let mut kernel = Fake { link: true, ..Fake::default() };
    let mut hops = NextHops::new(&[("weir-in".into(), 9001)], now);
    hops.remember(0, ip("10.0.0.2"), Some([9; 6]), now);
    assert_eq!(hops.step(&mut kernel, now)[0].mac, Some([9; 6]));
    assert_eq!(kernel.probed, [ip("10.0.0.2")]);
    kernel.news.push(News::Neighbour(answers("10.0.0.2")));
    assert_eq!(hops.step(&mut kernel, now)[0].mac, Some(MAC), "the kernel knows better");

    hops.remember(0, ip("10.0.0.3"), Some([9; 6]), now);
    hops.step(&mut kernel, now + LOOK_AGAIN);
    assert_eq!(hops.step(&mut kernel, now + HOLD)[0].mac, None);
}

#[test]
fn a_route_that_is_gone_for_a_moment_loses_no_next_hop_and_one_that_stays_away_does() {
    let now = Instant::now();
    let mut kernel = Fake { link: true, ..Fake::default() };
    kernel.neighbours.push(answers("10.0.0.2"));
    let (mut hops, first) = start(&mut kernel, now, &["10.0.0.2"]);
    assert_eq!(first[0].mac, Some(MAC));
    let gone = now + LOOK_AT_MOST;
    kernel.no_route = true;
    kernel.news.push(News::Everything);
    assert!(hops.step(&mut kernel, gone).is_empty());
    assert!(hops.step(&mut kernel, gone + HOLD / 2).is_empty());
    assert_eq!(hops.step(&mut kernel, gone + HOLD)[0].mac, None);
    assert!(hops.step(&mut kernel, gone + HOLD * 2).is_empty());
    kernel.no_route = false;
    kernel.news.push(News::Everything);
    assert_eq!(hops.step(&mut kernel, gone + HOLD * 3)[0].mac, Some(MAC));
}
