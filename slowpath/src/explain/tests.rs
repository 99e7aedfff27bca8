//! What people write, and what they are told. That it is what the plane does is shown by
//! `tests/journeys/explain.rs`.

use std::sync::Arc;

use config::Config;
use state::name::Source;
use state::reconcile::{Now, Reconciler, Settings};
use tables::layout::Sizes;

use super::ask::{Asked, read};
use super::*;
use crate::desired::{Desired, appliance};
use crate::neighbours::Resolved;
use crate::targets::region::RegionPlane;
use crate::targets::region::tests::CONFIG;

const SERVICES: &str = r#"
    [[service]]
    name = "web"
    mode = "nat"
    frontends = [{address = "203.0.113.1", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}, {address = "10.0.2.12", port = 8080}]
    [[service]]
    name = "alone"
    mode = "nat"
    frontends = [{address = "203.0.113.2", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.13", port = 8080}]
    [[service]]
    name = "guarded"
    mode = "nat"
    source_ranges = ["198.51.100.0/24"]
    frontends = [{address = "203.0.113.3", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}]
    [[service]]
    name = "kept"
    mode = "nat"
    affinity_s = 60
    frontends = [{address = "203.0.113.4", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}]
    [[service]]
    name = "proxied"
    mode = "nat"
    proxy_redirect = {port = 9000}
    frontends = [{address = "203.0.113.5", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}]
    [[service]]
    name = "crossed"
    mode = "nat"
    nat_policy = "nat64"
    frontends = [{address = "2001:db8::6", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}]
"#;

/// A region with the services; of the backends' next hops only the last is not known.
fn region() -> &'static Region {
    let config: Config = config::from_toml(CONFIG).unwrap();
    let services = config::services_from_toml(SERVICES, &config).unwrap();
    let config = Arc::new(config);
    let sizes = Sizes { scopes: 32, nat_maps: 64, ..Sizes::SMALL };
    let region: &'static Region = Box::leak(Box::new(Region::anonymous(&sizes).unwrap()));
    let mut plane = RegionPlane::attach(region, &config).unwrap();
    plane.set_appliance(&appliance(&config));
    let now = Now { steady: std::time::Instant::now(), wall: std::time::UNIX_EPOCH };
    let store = Arc::new(crate::desired::open_store(None).unwrap());
    let mut desired = Desired::new(&config, store, &[], now.wall);
    let objects = state::services::objects(&services, &Source::new("file")).unwrap();
    desired.say(&objects, &[], now.wall).unwrap();
    let mut reconciler = Reconciler::new(Settings::default());
    reconciler.step(now, &desired.writer.news(0), &appliance(&config), &mut plane);
    plane.take_outcome().unwrap().unwrap();
    for (arm, to, _) in plane.next_hops() {
        let mac = (to != "10.0.2.13".parse::<std::net::IpAddr>().unwrap()).then_some([2; 6]);
        plane.set_next_hop(&Resolved { arm, to, mac, src_mac: [4; 6], mtu: 9_001 });
    }
    region
}

fn explain(text: &str, gateway: &str) -> Result<Explanation, String> {
    let names = [(0, "aws".to_owned())];
    let names: &'static [(u32, String)] = Box::leak(Box::new(names));
    let explainer = Explainer { region: region(), macs: [None; 2], tunnels: names };
    let from = Gateway { name: gateway.to_owned(), endpoint: 7 };
    match read(text)? {
        Asked::Tuple(tuple) => explainer.tuple(0, &tuple, &from),
        Asked::Frame(mut frame) => Ok(explainer.frame(0, &mut frame)),
    }
}

#[test]
fn a_new_flow_is_followed_to_its_next_hop() {
    let told = explain("tcp 192.0.2.1:1234 -> 203.0.113.1:80", "").unwrap();
    assert_eq!((told.verdict.as_str(), told.service.as_str()), ("nat", "web"));
    assert_eq!(told.frontend, "203.0.113.1:80/tcp");
    assert!(told.slot.is_some_and(|slot| slot < 251) && told.slots == 251, "{told:?}");
    let backend = told.backend.strip_suffix(":8080").unwrap();
    assert_eq!(told.rewrite, format!("10.0.2.10:(a free port) -> {}", told.backend));
    let hop = format!("{backend} (02:02:02:02:02:02, MTU 9001) by egress");
    assert_eq!((told.next_hop, told.backend_state.as_str()), (hop, "active"));
    assert_eq!((told.arrival.as_str(), told.flow), ("plain by ingress", None));
}

#[test]
fn what_stands_in_the_way_is_told_with_its_reason() {
    let told = explain("tcp 192.0.2.1:1234 -> 203.0.113.2:80", "").unwrap();
    assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "no-neighbour"));
    assert!(told.why.iter().any(|why| why.contains("10.0.2.13")), "{told:?}");
    let told = explain("udp 192.0.2.1:1234 -> 203.0.113.1:80", "").unwrap();
    assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "ignored"));
    let told = explain("udp 192.0.2.1:1234 -> 203.0.113.1:80", "aws").unwrap();
    assert_eq!(told.verdict, "return");
    assert_eq!(told.arrival, "tunnel aws by ingress, endpoint 0x7");
    let told = explain("icmp 192.0.2.1:9 -> 203.0.113.1", "").unwrap();
    assert_eq!(told.verdict, "reply");
}

#[test]
fn who_is_refused_is_told_so_and_what_is_not_followed_is_not_guessed() {
    let told = explain("tcp 192.0.2.1:1234 -> 203.0.113.3:80", "").unwrap();
    assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "source-refused"));
    let told = explain("tcp 198.51.100.1:1234 -> 203.0.113.3:80", "").unwrap();
    assert_eq!((told.verdict.as_str(), told.service.as_str()), ("nat", "guarded"));
    for (to, service, word) in [
        ("192.0.2.1:1234 -> 203.0.113.4:80", "kept", "keeps clients"),
        ("192.0.2.1:1234 -> 203.0.113.5:80", "proxied", "a proxy on this machine"),
        ("[2001:db8::1]:1234 -> [2001:db8::6]:80", "crossed", "translated"),
    ] {
        let told = explain(&format!("tcp {to}"), "").unwrap();
        assert_eq!(told.verdict, "unknown", "{told:?}");
        assert!(told.service.starts_with(service), "{told:?}");
        assert!(told.why.iter().any(|why| why.contains(word)), "{told:?}");
    }
}

#[test]
fn of_an_endpoint_that_never_sent_the_slot_is_not_known() {
    let told = explain("tcp 192.0.2.1:1234 -> 203.0.113.1:80", "aws").unwrap();
    assert_eq!((told.verdict.as_str(), told.service.as_str()), ("unknown", "web"));
    // One backend is found without a slot.
    let told = explain("tcp 192.0.2.1:1234 -> 203.0.113.2:80", "aws").unwrap();
    assert_eq!(told.reason, "no-neighbour");
    let error = explain("tcp 192.0.2.1:1234 -> 203.0.113.2:80", "azure").unwrap_err();
    assert!(error.contains("--gateway azure") && error.contains("there is aws"), "{error}");
}

#[test]
fn frames_are_read_in_digits_of_all_shapes() {
    let Asked::Tuple(tuple) = read("tcp 192.0.2.1:1234 -> 203.0.113.1:80").unwrap() else {
        panic!("it is a tuple")
    };
    let mut frame = tuple.frame();
    // As it would come: with its checksum, 0x0000 being wrong.
    let digits = |frame: &[u8]| frame.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let told = explain(&digits(&frame), "").unwrap();
    assert_eq!(told.reason, "bad-ip-checksum");
    let sum = {
        let window = packet::window::Window::new(&mut frame);
        packet::checksum::ipv4_header(&window, 14, 20).unwrap()
    };
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    let spaced: Vec<String> = frame.chunks(2).map(digits).collect();
    assert_eq!(read("tcp 192.0.2.1:1234 203.0.113.1:80"), Ok(Asked::Tuple(tuple)));
    for text in [digits(&frame), spaced.join(" "), format!("0x{}", digits(&frame))] {
        let told = explain(&text, "").unwrap();
        assert_eq!(told.packet, "tcp 192.0.2.1:1234 -> 203.0.113.1:80");
        assert_eq!(told.verdict, "nat", "{told:?}");
    }
}

#[test]
fn what_is_neither_is_refused_with_an_example() {
    for wrong in [
        "",
        "abc",
        "xyz0",
        "tcp 1 -> 2",
        "tcp 192.0.2.1 203.0.113.1 -> 2",
        "é0",
        "tcp 192.0.2.1:1 -> [2001:db8::1]:80",
        "smtp 192.0.2.1:1 -> 203.0.113.1:80",
    ] {
        let error = read(wrong).unwrap_err();
        assert!(error.contains("tcp 192.0.2.1:1234 -> 203.0.113.1:80"), "{error}");
    }
}
