//! Tests of the text format of records, and of the flags of frontends.

use crate::service::Service;
use std::sync::Arc;

use super::*;
use crate::frontend::Kind;
use crate::name::{Name, Source};
use crate::object::{FrontendSpec, ProxyRedirect, SourceRanges};
use config::services::{NatPolicy, RangesPolicy, TrafficPolicy};

fn web() -> Address {
    Address::new("203.0.113.10".parse().unwrap(), 80, 6)
}

fn endpoint(last: u8) -> Endpoint {
    Endpoint { addr: IpAddr::from([10, 0, 0, last]), port: 80, protocol: 6 }
}

fn service() -> Service {
    Service::new(Name::new("web").unwrap(), Source::new("test"))
}

fn records() -> Vec<Record> {
    let spread = Spread::Backends { algorithm: Algorithm::Maglev, affinity_s: 30 };
    let spec = FrontendSpec::new(web(), Kind::LoadBalancer);
    let prefix = Prefix { addr: "192.0.2.0".parse().unwrap(), len: 24 };
    let ranges = SourceRanges { policy: RangesPolicy::Deny, prefixes: vec![prefix] };
    let service = service()
        .with(|spec| {
            spec.affinity_s = 30;
            spec.source_ranges = Some(Arc::new(ranges));
        })
        .unwrap();
    let flags = Flags::of(&spec, &service.spec, false);
    vec![
        Record::Service { id: 7, address: web(), spread, count: 1, rest: 1, flags },
        Record::Slot { address: web(), slot: 1, backend: 2, quarantined: false },
        Record::Slot { address: web(), slot: 2, backend: 1, quarantined: true },
        Record::Backend { id: 1, endpoint: endpoint(1), state: State::Active },
        Record::Backend { id: 2, endpoint: endpoint(2), state: State::Active },
        Record::Backend { id: 3, endpoint: endpoint(3), state: State::Terminating },
        Record::Reverse { id: 7, address: web() },
        Record::AffinityMatch { id: 7, backend: 2 },
        Record::SourceRange { id: 7, prefix },
        Record::Maglev { id: 7, inner: vec![(1, 100), (2, 151)] },
    ]
}

#[test]
fn text_has_one_sorted_line_per_entry() {
    let flags = "FLAGS=LoadBalancer+sessionAffinity+check-source-range";
    let svc = "SVC: ID=7 ADDR=203.0.113.10:80/TCP";
    let expected = [
        "AFF: ID=7 BEID=2".to_owned(),
        "BE: ID=1 ADDR=10.0.0.1:80/TCP STATE=active".to_owned(),
        "BE: ID=2 ADDR=10.0.0.2:80/TCP STATE=active".to_owned(),
        "BE: ID=3 ADDR=10.0.0.3:80/TCP STATE=terminating".to_owned(),
        "MAGLEV: ID=7 INNER=[2(151), 1(100)]".to_owned(),
        "REV: ID=7 ADDR=203.0.113.10:80".to_owned(),
        "SRCRANGE: ID=7 CIDR=192.0.2.0/24".to_owned(),
        format!("{svc} SLOT=0 LBALG=maglev AFFTimeout=30 COUNT=1 QCOUNT=1 {flags}+deny"),
        format!("{svc} SLOT=1 BEID=2 COUNT=0 QCOUNT=0 {flags}"),
        format!("{svc} SLOT=2 BEID=1 COUNT=0 QCOUNT=0 {flags}+quarantined"),
    ];
    let mut shuffled = records();
    shuffled.reverse();
    assert_eq!(text(&shuffled, &TextFormat::default()), expected);
}

#[test]
fn hidden_identifiers_are_addresses() {
    let lines = text(&records(), &TextFormat::WITHOUT_IDENTIFIERS);
    for line in [
        "AFF: ID=203.0.113.10:80/TCP BEID=10.0.0.2:80/TCP",
        "BE: ADDR=10.0.0.1:80/TCP STATE=active",
        "MAGLEV: ID=203.0.113.10:80/TCP INNER=[10.0.0.2:80/TCP(151), 10.0.0.1:80/TCP(100)]",
        "REV: ADDR=203.0.113.10:80",
        "SRCRANGE: ID=203.0.113.10:80/TCP CIDR=192.0.2.0/24",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} is not in {lines:#?}");
    }
    // Other identifiers give the same text.
    let mut renumbered = records();
    for record in &mut renumbered {
        match record {
            Record::Service { id, .. }
            | Record::Reverse { id, .. }
            | Record::SourceRange { id, .. } => *id += 100,
            Record::Backend { id: backend, .. } | Record::Slot { backend, .. } => *backend += 200,
            Record::AffinityMatch { id, backend } => (*id, *backend) = (*id + 100, *backend + 200),
            Record::Maglev { id, inner } => {
                *id += 100;
                inner.iter_mut().for_each(|(backend, _)| *backend += 200);
            }
        }
    }
    assert_eq!(text(&renumbered, &TextFormat::WITHOUT_IDENTIFIERS), lines);
}

#[test]
fn address_filter_selects_frontends_with_their_entries() {
    let only = |addr: &str| {
        text(&records(), &TextFormat { only: Some(addr.parse().unwrap()), identifiers: true })
    };
    let web = only("203.0.113.10");
    assert_eq!(web.len(), records().len() - 1, "all except the unused backend");
    assert!(!web.iter().any(|line| line.contains("10.0.0.3")));
    assert_eq!(only("10.0.0.3"), ["BE: ID=3 ADDR=10.0.0.3:80/TCP STATE=terminating"]);
    assert!(only("192.0.2.1").is_empty());
}

#[test]
fn redirected_frontend_shows_the_port_of_its_proxy() {
    let redirect = ProxyRedirect { port: 2000, ports: vec![80] };
    let service = service().with(|spec| spec.proxy_redirect = Some(Arc::new(redirect))).unwrap();
    assert_eq!(Spread::of(&service.spec, 80).to_string(), "L7Proxy=2000");
    assert_eq!(Spread::of(&service.spec, 81).to_string(), "LBALG=maglev AFFTimeout=0");
    let flags = Flags::of(&FrontendSpec::new(web(), Kind::LoadBalancer), &service.spec, false);
    assert_eq!(flags.to_string(), "LoadBalancer+l7-load-balancer");
}

#[test]
fn flags_follow_kind_and_policy() {
    let of = |kind, service: &Service| {
        Flags::of(&FrontendSpec::new(web(), kind), &service.spec, false).to_string()
    };
    let plain = service();
    assert_eq!(of(Kind::ClusterIp, &plain), "ClusterIP+non-routable");
    assert_eq!(of(Kind::NodePort, &plain), "NodePort");
    assert_eq!(of(Kind::ExternalIps, &plain), "ExternalIPs");
    assert_eq!(of(Kind::LocalRedirect, &plain), "LocalRedirect");
    let open = Flags::of(&FrontendSpec::new(web(), Kind::ClusterIp), &plain.spec, true);
    assert_eq!(open.to_string(), "ClusterIP");
    let wildcard = Address::new("0.0.0.0".parse().unwrap(), 30000, 6);
    let wildcard = Flags::of(&FrontendSpec::new(wildcard, Kind::NodePort), &plain.spec, false);
    assert_eq!(wildcard.to_string(), "NodePort+non-routable");

    let local = service().with(|spec| spec.external_policy = TrafficPolicy::Local).unwrap();
    assert_eq!(of(Kind::LoadBalancer, &local), "LoadBalancer+Local+two-scopes");
    assert_eq!(of(Kind::ClusterIp, &local), "ClusterIP+Local+non-routable");
    let both = local.with(|spec| spec.internal_policy = TrafficPolicy::Local).unwrap();
    assert_eq!(of(Kind::LoadBalancer, &both), "LoadBalancer+Local+InternalLocal");

    let loopback = service().with(|spec| spec.loopback_host_port = true).unwrap();
    assert_eq!(of(Kind::HostPort, &loopback), "HostPort+loopback");
    assert_eq!(of(Kind::LoadBalancer, &loopback), "LoadBalancer");

    let nat46 = service().with(|spec| spec.nat_policy = NatPolicy::Nat46).unwrap();
    assert_eq!(of(Kind::LoadBalancer, &nat46), "LoadBalancer+46x64");
    let nat64 = service().with(|spec| spec.nat_policy = NatPolicy::Nat64).unwrap();
    assert_eq!(of(Kind::LoadBalancer, &nat64), "LoadBalancer");
}
