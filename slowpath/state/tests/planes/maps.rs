//! Tests of the map plane: what it writes for each frontend, in which order, and what is left when
//! a write fails.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::{
    CheckedMaps, Fixture, MAGLEV_SIZE, PRUNES_PER_STEP, at, endpoint, ip, name, options, source,
};
use config::checked::Prefix;
use config::services::{Algorithm, RangesPolicy, TrafficPolicy};
use map_plane::ids::Identifiers;
use map_plane::{Failure, FaultyMaps, Key, Map, MapPlane, Maps, MemoryMaps, Sizes, Value};
use state::address::Endpoint;
use state::backend::{Instance, State};
use state::dump::Record;
use state::frontend::{Kind, Progress};
use state::object::{FrontendSpec, ProxyRedirect, SourceRanges};
use state::plane::Plane;
use state::service::Service;

fn web() -> FrontendSpec {
    FrontendSpec::new(at("203.0.113.10", 80), Kind::LoadBalancer)
}

/// Returns a service with algorithm `random`, so that the expected lines have no Maglev tables.
fn service(text: &str) -> Service {
    Service::new(name(text), source()).with(|spec| spec.algorithm = Algorithm::Random).unwrap()
}

fn put(fixture: &Fixture, service: Service, frontends: Vec<FrontendSpec>) {
    fixture.write(|to| to.upsert_service_and_frontends(service, frontends)).unwrap();
}

fn remove(fixture: &Fixture, text: &str) {
    fixture.write(|to| to.delete_service_and_frontends(&name(text), &source())).unwrap();
}

fn active(endpoints: &[&str]) -> Vec<(Endpoint, State)> {
    endpoints.iter().map(|text| (endpoint(text), State::Active)).collect()
}

fn set(fixture: &Fixture, text: &str, backends: &[(Endpoint, State)]) {
    let instances = backends.iter().map(|(endpoint, state)| Instance {
        state: *state,
        ..Instance::new(*endpoint, name(text), source())
    });
    fixture.write(|to| to.set_backends(&name(text), &source(), instances.collect()));
}

fn set_unhealthy(fixture: &Fixture, text: &str, at: &str) {
    fixture.write(|to| to.update_backend_health(&name(text), &endpoint(at), false)).unwrap();
}

/// Returns a fixture whose plane has one service, `web`, with these backends.
fn with(service: Service, frontends: Vec<FrontendSpec>, backends: &[&str]) -> Fixture {
    let mut fixture = Fixture::new();
    put(&fixture, service, frontends);
    set(&fixture, "web", &active(backends));
    fixture.steps();
    fixture
}

fn lines_with(fixture: &Fixture, part: &str) -> Vec<String> {
    fixture.lines().into_iter().filter(|line| line.contains(part)).collect()
}

fn error(fixture: &Fixture, frontend: &FrontendSpec) -> String {
    match fixture.writer.tables().frontend(&frontend.address).unwrap().status().progress {
        Progress::Error(text) => text.into(),
        progress => panic!("{} is {progress:?}", frontend.address),
    }
}

/// Returns the kind of each row written since the index `since` of the log; `-` marks deletions. A
/// master is a frontend's row with slot number 0.
fn log(fixture: &Fixture, since: usize) -> Vec<String> {
    let text = |(key, deleted): &(Key, bool)| {
        let what = match key {
            Key::Service(_, 0) => "master".to_owned(),
            Key::Service(_, number) => format!("slot {number}"),
            key => format!("{:?}", key.map()),
        };
        if *deleted { format!("-{what}") } else { what }
    };
    fixture.plane.maps().maps.log[since..].iter().map(text).collect()
}

#[test]
fn a_frontend_is_a_master_slots_backends_and_reverse_nat() {
    let fixture = with(service("web"), vec![web()], &["10.0.0.1", "10.0.0.2"]);
    let svc = "SVC: ID=1 ADDR=203.0.113.10:80/TCP";
    let expected = [
        "BE: ID=1 ADDR=10.0.0.1:8080/TCP STATE=active".to_owned(),
        "BE: ID=2 ADDR=10.0.0.2:8080/TCP STATE=active".to_owned(),
        "REV: ID=1 ADDR=203.0.113.10:80".to_owned(),
        format!("{svc} SLOT=0 LBALG=random AFFTimeout=0 COUNT=2 QCOUNT=0 FLAGS=LoadBalancer"),
        format!("{svc} SLOT=1 BEID=1 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer"),
        format!("{svc} SLOT=2 BEID=2 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer"),
    ];
    assert_eq!(fixture.numbered(), expected);
}

#[test]
fn kinds_families_and_scopes_have_separate_rows() {
    let frontends = vec![
        web(),
        FrontendSpec::new(at("2001:db8::10", 80), Kind::LoadBalancer),
        FrontendSpec::new(at("10.96.0.1", 80), Kind::ClusterIp),
        FrontendSpec::new(at("198.51.100.7", 80), Kind::ExternalIps),
        FrontendSpec::new(at("192.0.2.1", 8080), Kind::HostPort),
        FrontendSpec::new(at("169.254.169.254", 80), Kind::LocalRedirect),
        FrontendSpec::new(at("203.0.113.10", 80).internal(), Kind::LoadBalancer),
    ];
    let local = TrafficPolicy::Local;
    let service = service("web").with(|spec| spec.external_policy = local).unwrap();
    let fixture = with(service, frontends, &["10.0.0.1", "fd00::1"]);
    let masters = lines_with(&fixture, "SLOT=0");
    let expected = [
        ("10.96.0.1:80/TCP", "ClusterIP+Local+non-routable"),
        ("169.254.169.254:80/TCP", "LocalRedirect+Local+two-scopes"),
        ("192.0.2.1:8080/TCP", "HostPort+Local+two-scopes"),
        ("198.51.100.7:80/TCP", "ExternalIPs+Local+two-scopes"),
        ("203.0.113.10:80/TCP", "LoadBalancer+Local+two-scopes"),
        ("203.0.113.10:80/TCP/i", "LoadBalancer+Local+two-scopes"),
        ("[2001:db8::10]:80/TCP", "LoadBalancer+Local+two-scopes"),
    ];
    for ((address, flags), line) in expected.iter().zip(&masters) {
        let rest = format!("SLOT=0 LBALG=random AFFTimeout=0 COUNT=1 QCOUNT=0 FLAGS={flags}");
        assert_eq!(*line, format!("SVC: ADDR={address} {rest}"));
    }
    assert_eq!(masters.len(), expected.len());
    assert_eq!(
        lines_with(&fixture, "BEID=[fd00::1]:8080").len(),
        1,
        "address families are separate"
    );
}

#[test]
fn identifiers_are_stable_and_not_reused_soon() {
    let mut fixture = with(service("web"), vec![web()], &["10.0.0.1"]);
    let other = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&fixture, service("web"), vec![web(), other.clone()]);
    fixture.steps();
    let id = |fixture: &Fixture, line: &str| fixture.numbered().iter().any(|l| l.starts_with(line));
    assert!(id(&fixture, "REV: ID=1 ADDR=203.0.113.10:80"));
    assert!(id(&fixture, "REV: ID=2 ADDR=203.0.113.11:80"));
    put(&fixture, service("web"), vec![other.clone()]);
    fixture.steps();
    put(&fixture, service("web"), vec![web(), other]);
    fixture.steps();
    assert!(id(&fixture, "REV: ID=3 ADDR=203.0.113.10:80"), "{:?}", fixture.numbered());
    assert!(id(&fixture, "REV: ID=2 ADDR=203.0.113.11:80"));
    assert!(id(&fixture, "BE: ID=1 "), "the backend keeps its identifier");
}

#[test]
fn exhausted_identifiers_are_an_error_of_the_frontend() {
    let mut fixture = Fixture::new();
    let maps = FaultyMaps::new(CheckedMaps::new(MemoryMaps::default()), 0, 1);
    let few = Identifiers::up_to(1);
    fixture.plane = MapPlane::with_identifiers(maps, options(&[]), few.clone(), few);
    let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&fixture, service("web"), vec![web(), second.clone()]);
    fixture.steps();
    assert_eq!(
        error(&fixture, &second),
        "all 1 identifiers are in use; remove services or backends"
    );
    put(&fixture, service("web"), vec![second]);
    fixture.advance(Duration::from_secs(60));
    fixture.settle();
    set(&fixture, "web", &active(&["10.0.0.1", "10.0.0.2"]));
    fixture.steps();
    assert!(lines_with(&fixture, "COUNT=0").len() == 1, "{:?}", fixture.lines());
    set(&fixture, "web", &active(&["10.0.0.2"]));
    fixture.settle();
    assert_eq!(lines_with(&fixture, "BE: ADDR=10.0.0.2:8080").len(), 1);
}

#[test]
fn unsupported_combinations_are_rejected() {
    let redirect = Some(Arc::new(ProxyRedirect { port: 2000, ports: vec![80] }));
    let both = service("web")
        .with(|spec| {
            spec.affinity_s = 30;
            spec.proxy_redirect = redirect;
        })
        .unwrap();
    let other = FrontendSpec::new(at("203.0.113.10", 443), Kind::LoadBalancer);
    let fixture = with(both, vec![web(), other.clone()], &["10.0.0.1"]);
    assert_eq!(
        error(&fixture, &web()),
        "service web has session affinity and sends port 80 to the proxy at port 2000, which \
         handles affinity itself; remove `affinity_s` or `proxy_redirect`"
    );
    let status = fixture.writer.tables().frontend(&other.address).unwrap().status();
    assert_eq!(status.progress, Progress::Done, "the proxy does not receive the other port");
}

#[test]
fn slots_are_ordered_and_counts_split_serving_backends() {
    let mut fixture = with(service("web"), vec![web()], &["10.0.0.1"]);
    set(
        &fixture,
        "web",
        &[
            (endpoint("10.0.0.1"), State::Terminating),
            (endpoint("10.0.0.2"), State::Active),
            (endpoint("10.0.0.3"), State::TerminatingNotServing),
            (endpoint("10.0.0.4"), State::Active),
            (endpoint("10.0.0.5"), State::Maintenance),
            (endpoint("10.0.0.6"), State::Active),
        ],
    );
    set_unhealthy(&fixture, "web", "10.0.0.2");
    fixture.steps();
    let slots = lines_with(&fixture, "BEID=");
    let of = |line: &String| {
        let backend = line.split("BEID=10.0.0.").nth(1).unwrap();
        (backend.as_bytes()[0] - b'0', line.ends_with("+quarantined"))
    };
    let expected = [(4, false), (6, false), (1, false), (3, false), (2, true)];
    assert_eq!(slots.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(lines_with(&fixture, "COUNT=2 QCOUNT=3").len(), 1);

    // No backend is active, so the terminating one serves.
    set(&fixture, "web", &[(endpoint("10.0.0.1"), State::Terminating)]);
    fixture.steps();
    assert_eq!(lines_with(&fixture, "COUNT=1 QCOUNT=0").len(), 1);
    assert_eq!(lines_with(&fixture, "BE: ADDR=10.0.0.1:8080/TCP STATE=terminating").len(), 1);
    set(&fixture, "web", &[]);
    fixture.steps();
    assert_eq!(lines_with(&fixture, "COUNT=0 QCOUNT=0").len(), 1);
    assert_eq!(lines_with(&fixture, "BE:").len(), 0);
}

#[test]
fn backends_exist_while_slots_refer_to_them() {
    let maglev = service("web").with(|spec| spec.algorithm = Algorithm::Maglev).unwrap();
    let mut fixture = with(maglev, vec![web()], &["10.0.0.1"]);
    let mark = fixture.plane.maps().maps.log.len();
    set(&fixture, "web", &active(&["10.0.0.2"]));
    fixture.steps();
    // The master row is not written, because the number of serving backends is still 1.
    assert_eq!(log(&fixture, mark), ["Backends", "slot 1", "Maglev", "-Backends"]);

    let mark = fixture.plane.maps().maps.log.len();
    set(&fixture, "web", &active(&["10.0.0.3", "10.0.0.4"]));
    fixture.steps();
    let expected = ["Backends", "Backends", "slot 1", "slot 2", "Maglev", "master", "-Backends"];
    assert_eq!(log(&fixture, mark), expected);

    let mark = fixture.plane.maps().maps.log.len();
    set(&fixture, "web", &active(&["10.0.0.4"]));
    fixture.steps();
    assert_eq!(log(&fixture, mark), ["slot 1", "Maglev", "master", "-slot 2", "-Backends"]);

    let mark = fixture.plane.maps().maps.log.len();
    remove(&fixture, "web");
    fixture.steps();
    assert_eq!(log(&fixture, mark), ["-master", "-Maglev", "-slot 1", "-Backends", "-Reverse"]);
    assert!(fixture.lines().is_empty());
}

#[test]
fn serving_slot_is_reassigned_after_the_count() {
    let mut fixture = with(service("web"), vec![web()], &["10.0.0.1", "10.0.0.2"]);
    let mark = fixture.plane.maps().maps.log.len();
    set_unhealthy(&fixture, "web", "10.0.0.1");
    fixture.steps();
    assert_eq!(log(&fixture, mark), ["slot 1", "master", "slot 2"]);
}

#[test]
fn full_backend_map_is_reused_without_slots_of_missing_backends() {
    let mut fixture = Fixture::sized(Sizes { backends: 2, ..Sizes::default() });
    put(&fixture, Service::new(name("web"), source()), vec![web()]);
    set(&fixture, "web", &active(&["10.0.0.1", "10.0.0.2"]));
    fixture.steps();
    set(&fixture, "web", &active(&["10.0.0.2", "10.0.0.3"]));
    fixture.settle();
    assert_eq!(lines_with(&fixture, "BE:").len(), 2);
    set(&fixture, "web", &active(&["10.0.0.4", "10.0.0.5"]));
    fixture.settle();
    assert_eq!(lines_with(&fixture, "COUNT=2").len(), 1);
    assert_eq!(lines_with(&fixture, "BE: ADDR=10.0.0.4").len(), 1);

    set(&fixture, "web", &active(&["10.0.0.4", "10.0.0.5", "10.0.0.6"]));
    fixture.steps();
    let full =
        "the map of Backends is full with 2 rows; raise region.max_backends or remove services";
    assert_eq!(error(&fixture, &web()), full);
    assert_eq!(lines_with(&fixture, "COUNT=2").len(), 1, "the frontend keeps its two backends");
    set(&fixture, "web", &active(&["10.0.0.6"]));
    fixture.settle();
    assert_eq!(lines_with(&fixture, "BE:"), ["BE: ADDR=10.0.0.6:8080/TCP STATE=active"]);
}

#[test]
fn full_map_names_its_setting_and_does_not_block_others() {
    let one = Sizes::all(1000);
    let cases: [(Sizes, &str); 5] = [
        (Sizes { services: 2, ..one }, "region.max_frontends and region.slots"),
        (Sizes { reverse: 1, ..one }, "raise region.max_frontends or"),
        (Sizes { affinity: 1, ..one }, "remove session affinity from some or"),
        (Sizes { source_ranges: 1, ..one }, "remove source ranges from some or"),
        (Sizes { maglev: 1, ..one }, "region.slots"),
    ];
    for (sizes, setting) in cases {
        let mut fixture = Fixture::sized(sizes);
        let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
        for (text, frontend) in [("web", web()), ("api", second.clone())] {
            let prefixes = vec![Prefix { addr: ip("198.51.100.0"), len: 24 }];
            let source_ranges =
                Some(Arc::new(SourceRanges { policy: RangesPolicy::Allow, prefixes }));
            let affinity_s = 30;
            let service = Service::new(name(text), source())
                .with(|spec| {
                    spec.source_ranges = source_ranges;
                    spec.affinity_s = affinity_s;
                })
                .unwrap();
            put(&fixture, service, vec![frontend]);
            set(&fixture, text, &active(&["10.0.0.1"]));
        }
        fixture.steps();
        assert!(error(&fixture, &second).contains(setting), "{setting}");
        let first = fixture.writer.tables().frontend(&web().address).unwrap().status();
        assert_eq!(first.progress, Progress::Done, "{setting}");
        remove(&fixture, "web");
        fixture.settle();
    }
}

#[test]
fn affinity_is_kept_for_active_backends_only() {
    let affine = service("web").with(|spec| spec.affinity_s = 30).unwrap();
    let mut fixture = with(affine.clone(), vec![web()], &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    assert_eq!(lines_with(&fixture, "AFF:").len(), 3);
    assert_eq!(lines_with(&fixture, "AFFTimeout=30").len(), 1);
    set_unhealthy(&fixture, "web", "10.0.0.1");
    set(
        &fixture,
        "web",
        &[
            (endpoint("10.0.0.1"), State::Active),
            (endpoint("10.0.0.2"), State::Terminating),
            (endpoint("10.0.0.3"), State::Active),
        ],
    );
    fixture.steps();
    assert_eq!(
        lines_with(&fixture, "AFF:"),
        ["AFF: ID=203.0.113.10:80/TCP BEID=10.0.0.3:8080/TCP"]
    );
    put(&fixture, service("web"), vec![web()]);
    fixture.steps();
    assert!(lines_with(&fixture, "AFF:").is_empty());
    put(&fixture, affine, vec![web()]);
    fixture.steps();
    set(&fixture, "web", &active(&["10.0.0.2"]));
    fixture.steps();
    assert_eq!(lines_with(&fixture, "AFF:").len(), 1);
}

#[test]
fn maglev_tables_contain_serving_backends() {
    let maglev = |size| {
        let base = service("web");
        base.with(|spec| {
            spec.algorithm = Algorithm::Maglev;
            spec.table_size = size;
        })
        .unwrap()
    };
    let mut fixture = with(maglev(0), vec![web()], &["10.0.0.1"]);
    let expected = format!("INNER=[10.0.0.1:8080/TCP({MAGLEV_SIZE})]");
    assert!(lines_with(&fixture, "MAGLEV:")[0].ends_with(&expected));

    put(&fixture, maglev(1021), vec![web()]);
    let weighted = |text: &str, weight| Instance {
        weight,
        ..Instance::new(endpoint(text), name("web"), source())
    };
    let instances = vec![weighted("10.0.0.1", 300), weighted("10.0.0.2", 100)];
    fixture.write(|to| to.set_backends(&name("web"), &source(), instances));
    fixture.steps();
    let counts: Vec<u32> = fixture.plane.dump().into_iter().find_map(table).unwrap();
    assert_eq!(counts.iter().sum::<u32>(), 1021);
    assert!(counts[0].abs_diff(766) <= 1, "three in four: {counts:?}");

    set_unhealthy(&fixture, "web", "10.0.0.1");
    fixture.steps();
    assert!(lines_with(&fixture, "MAGLEV:")[0].ends_with("INNER=[10.0.0.2:8080/TCP(1021)]"));
    set_unhealthy(&fixture, "web", "10.0.0.2");
    fixture.steps();
    assert!(lines_with(&fixture, "MAGLEV:").is_empty(), "no backend serves");

    put(&fixture, maglev(0), vec![web()]);
    set(&fixture, "web", &active(&["10.0.0.3"]));
    fixture.steps();
    assert_eq!(lines_with(&fixture, "MAGLEV:").len(), 1);
    put(&fixture, service("web"), vec![web()]);
    fixture.steps();
    assert!(lines_with(&fixture, "MAGLEV:").is_empty(), "the algorithm is random");
}

fn table(record: Record) -> Option<Vec<u32>> {
    match record {
        Record::Maglev { inner, .. } => Some(inner.into_iter().map(|(_, count)| count).collect()),
        _ => None,
    }
}

#[test]
fn source_ranges_are_added_before_others_are_removed() {
    let ranges = |policy, lens: &[u8]| {
        let prefix = |len: &u8| Prefix { addr: ip("198.51.100.0"), len: *len };
        let prefixes = lens.iter().map(prefix).collect();
        service("web")
            .with(|spec| spec.source_ranges = Some(Arc::new(SourceRanges { policy, prefixes })))
            .unwrap()
    };
    let mut fixture = with(ranges(RangesPolicy::Allow, &[24, 25]), vec![web()], &["10.0.0.1"]);
    assert_eq!(
        lines_with(&fixture, "SRCRANGE:"),
        [
            "SRCRANGE: ID=203.0.113.10:80/TCP CIDR=198.51.100.0/24",
            "SRCRANGE: ID=203.0.113.10:80/TCP CIDR=198.51.100.0/25"
        ]
    );
    assert_eq!(lines_with(&fixture, "+check-source-range").len(), 2);
    let mark = fixture.plane.maps().maps.log.len();
    put(&fixture, ranges(RangesPolicy::Deny, &[25, 26]), vec![web()]);
    fixture.steps();
    assert_eq!(log(&fixture, mark), ["SourceRanges", "master", "-SourceRanges"]);
    assert_eq!(lines_with(&fixture, "+check-source-range+deny").len(), 1);
    let mark = fixture.plane.maps().maps.log.len();
    put(&fixture, service("web"), vec![web()]);
    fixture.steps();
    assert_eq!(
        log(&fixture, mark),
        ["master", "-SourceRanges", "-SourceRanges"],
        "the check of source ranges ends before the ranges are removed"
    );
}

#[test]
fn shared_backend_has_the_most_active_state_until_the_last_release() {
    let mut fixture = with(service("web"), vec![web()], &["10.0.0.1"]);
    let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&fixture, service("api"), vec![second]);
    set(&fixture, "api", &[(endpoint("10.0.0.1"), State::Terminating)]);
    fixture.steps();
    assert_eq!(lines_with(&fixture, "BE:"), ["BE: ADDR=10.0.0.1:8080/TCP STATE=active"]);
    set(&fixture, "web", &[]);
    fixture.steps();
    assert_eq!(lines_with(&fixture, "BE:"), ["BE: ADDR=10.0.0.1:8080/TCP STATE=terminating"]);
    // A health check verdict is for one service only.
    set(&fixture, "web", &active(&["10.0.0.1"]));
    set_unhealthy(&fixture, "web", "10.0.0.1");
    fixture.steps();
    assert_eq!(lines_with(&fixture, "BE:"), ["BE: ADDR=10.0.0.1:8080/TCP STATE=active"]);
    assert_eq!(lines_with(&fixture, "+quarantined").len(), 1);
    remove(&fixture, "api");
    fixture.steps();
    assert_eq!(lines_with(&fixture, "BE:").len(), 1);
    remove(&fixture, "web");
    fixture.steps();
    assert!(fixture.lines().is_empty());
}

#[test]
fn node_ports_have_a_wildcard_and_a_copy_per_address() {
    let frontends = vec![
        FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort),
        FrontendSpec::new(at("::", 30_080), Kind::NodePort),
    ];
    let mut fixture = with(service("web"), frontends.clone(), &["10.0.0.1", "fd00::1"]);
    let masters = |fixture: &Fixture| {
        let of = |line: String| {
            let address = line.split("ADDR=").nth(1).unwrap().split("/TCP").next().unwrap();
            (address.to_owned(), line.ends_with("+non-routable"))
        };
        lines_with(fixture, "SLOT=0").into_iter().map(of).collect::<Vec<_>>()
    };
    let row = |address: &str, wildcard| (address.to_owned(), wildcard);
    assert_eq!(masters(&fixture), [row("0.0.0.0:30080", true), row("[::]:30080", true)]);

    fixture.set_addresses(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    fixture.steps();
    let all = [
        row("0.0.0.0:30080", true),
        row("192.0.2.1:30080", false),
        row("192.0.2.2:30080", false),
        row("[2001:db8::1]:30080", false),
        row("[::]:30080", true),
    ];
    assert_eq!(masters(&fixture), all);

    // The IPv6 wildcard is removed, and the rows of the IPv4 wildcard with the same port stay.
    put(&fixture, service("web"), frontends[..1].to_vec());
    fixture.steps();
    assert_eq!(masters(&fixture), all[..3]);
    fixture.set_addresses(&["192.0.2.2", "2001:db8::1"]);
    fixture.steps();
    assert_eq!(masters(&fixture), [all[0].clone(), all[2].clone()]);
    put(&fixture, service("web"), frontends[1..].to_vec());
    fixture.steps();
    assert_eq!(masters(&fixture), all[3..]);
    remove(&fixture, "web");
    fixture.steps();
    set(&fixture, "web", &[]);
    assert!(fixture.lines().is_empty());
}

#[test]
fn frontend_at_an_own_address_replaces_a_node_port_copy_until_deleted() {
    let ports = vec![FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort)];
    let mut fixture = with(service("web"), ports.clone(), &["10.0.0.1"]);
    fixture.set_addresses(&["192.0.2.1"]);
    fixture.steps();
    let own = FrontendSpec::new(at("192.0.2.1", 30_080), Kind::LoadBalancer);
    let kind = |fixture: &Fixture| {
        let lines = lines_with(fixture, "ADDR=192.0.2.1:30080/TCP SLOT=0");
        lines[0].split("FLAGS=").nth(1).unwrap().to_owned()
    };
    assert_eq!(kind(&fixture), "NodePort");
    put(&fixture, service("api"), vec![own]);
    fixture.steps();
    assert_eq!(kind(&fixture), "LoadBalancer");
    put(&fixture, service("web").with(|spec| spec.mss = 1400).unwrap(), ports);
    fixture.steps();
    assert_eq!(kind(&fixture), "LoadBalancer");
    remove(&fixture, "api");
    fixture.steps();
    assert_eq!(kind(&fixture), "NodePort");
    remove(&fixture, "web");
    fixture.steps();
    assert_eq!(fixture.lines().len(), 0);
}

#[test]
fn retry_converges_whichever_write_fails() {
    // Writes a service with rows in every map.
    let put_all = |fixture: &Fixture, variant: u8| {
        let prefix = |len| Prefix { addr: ip("198.51.100.0"), len };
        let policy = if variant == 1 { RangesPolicy::Deny } else { RangesPolicy::Allow };
        let ranges = SourceRanges { policy, prefixes: vec![prefix(24), prefix(25 + variant)] };
        let service = Service::new(name("web"), source())
            .with(|spec| {
                spec.affinity_s = 30;
                spec.source_ranges = Some(Arc::new(ranges));
            })
            .unwrap();
        put(
            fixture,
            service,
            vec![web(), FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort)],
        );
        let first: &[&str] = &["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        set(fixture, "web", &active(if variant == 0 { first } else { &["10.0.0.3", "10.0.0.4"] }));
    };
    // Returns the maps after the write `at` failed and was retried, and the number of writes.
    let converge = |at: Option<u64>, deleted: bool| {
        let mut fixture = Fixture::new();
        fixture.set_addresses(&["192.0.2.1"]);
        put_all(&fixture, 0);
        fixture.steps();
        let mark = fixture.plane.maps().maps.log.len();
        fixture.plane.maps().maps.fail_after.set(at);
        if deleted {
            remove(&fixture, "web")
        } else {
            put_all(&fixture, 1)
        }
        fixture.step();
        let wrote = fixture.plane.maps().maps.log.len() - mark;
        fixture.plane.maps().maps.fail_after.set(None);
        fixture.settle();
        (fixture.lines(), wrote as u64)
    };
    for deleted in [false, true] {
        let (expected, writes) = converge(None, deleted);
        assert!(writes > 15, "{writes}");
        assert_eq!(expected.is_empty(), deleted);
        for at in 0..writes {
            assert_eq!(converge(Some(at), deleted).0, expected, "the write {at} of {writes}");
        }
    }
}

#[test]
fn restart_restores_identifiers_and_quarantine() {
    let affine = Service::new(name("web"), source()).with(|spec| spec.affinity_s = 30).unwrap();
    let mut fixture = with(affine.clone(), vec![web()], &["10.0.0.9"]);
    set(&fixture, "web", &active(&["10.0.0.1", "10.0.0.2"]));
    let states = [
        (endpoint("10.0.0.1"), State::Terminating),
        (endpoint("10.0.0.2"), State::Active),
        (endpoint("10.0.0.3"), State::Active),
        (endpoint("10.0.0.4"), State::TerminatingNotServing),
    ];
    set(&fixture, "web", &states);
    set_unhealthy(&fixture, "web", "10.0.0.2");
    fixture.steps();
    let before = fixture.numbered();
    let mut fixture = fixture.restart();
    assert_eq!(fixture.plane.quarantined(), [(web().address, endpoint("10.0.0.2"))]);
    put(&fixture, affine, vec![web()]);
    set(&fixture, "web", &states);
    let writes = fixture.plane.maps().maps.writes();
    fixture.steps();
    assert_eq!(
        fixture.numbered(),
        before,
        "before the first health check, a restart changes nothing"
    );
    assert_eq!(fixture.plane.maps().maps.writes(), writes, "a repeated update only reads");
    fixture
        .write(|to| to.update_backend_health(&name("web"), &endpoint("10.0.0.2"), true))
        .unwrap();
    fixture.steps();
    assert!(lines_with(&fixture, "+quarantined").is_empty());
}

#[test]
fn unclaimed_rows_are_removed_by_the_first_prune() {
    let mut fixture = with(Service::new(name("web"), source()), vec![web()], &["10.0.0.1"]);
    let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&fixture, service("api"), vec![second.clone()]);
    set(&fixture, "api", &active(&["10.0.0.2"]));
    fixture.steps();
    // Rows that no frontend uses, as a crash may leave them.
    let maps = &mut fixture.plane.maps_mut().maps;
    let stray = [Key::Maglev(77), Key::Match(77, 2), Key::Reverse(78)];
    let table = map_plane::Table::One { backend: 2, size: 251 };
    let values = [Value::Table(table), Value::Present, Value::Address(second.address)];
    for (key, value) in stray.into_iter().zip(values) {
        maps.maps.update(key, value).unwrap();
    }
    let mut fixture = fixture.restart();
    let token = fixture.writer.register_initializer("kubernetes");
    put(&fixture, service("api"), vec![second]);
    set(&fixture, "api", &active(&["10.0.0.2"]));
    fixture.step();
    fixture.advance(Duration::from_secs(61));
    fixture.steps();
    let third = FrontendSpec::new(at("203.0.113.12", 80), Kind::LoadBalancer);
    put(&fixture, service("new"), vec![third]);
    fixture.steps();
    assert_eq!(lines_with(&fixture, "ADDR=203.0.113.10:80/TCP SLOT=0").len(), 1, "not pruned yet");
    let id = "REV: ID=79 ADDR=203.0.113.12:80".to_owned();
    let numbered = fixture.numbered();
    assert!(numbered.contains(&id), "identifiers of stray rows must not be reused: {numbered:#?}");
    fixture.write(|to| to.complete(&token));
    fixture.settle();
    assert!(lines_with(&fixture, "203.0.113.10").is_empty());
    assert!(lines_with(&fixture, "10.0.0.1:").is_empty());
    for key in stray {
        assert_eq!(fixture.plane.maps().get(&key), None);
    }
}

#[test]
fn pruning_is_incremental() {
    let mut fixture = Fixture::new();
    let frontend_at =
        |last: u8| FrontendSpec::new(at(&format!("203.0.113.{last}"), 80), Kind::LoadBalancer);
    for last in 1..=10 {
        put(&fixture, service(&format!("old-{last}")), vec![frontend_at(last)]);
    }
    fixture.steps();
    let mut fixture = fixture.restart();
    let frontends = |fixture: &Fixture| lines_with(fixture, "SLOT=0").len();
    fixture.step();
    assert_eq!(frontends(&fixture), 10 - PRUNES_PER_STEP);
    put(&fixture, service("new"), vec![frontend_at(99)]);
    fixture.step();
    assert_eq!(lines_with(&fixture, "ADDR=203.0.113.99:80/TCP SLOT=0").len(), 1);
    assert_eq!(frontends(&fixture), 11 - 2 * PRUNES_PER_STEP);
    fixture.steps();
    assert_eq!(frontends(&fixture), 1);
}

#[test]
fn prune_removes_surplus_slots() {
    let mut fixture = with(service("web"), vec![web()], &["10.0.0.1"]);
    let key = Key::Service(web().address, 7);
    let slot = fixture.plane.maps().get(&Key::Service(web().address, 1)).unwrap();
    fixture.plane.maps_mut().update(key, slot).unwrap();
    fixture.reconciler.prune_now(fixture.now);
    fixture.steps();
    assert_eq!(fixture.plane.maps().get(&key), None);
}

#[test]
fn faults_occur_at_the_configured_rate_in_writes_only() {
    let mut maps = FaultyMaps::new(MemoryMaps::new(Sizes::all(1)), 100, 7);
    let (key, value) = (Key::Match(1, 1), Value::Present);
    let failed = (0..10_000).filter(|_| maps.update(key, value.clone()).is_err()).count();
    assert!((800..1200).contains(&failed), "{failed}");
    assert_eq!(maps.failed(), failed as u64);
    assert_eq!(maps.get(&key), Some(Value::Present));
    assert_eq!(maps.keys(Map::Affinity), [key]);
    maps.per_mille = 0;
    let full = Failure::Full(Map::Affinity, 1);
    assert_eq!(maps.update(Key::Match(1, 2), value.clone()), Err(full));
    assert!(maps.update(Key::Backend(1), value).is_err(), "no such value in that map");
}
