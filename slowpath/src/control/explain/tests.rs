//! Tests of the syntax of packets to explain and of the texts of explanations.
//! `tests/scenarios/explain.rs` compares explanations with what the planes do.

use std::sync::Arc;

use config::Config;
use packet::addr::Addr;
use state::name::Source;
use state::reconcile::{Now, Reconciler, Settings};
use tables::layout::Sizes;

use explain::parse;
use tables::region::Region;

use super::*;
use crate::kernel::neighbors::Resolved;
use crate::plane::region::RegionPlane;
use crate::plane::region::tests::CONFIG;
use crate::sources::desired::{Desired, appliance};

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
    backends = [{address = "10.0.2.11", port = 8080}, {address = "10.0.2.12", port = 8080}]
    [[service]]
    name = "proxied"
    mode = "nat"
    proxy_redirect = {port = 9000, ports = [80]}
    frontends = [{address = "203.0.113.5", port = 80, protocol = "tcp"},
                 {address = "203.0.113.5", port = 81, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}]
    [[service]]
    name = "crossed"
    mode = "nat"
    nat_policy = "nat64"
    frontends = [{address = "2001:db8::6", port = 80, protocol = "tcp"}]
    backends = [{address = "10.0.2.11", port = 8080}]
"#;

/// Creates a region with the services. The next hops of all backends but 10.0.2.13 are resolved.
fn region() -> &'static Region {
    let config: Config = config::from_toml(CONFIG).unwrap();
    let services = config::services_from_toml(SERVICES, &config).unwrap();
    let config = Arc::new(config);
    let sizes = Sizes { scopes: 32, nat_maps: 64, ..Sizes::SMALL };
    let region: &'static Region = Box::leak(Box::new(Region::anonymous(&sizes).unwrap()));
    let mut plane = RegionPlane::attach(region, &config).unwrap();
    plane.set_appliance(&appliance(&config));
    let now = Now { steady: std::time::Instant::now(), wall: std::time::UNIX_EPOCH };
    let store = Arc::new(crate::sources::desired::open_store(None).unwrap());
    let mut desired = Desired::new(&config, store, &[], now.wall);
    let objects = state::services::objects(&services, &Source::new("file")).unwrap();
    desired.apply_now(&objects, &[], now.wall).unwrap();
    let mut reconciler = Reconciler::new(Settings::default());
    reconciler.step(now, &desired.writer.changes_since(0), &appliance(&config), &mut plane);
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
    let region = region();
    let explainer = Explainer { region, macs: [None; 2], now_s: region.now_s(), tunnels: names };
    let entry = EntryPoint { gateway: gateway.to_owned(), endpoint: 7, ..EntryPoint::default() };
    match parse(text)? {
        PacketSpec::Tuple(tuple) => explainer.tuple(&entry, &tuple),
        PacketSpec::Frame(mut frame) => Ok(explainer.frame(&entry, &mut frame)),
    }
}

/// Returns whether one of the reasons contains `text`.
fn has_reason(explanation: &Explanation, text: &str) -> bool {
    explanation.reasons.iter().any(|reason| reason.contains(text))
}

#[test]
fn explains_a_new_flow_up_to_its_next_hop() {
    let explanation = explain("tcp 192.0.2.1:1234 -> 203.0.113.1:80", "").unwrap();
    assert_eq!((explanation.verdict.as_str(), explanation.service.as_str()), ("nat", "web"));
    assert_eq!(explanation.frontend, "203.0.113.1:80/tcp");
    assert!(
        explanation.slot.is_some_and(|slot| slot < 251) && explanation.slots == 251,
        "{explanation:?}"
    );
    let backend = explanation.backend.strip_suffix(":8080").unwrap();
    assert_eq!(explanation.rewrite, format!("10.0.2.10:(a free port) -> {}", explanation.backend));
    let hop = format!("{backend} (02:02:02:02:02:02, MTU 9001) on egress");
    assert_eq!((explanation.next_hop, explanation.backend_state.as_str()), (hop, "active"));
    assert_eq!((explanation.arrival.as_str(), explanation.flow), ("plain on ingress", None));
}

#[test]
fn reports_drops_with_reason_and_returns_and_replies() {
    let explanation = explain("tcp 192.0.2.1:1234 -> 203.0.113.2:80", "").unwrap();
    assert_eq!(
        (explanation.verdict.as_str(), explanation.drop_reason.as_str()),
        ("drop", "no_neighbor")
    );
    assert!(has_reason(&explanation, "10.0.2.13"), "{explanation:?}");
    let explanation = explain("udp 192.0.2.1:1234 -> 203.0.113.1:80", "").unwrap();
    assert_eq!(
        (explanation.verdict.as_str(), explanation.drop_reason.as_str()),
        ("drop", "no_matching_service")
    );
    let explanation = explain("udp 192.0.2.1:1234 -> 203.0.113.1:80", "aws").unwrap();
    assert_eq!(explanation.verdict, "return");
    assert_eq!(explanation.arrival, "tunnel aws on ingress, endpoint 0x7");
    let explanation = explain("icmp 192.0.2.1:9 -> 203.0.113.1", "").unwrap();
    assert_eq!(explanation.verdict, "reply");
}

#[test]
fn reports_a_denied_source() {
    let explanation = explain("tcp 192.0.2.1:1234 -> 203.0.113.3:80", "").unwrap();
    assert_eq!(
        (explanation.verdict.as_str(), explanation.drop_reason.as_str()),
        ("drop", "source_denied")
    );
    let explanation = explain("tcp 198.51.100.1:1234 -> 203.0.113.3:80", "").unwrap();
    assert_eq!((explanation.verdict.as_str(), explanation.service.as_str()), ("nat", "guarded"));
    assert!(has_reason(&explanation, "allow the sender"), "{explanation:?}");
}

#[test]
fn affinity_is_by_client_address() {
    let explainer = Explainer { region: region(), macs: [None; 2], now_s: 1, tunnels: &[] };
    let explain_port = |port: u16| match parse(&format!("tcp 192.0.2.1:{port} -> 203.0.113.4:80")) {
        Ok(PacketSpec::Tuple(tuple)) => explainer.tuple(&EntryPoint::default(), &tuple).unwrap(),
        other => panic!("not a tuple: {other:?}"),
    };
    let (explanation, same) = (explain_port(1234), explain_port(77));
    assert_eq!((explanation.verdict.as_str(), explanation.service.as_str()), ("nat", "kept"));
    assert!(
        has_reason(&explanation, "keeps this backend for the client for 60 s"),
        "{explanation:?}"
    );
    assert!(explanation.slot.is_some() && explanation.slot == same.slot, "{explanation:?}");
    assert_eq!(explanation.backend, same.backend);
}

#[test]
fn reports_the_remaining_affinity_time() {
    use tables::affinity::{Affinities, Affinity, Client};
    let region = region();
    let set = region.tables(region.generation());
    let of = |text: &str| Addr::from(text.parse::<std::net::IpAddr>().unwrap());
    let service = set.frontend(0, &of("203.0.113.4"), 80, 6).unwrap();
    let client = Client { scope: packet::flow::SCOPE_PLAIN, service, addr: of("192.0.2.1") };
    let backend = |at: &str| {
        let found = set.backends().find(|(_, backend)| backend.addr == of(at));
        found.map(|(id, record)| Affinity { backend: id, incarnation: record.incarnation }).unwrap()
    };
    let explainer = Explainer { region, macs: [None; 2], now_s: 120, tunnels: &[] };
    let PacketSpec::Tuple(tuple) = parse("tcp 192.0.2.1:1234 -> 203.0.113.4:80").unwrap() else {
        panic!("not a tuple")
    };
    for to in ["10.0.2.11", "10.0.2.12"] {
        Affinities::new(region).put(&client, &backend(to), 100, 60).unwrap();
        let explanation = explainer.tuple(&EntryPoint::default(), &tuple).unwrap();
        assert_eq!(explanation.backend, format!("{to}:8080"));
        assert!(
            has_reason(&explanation, "keeps the client's backend for 40 s more"),
            "{explanation:?}"
        );
    }
    // An affinity to a backend of another service is ignored.
    Affinities::new(region).put(&client, &backend("10.0.2.13"), 100, 60).unwrap();
    let explanation = explainer.tuple(&EntryPoint::default(), &tuple).unwrap();
    assert!(
        has_reason(&explanation, "accepts no new flows") && explanation.slot.is_some(),
        "{explanation:?}"
    );
}

#[test]
fn reports_the_proxy_port() {
    let explanation = explain("tcp 192.0.2.1:1234 -> 203.0.113.5:80", "").unwrap();
    assert_eq!(
        (explanation.verdict.as_str(), explanation.service.as_str()),
        ("redirect", "proxied")
    );
    assert_eq!(explanation.rewrite, "192.0.2.1:1234 -> 10.0.1.10:9000");
    assert!(
        has_reason(&explanation, "redirects 203.0.113.5:80/tcp to local port 9000"),
        "{explanation:?}"
    );
    assert!(explanation.next_hop.contains("proxy 10.0.1.10:9000 on ingress"), "{explanation:?}");
    let explanation = explain("tcp 192.0.2.1:1234 -> 203.0.113.5:81", "").unwrap();
    assert_eq!(
        (explanation.verdict.as_str(), explanation.backend.as_str()),
        ("nat", "10.0.2.11:8080")
    );
    assert!(has_reason(&explanation, "other ports to the proxy on port 9000"), "{explanation:?}");
}

#[test]
fn reports_the_length_of_a_translated_packet() {
    let explanation = explain("tcp [2001:db8::1]:1234 -> [2001:db8::6]:80", "").unwrap();
    assert_eq!((explanation.verdict.as_str(), explanation.service.as_str()), ("nat", "crossed"));
    let rewrite = "10.0.2.10:(a free port) -> 10.0.2.11:8080, translated to IPv4";
    assert_eq!(explanation.rewrite, rewrite);
    assert!(
        has_reason(&explanation, "translated to IPv4, it has 40 bytes; the MTU of 9001"),
        "{explanation:?}"
    );
}

#[test]
fn packets_from_the_kernel_are_forwarded() {
    let region = region();
    let explainer = Explainer { region, macs: [None; 2], now_s: 1, tunnels: &[] };
    let entry = EntryPoint { kernel: true, ..EntryPoint::default() };
    let PacketSpec::Tuple(tuple) = parse("tcp 10.0.1.10:22 -> 203.0.113.1:80").unwrap() else {
        panic!("not a tuple")
    };
    let explanation = explainer.tuple(&entry, &tuple).unwrap();
    assert_eq!(explanation.verdict, "forward");
    assert_eq!(explanation.arrival, "from this machine's kernel on ingress");
}

#[test]
fn predicts_the_slot_of_an_endpoint_without_flows_and_rejects_an_unknown_gateway() {
    let explanation = explain("tcp 192.0.2.1:1234 -> 203.0.113.1:80", "aws").unwrap();
    assert_eq!((explanation.verdict.as_str(), explanation.service.as_str()), ("nat", "web"));
    assert!(explanation.slot.is_some(), "{explanation:?}");
    let error = explain("tcp 192.0.2.1:1234 -> 203.0.113.2:80", "azure").unwrap_err();
    assert!(
        error.contains("--gateway azure") && error.contains("configured gateways: aws"),
        "{error}"
    );
}

#[test]
fn parses_frames_as_plain_spaced_or_prefixed_hex() {
    let PacketSpec::Tuple(tuple) = parse("tcp 192.0.2.1:1234 -> 203.0.113.1:80").unwrap() else {
        panic!("not a tuple")
    };
    let mut frame = tuple.frame();
    // The frame of a tuple has the IP checksum 0, which is invalid; a valid one is set below.
    let digits = |frame: &[u8]| frame.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let explanation = explain(&digits(&frame), "").unwrap();
    assert_eq!(explanation.drop_reason, "bad_ip_checksum");
    let sum = {
        let window = packet::window::Window::new(&mut frame);
        packet::checksum::ipv4_header(&window, 14, 20).unwrap()
    };
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    let spaced: Vec<String> = frame.chunks(2).map(digits).collect();
    assert_eq!(parse("tcp 192.0.2.1:1234 203.0.113.1:80"), Ok(PacketSpec::Tuple(tuple)));
    for text in [digits(&frame), spaced.join(" "), format!("0x{}", digits(&frame))] {
        let explanation = explain(&text, "").unwrap();
        assert_eq!(explanation.packet, "tcp 192.0.2.1:1234 -> 203.0.113.1:80");
        assert_eq!(explanation.verdict, "nat", "{explanation:?}");
    }
}

#[test]
fn rejects_invalid_packets_with_an_example() {
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
        let error = parse(wrong).unwrap_err();
        assert!(error.contains("tcp 192.0.2.1:1234 -> 203.0.113.1:80"), "{error}");
    }
}
