//! Tests of the map plane: what it writes for each frontend, in which order, and what is left when
//! a write fails.

use std::sync::Arc;
use std::time::Duration;

use crate::world::{
    Checked, MAGLEV_SIZE, PRUNE_AT_ONCE, World, at, endpoint, ip, name, options, source,
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

/// Algorithm `random`, so that Maglev tables do not fill the expected lines.
fn service(text: &str) -> Service {
    Service::new(name(text), source()).with(|spec| spec.algorithm = Algorithm::Random).unwrap()
}

fn put(world: &World, service: Service, saids: Vec<FrontendSpec>) {
    world.write(|to| to.upsert_service_and_frontends(service, saids)).unwrap();
}

fn remove(world: &World, text: &str) {
    world.write(|to| to.delete_service_and_frontends(&name(text), &source())).unwrap();
}

fn active(endpoints: &[&str]) -> Vec<(Endpoint, State)> {
    endpoints.iter().map(|text| (endpoint(text), State::Active)).collect()
}

fn set(world: &World, text: &str, backends: &[(Endpoint, State)]) {
    let said = backends.iter().map(|(endpoint, state)| Instance {
        state: *state,
        ..Instance::new(*endpoint, name(text), source())
    });
    world.write(|to| to.set_backends(&name(text), &source(), said.collect()));
}

fn fails(world: &World, text: &str, at: &str) {
    world.write(|to| to.update_backend_health(&name(text), &endpoint(at), false)).unwrap();
}

/// Returns a world whose plane has one service, `web`, with these backends.
fn with(service: Service, saids: Vec<FrontendSpec>, backends: &[&str]) -> World {
    let mut world = World::new();
    put(&world, service, saids);
    set(&world, "web", &active(backends));
    world.steps();
    world
}

fn lines_with(world: &World, part: &str) -> Vec<String> {
    world.lines().into_iter().filter(|line| line.contains(part)).collect()
}

fn error(world: &World, said: &FrontendSpec) -> String {
    match world.writer.tables().frontend(&said.address).unwrap().status().progress {
        Progress::Error(text) => text.into(),
        progress => panic!("{} is {progress:?}", said.address),
    }
}

/// Returns a word for each write since a mark.
fn log(world: &World, since: usize) -> Vec<String> {
    let word = |(key, deleted): &(Key, bool)| {
        let what = match key {
            Key::Service(_, 0) => "master".to_owned(),
            Key::Service(_, number) => format!("slot {number}"),
            key => format!("{:?}", key.map()),
        };
        if *deleted { format!("-{what}") } else { what }
    };
    world.plane.maps().maps.log[since..].iter().map(word).collect()
}

#[test]
fn a_frontend_is_a_master_slots_backends_and_reverse_nat() {
    let world = with(service("web"), vec![web()], &["10.0.0.1", "10.0.0.2"]);
    let svc = "SVC: ID=1 ADDR=203.0.113.10:80/TCP";
    let expected = [
        "BE: ID=1 ADDR=10.0.0.1:8080/TCP STATE=active".to_owned(),
        "BE: ID=2 ADDR=10.0.0.2:8080/TCP STATE=active".to_owned(),
        "REV: ID=1 ADDR=203.0.113.10:80".to_owned(),
        format!("{svc} SLOT=0 LBALG=random AFFTimeout=0 COUNT=2 QCOUNT=0 FLAGS=LoadBalancer"),
        format!("{svc} SLOT=1 BEID=1 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer"),
        format!("{svc} SLOT=2 BEID=2 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer"),
    ];
    assert_eq!(world.numbered(), expected);
}

#[test]
fn kinds_families_and_reaches_are_rows_of_their_own() {
    let saids = vec![
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
    let world = with(service, saids, &["10.0.0.1", "fd00::1"]);
    let masters = lines_with(&world, "SLOT=0");
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
    assert_eq!(lines_with(&world, "BEID=[fd00::1]:8080").len(), 1, "families don't mix");
}

#[test]
fn an_identifier_is_bound_to_its_address_and_not_used_again_soon() {
    let mut world = with(service("web"), vec![web()], &["10.0.0.1"]);
    let other = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&world, service("web"), vec![web(), other.clone()]);
    world.steps();
    let id = |world: &World, line: &str| world.numbered().iter().any(|l| l.starts_with(line));
    assert!(id(&world, "REV: ID=1 ADDR=203.0.113.10:80"));
    assert!(id(&world, "REV: ID=2 ADDR=203.0.113.11:80"));
    put(&world, service("web"), vec![other.clone()]);
    world.steps();
    put(&world, service("web"), vec![web(), other]);
    world.steps();
    assert!(id(&world, "REV: ID=3 ADDR=203.0.113.10:80"), "{:?}", world.numbered());
    assert!(id(&world, "REV: ID=2 ADDR=203.0.113.11:80"));
    assert!(id(&world, "BE: ID=1 "), "the backend was there all the time");
}

#[test]
fn exhausted_identifiers_are_an_error_of_the_frontend() {
    let mut world = World::new();
    let maps = FaultyMaps::new(Checked::new(MemoryMaps::default()), 0, 1);
    let few = Identifiers::up_to(1);
    world.plane = MapPlane::numbered(maps, options(&[]), few.clone(), few);
    let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&world, service("web"), vec![web(), second.clone()]);
    world.steps();
    assert_eq!(error(&world, &second), "all 1 identifiers are in use; remove services or backends");
    put(&world, service("web"), vec![second]);
    world.pass(Duration::from_secs(60));
    world.settle();
    set(&world, "web", &active(&["10.0.0.1", "10.0.0.2"]));
    world.steps();
    assert!(lines_with(&world, "COUNT=0").len() == 1, "{:?}", world.lines());
    set(&world, "web", &active(&["10.0.0.2"]));
    world.settle();
    assert_eq!(lines_with(&world, "BE: ADDR=10.0.0.2:8080").len(), 1);
}

#[test]
fn impossible_combinations_are_refused() {
    let redirect = Some(Arc::new(ProxyRedirect { port: 2000, ports: vec![80] }));
    let both = service("web")
        .with(|spec| {
            spec.affinity_s = 30;
            spec.proxy_redirect = redirect;
        })
        .unwrap();
    let elsewhere = FrontendSpec::new(at("203.0.113.10", 443), Kind::LoadBalancer);
    let world = with(both, vec![web(), elsewhere.clone()], &["10.0.0.1"]);
    assert_eq!(
        error(&world, &web()),
        "service web has session affinity and sends port 80 to the proxy at port 2000, which sees \
         to affinity itself; take away the one or the other"
    );
    let status = world.writer.tables().frontend(&elsewhere.address).unwrap().status();
    assert_eq!(status.progress, Progress::Done, "another port isn't for the proxy");
}

#[test]
fn slots_are_ordered_and_counts_tell_who_serves() {
    let mut world = with(service("web"), vec![web()], &["10.0.0.1"]);
    set(
        &world,
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
    fails(&world, "web", "10.0.0.2");
    world.steps();
    let slots = lines_with(&world, "BEID=");
    let of = |line: &String| {
        let backend = line.split("BEID=10.0.0.").nth(1).unwrap();
        (backend.as_bytes()[0] - b'0', line.ends_with("+quarantined"))
    };
    let expected = [(4, false), (6, false), (1, false), (3, false), (2, true)];
    assert_eq!(slots.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(lines_with(&world, "COUNT=2 QCOUNT=3").len(), 1);

    // No backend is active: the terminating ones serve.
    set(&world, "web", &[(endpoint("10.0.0.1"), State::Terminating)]);
    world.steps();
    assert_eq!(lines_with(&world, "COUNT=1 QCOUNT=0").len(), 1);
    assert_eq!(lines_with(&world, "BE: ADDR=10.0.0.1:8080/TCP STATE=terminating").len(), 1);
    set(&world, "web", &[]);
    world.steps();
    assert_eq!(lines_with(&world, "COUNT=0 QCOUNT=0").len(), 1);
    assert_eq!(lines_with(&world, "BE:").len(), 0);
}

#[test]
fn a_new_backend_is_there_before_its_slot_and_an_old_one_until_after() {
    let maglev = service("web").with(|spec| spec.algorithm = Algorithm::Maglev).unwrap();
    let mut world = with(maglev, vec![web()], &["10.0.0.1"]);
    let mark = world.plane.maps().maps.log.len();
    set(&world, "web", &active(&["10.0.0.2"]));
    world.steps();
    // One backend served before and one serves now: the master is unchanged.
    assert_eq!(log(&world, mark), ["Backends", "slot 1", "Maglev", "-Backends"]);

    let mark = world.plane.maps().maps.log.len();
    set(&world, "web", &active(&["10.0.0.3", "10.0.0.4"]));
    world.steps();
    let expected = ["Backends", "Backends", "slot 1", "slot 2", "Maglev", "master", "-Backends"];
    assert_eq!(log(&world, mark), expected);

    let mark = world.plane.maps().maps.log.len();
    set(&world, "web", &active(&["10.0.0.4"]));
    world.steps();
    assert_eq!(log(&world, mark), ["slot 1", "Maglev", "master", "-slot 2", "-Backends"]);

    let mark = world.plane.maps().maps.log.len();
    remove(&world, "web");
    world.steps();
    assert_eq!(log(&world, mark), ["-master", "-Maglev", "-slot 1", "-Backends", "-Reverse"]);
    assert!(world.lines().is_empty());
}

#[test]
fn a_slot_that_served_isnt_given_to_one_that_shall_not_before_the_count_says_so() {
    let mut world = with(service("web"), vec![web()], &["10.0.0.1", "10.0.0.2"]);
    let mark = world.plane.maps().maps.log.len();
    fails(&world, "web", "10.0.0.1");
    world.steps();
    assert_eq!(log(&world, mark), ["slot 1", "master", "slot 2"]);
}

#[test]
fn a_full_map_of_backends_makes_room_without_a_dead_slot() {
    let mut world = World::sized(Sizes { backends: 2, ..Sizes::default() });
    put(&world, Service::new(name("web"), source()), vec![web()]);
    set(&world, "web", &active(&["10.0.0.1", "10.0.0.2"]));
    world.steps();
    set(&world, "web", &active(&["10.0.0.2", "10.0.0.3"]));
    world.settle();
    assert_eq!(lines_with(&world, "BE:").len(), 2);
    set(&world, "web", &active(&["10.0.0.4", "10.0.0.5"]));
    world.settle();
    assert_eq!(lines_with(&world, "COUNT=2").len(), 1);
    assert_eq!(lines_with(&world, "BE: ADDR=10.0.0.4").len(), 1);

    set(&world, "web", &active(&["10.0.0.4", "10.0.0.5", "10.0.0.6"]));
    world.steps();
    let full =
        "the map of Backends is full with 2 rows; raise region.max_backends or remove services";
    assert_eq!(error(&world, &web()), full);
    assert_eq!(lines_with(&world, "COUNT=2").len(), 1, "the others go on");
    set(&world, "web", &active(&["10.0.0.6"]));
    world.settle();
    assert_eq!(lines_with(&world, "BE:"), ["BE: ADDR=10.0.0.6:8080/TCP STATE=active"]);
}

#[test]
fn a_full_map_names_its_setting_and_holds_up_nobody() {
    let one = Sizes::all(1000);
    let cases: [(Sizes, &str); 5] = [
        (Sizes { services: 2, ..one }, "region.max_frontends and region.slots"),
        (Sizes { reverse: 1, ..one }, "raise region.max_frontends or"),
        (Sizes { affinity: 1, ..one }, "take session affinity from some or"),
        (Sizes { source_ranges: 1, ..one }, "take source ranges from some or"),
        (Sizes { maglev: 1, ..one }, "region.slots"),
    ];
    for (sizes, setting) in cases {
        let mut world = World::sized(sizes);
        let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
        for (text, said) in [("web", web()), ("api", second.clone())] {
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
            put(&world, service, vec![said]);
            set(&world, text, &active(&["10.0.0.1"]));
        }
        world.steps();
        assert!(error(&world, &second).contains(setting), "{setting}");
        let first = world.writer.tables().frontend(&web().address).unwrap().status();
        assert_eq!(first.progress, Progress::Done, "{setting}");
        remove(&world, "web");
        world.settle();
    }
}

#[test]
fn clients_stay_with_active_backends_only() {
    let affine = service("web").with(|spec| spec.affinity_s = 30).unwrap();
    let mut world = with(affine.clone(), vec![web()], &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    assert_eq!(lines_with(&world, "AFF:").len(), 3);
    assert_eq!(lines_with(&world, "AFFTimeout=30").len(), 1);
    fails(&world, "web", "10.0.0.1");
    set(
        &world,
        "web",
        &[
            (endpoint("10.0.0.1"), State::Active),
            (endpoint("10.0.0.2"), State::Terminating),
            (endpoint("10.0.0.3"), State::Active),
        ],
    );
    world.steps();
    assert_eq!(lines_with(&world, "AFF:"), ["AFF: ID=203.0.113.10:80/TCP BEID=10.0.0.3:8080/TCP"]);
    put(&world, service("web"), vec![web()]);
    world.steps();
    assert!(lines_with(&world, "AFF:").is_empty());
    put(&world, affine, vec![web()]);
    world.steps();
    set(&world, "web", &active(&["10.0.0.2"]));
    world.steps();
    assert_eq!(lines_with(&world, "AFF:").len(), 1);
}

#[test]
fn maglev_tables_are_built_from_those_that_serve() {
    let maglev = |size| {
        let base = service("web");
        base.with(|spec| {
            spec.algorithm = Algorithm::Maglev;
            spec.table_size = size;
        })
        .unwrap()
    };
    let mut world = with(maglev(0), vec![web()], &["10.0.0.1"]);
    let expected = format!("INNER=[10.0.0.1:8080/TCP({MAGLEV_SIZE})]");
    assert!(lines_with(&world, "MAGLEV:")[0].ends_with(&expected));

    put(&world, maglev(1021), vec![web()]);
    let weighted = |text: &str, weight| Instance {
        weight,
        ..Instance::new(endpoint(text), name("web"), source())
    };
    let said = vec![weighted("10.0.0.1", 300), weighted("10.0.0.2", 100)];
    world.write(|to| to.set_backends(&name("web"), &source(), said));
    world.steps();
    let counts: Vec<u32> = world.plane.dump().into_iter().find_map(table).unwrap();
    assert_eq!(counts.iter().sum::<u32>(), 1021);
    assert!(counts[0].abs_diff(766) <= 1, "three in four: {counts:?}");

    fails(&world, "web", "10.0.0.1");
    world.steps();
    assert!(lines_with(&world, "MAGLEV:")[0].ends_with("INNER=[10.0.0.2:8080/TCP(1021)]"));
    fails(&world, "web", "10.0.0.2");
    world.steps();
    assert!(lines_with(&world, "MAGLEV:").is_empty(), "nobody serves");

    put(&world, maglev(0), vec![web()]);
    set(&world, "web", &active(&["10.0.0.3"]));
    world.steps();
    assert_eq!(lines_with(&world, "MAGLEV:").len(), 1);
    put(&world, service("web"), vec![web()]);
    world.steps();
    assert!(lines_with(&world, "MAGLEV:").is_empty(), "the algorithm is random");
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
    let mut world = with(ranges(RangesPolicy::Allow, &[24, 25]), vec![web()], &["10.0.0.1"]);
    assert_eq!(
        lines_with(&world, "SRCRANGE:"),
        [
            "SRCRANGE: ID=203.0.113.10:80/TCP CIDR=198.51.100.0/24",
            "SRCRANGE: ID=203.0.113.10:80/TCP CIDR=198.51.100.0/25"
        ]
    );
    assert_eq!(lines_with(&world, "+check-source-range").len(), 2);
    let mark = world.plane.maps().maps.log.len();
    put(&world, ranges(RangesPolicy::Deny, &[25, 26]), vec![web()]);
    world.steps();
    assert_eq!(log(&world, mark), ["SourceRanges", "master", "-SourceRanges"]);
    assert_eq!(lines_with(&world, "+check-source-range+deny").len(), 1);
    let mark = world.plane.maps().maps.log.len();
    put(&world, service("web"), vec![web()]);
    world.steps();
    assert_eq!(
        log(&world, mark),
        ["master", "-SourceRanges", "-SourceRanges"],
        "not checked any more before they are gone"
    );
}

#[test]
fn a_shared_backend_stays_until_the_last_lets_go_and_tells_the_most_alive_state() {
    let mut world = with(service("web"), vec![web()], &["10.0.0.1"]);
    let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&world, service("api"), vec![second]);
    set(&world, "api", &[(endpoint("10.0.0.1"), State::Terminating)]);
    world.steps();
    assert_eq!(lines_with(&world, "BE:"), ["BE: ADDR=10.0.0.1:8080/TCP STATE=active"]);
    set(&world, "web", &[]);
    world.steps();
    assert_eq!(lines_with(&world, "BE:"), ["BE: ADDR=10.0.0.1:8080/TCP STATE=terminating"]);
    // A health check verdict is for one service only.
    set(&world, "web", &active(&["10.0.0.1"]));
    fails(&world, "web", "10.0.0.1");
    world.steps();
    assert_eq!(lines_with(&world, "BE:"), ["BE: ADDR=10.0.0.1:8080/TCP STATE=active"]);
    assert_eq!(lines_with(&world, "+quarantined").len(), 1);
    remove(&world, "api");
    world.steps();
    assert_eq!(lines_with(&world, "BE:").len(), 1);
    remove(&world, "web");
    world.steps();
    assert!(world.lines().is_empty());
}

#[test]
fn node_ports_are_a_wildcard_and_a_copy_per_address_of_the_family() {
    let saids = vec![
        FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort),
        FrontendSpec::new(at("::", 30_080), Kind::NodePort),
    ];
    let mut world = with(service("web"), saids.clone(), &["10.0.0.1", "fd00::1"]);
    let masters = |world: &World| {
        let of = |line: String| {
            let address = line.split("ADDR=").nth(1).unwrap().split("/TCP").next().unwrap();
            (address.to_owned(), line.ends_with("+non-routable"))
        };
        lines_with(world, "SLOT=0").into_iter().map(of).collect::<Vec<_>>()
    };
    let row = |address: &str, wildcard| (address.to_owned(), wildcard);
    assert_eq!(masters(&world), [row("0.0.0.0:30080", true), row("[::]:30080", true)]);

    world.set_addresses(&["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    world.steps();
    let all = [
        row("0.0.0.0:30080", true),
        row("192.0.2.1:30080", false),
        row("192.0.2.2:30080", false),
        row("[2001:db8::1]:30080", false),
        row("[::]:30080", true),
    ];
    assert_eq!(masters(&world), all);

    // One address family is removed: rows of the other with the same port stay.
    put(&world, service("web"), saids[..1].to_vec());
    world.steps();
    assert_eq!(masters(&world), all[..3]);
    world.set_addresses(&["192.0.2.2", "2001:db8::1"]);
    world.steps();
    assert_eq!(masters(&world), [all[0].clone(), all[2].clone()]);
    put(&world, service("web"), saids[1..].to_vec());
    world.steps();
    assert_eq!(masters(&world), all[3..]);
    remove(&world, "web");
    world.steps();
    set(&world, "web", &[]);
    assert!(world.lines().is_empty());
}

#[test]
fn a_frontend_of_its_own_comes_before_a_copy_and_gives_the_place_back() {
    let ports = vec![FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort)];
    let mut world = with(service("web"), ports.clone(), &["10.0.0.1"]);
    world.set_addresses(&["192.0.2.1"]);
    world.steps();
    let own = FrontendSpec::new(at("192.0.2.1", 30_080), Kind::LoadBalancer);
    let kind = |world: &World| {
        let lines = lines_with(world, "ADDR=192.0.2.1:30080/TCP SLOT=0");
        lines[0].split("FLAGS=").nth(1).unwrap().to_owned()
    };
    assert_eq!(kind(&world), "NodePort");
    put(&world, service("api"), vec![own]);
    world.steps();
    assert_eq!(kind(&world), "LoadBalancer");
    put(&world, service("web").with(|spec| spec.mss = 1400).unwrap(), ports);
    world.steps();
    assert_eq!(kind(&world), "LoadBalancer");
    remove(&world, "api");
    world.steps();
    assert_eq!(kind(&world), "NodePort");
    remove(&world, "web");
    world.steps();
    assert_eq!(world.lines().len(), 0);
}

#[test]
fn whichever_write_fails_the_next_try_ends_where_it_should() {
    let rich = |world: &World, turn: u8| {
        let prefix = |len| Prefix { addr: ip("198.51.100.0"), len };
        let policy = if turn == 1 { RangesPolicy::Deny } else { RangesPolicy::Allow };
        let ranges = SourceRanges { policy, prefixes: vec![prefix(24), prefix(25 + turn)] };
        let service = Service::new(name("web"), source())
            .with(|spec| {
                spec.affinity_s = 30;
                spec.source_ranges = Some(Arc::new(ranges));
            })
            .unwrap();
        put(world, service, vec![web(), FrontendSpec::new(at("0.0.0.0", 30_080), Kind::NodePort)]);
        let first: &[&str] = &["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        set(world, "web", &active(if turn == 0 { first } else { &["10.0.0.3", "10.0.0.4"] }));
    };
    let play = |at: Option<u64>, deleted: bool| {
        let mut world = World::new();
        world.set_addresses(&["192.0.2.1"]);
        rich(&world, 0);
        world.steps();
        let mark = world.plane.maps().maps.log.len();
        world.plane.maps().maps.fail_after.set(at);
        if deleted {
            remove(&world, "web")
        } else {
            rich(&world, 1)
        }
        world.step();
        let wrote = world.plane.maps().maps.log.len() - mark;
        world.plane.maps().maps.fail_after.set(None);
        world.settle();
        (world.lines(), wrote as u64)
    };
    for deleted in [false, true] {
        let (expected, writes) = play(None, deleted);
        assert!(writes > 15, "{writes}");
        assert_eq!(expected.is_empty(), deleted);
        for at in 0..writes {
            assert_eq!(play(Some(at), deleted).0, expected, "the write {at} of {writes}");
        }
    }
}

#[test]
fn a_restart_finds_identifiers_and_quarantine_and_mistakes_nothing_for_it() {
    let affine = Service::new(name("web"), source()).with(|spec| spec.affinity_s = 30).unwrap();
    let mut world = with(affine.clone(), vec![web()], &["10.0.0.9"]);
    set(&world, "web", &active(&["10.0.0.1", "10.0.0.2"]));
    let states = [
        (endpoint("10.0.0.1"), State::Terminating),
        (endpoint("10.0.0.2"), State::Active),
        (endpoint("10.0.0.3"), State::Active),
        (endpoint("10.0.0.4"), State::TerminatingNotServing),
    ];
    set(&world, "web", &states);
    fails(&world, "web", "10.0.0.2");
    world.steps();
    let before = world.numbered();
    let mut world = world.restart();
    assert_eq!(world.plane.quarantined(), [(web().address, endpoint("10.0.0.2"))]);
    put(&world, affine, vec![web()]);
    set(&world, "web", &states);
    let writes = world.plane.maps().maps.writes();
    world.steps();
    assert_eq!(world.numbered(), before, "nothing was looked at yet, and nothing changed");
    assert_eq!(world.plane.maps().maps.writes(), writes, "said again, it is a matter of reading");
    world.write(|to| to.update_backend_health(&name("web"), &endpoint("10.0.0.2"), true)).unwrap();
    world.steps();
    assert!(lines_with(&world, "+quarantined").is_empty());
}

#[test]
fn what_nobody_claims_after_a_restart_goes_with_the_first_prune() {
    let mut world = with(Service::new(name("web"), source()), vec![web()], &["10.0.0.1"]);
    let second = FrontendSpec::new(at("203.0.113.11", 80), Kind::LoadBalancer);
    put(&world, service("api"), vec![second.clone()]);
    set(&world, "api", &active(&["10.0.0.2"]));
    world.steps();
    // Possible leftovers of a crash: rows that no frontend uses.
    let maps = &mut world.plane.maps_mut().maps;
    let stray = [Key::Maglev(77), Key::Match(77, 2), Key::Reverse(78)];
    let table = map_plane::Table::One { backend: 2, size: 251 };
    let values = [Value::Table(table), Value::There, Value::Address(second.address)];
    for (key, value) in stray.into_iter().zip(values) {
        maps.maps.update(key, value).unwrap();
    }
    let mut world = world.restart();
    let token = world.writer.register_initializer("kubernetes");
    put(&world, service("api"), vec![second]);
    set(&world, "api", &active(&["10.0.0.2"]));
    world.step();
    world.pass(Duration::from_secs(61));
    world.steps();
    let third = FrontendSpec::new(at("203.0.113.12", 80), Kind::LoadBalancer);
    put(&world, service("new"), vec![third]);
    world.steps();
    assert_eq!(lines_with(&world, "ADDR=203.0.113.10:80/TCP SLOT=0").len(), 1, "not pruned yet");
    let id = "REV: ID=79 ADDR=203.0.113.12:80".to_owned();
    assert!(world.numbered().contains(&id), "a stray row's is used: {:#?}", world.numbered());
    world.write(|to| to.complete(&token));
    world.settle();
    assert!(lines_with(&world, "203.0.113.10").is_empty());
    assert!(lines_with(&world, "10.0.0.1:").is_empty());
    for key in stray {
        assert_eq!(world.plane.maps().get(&key), None);
    }
}

#[test]
fn pruning_is_done_in_parts_and_holds_up_nobody() {
    let mut world = World::new();
    let said =
        |last: u8| FrontendSpec::new(at(&format!("203.0.113.{last}"), 80), Kind::LoadBalancer);
    for last in 1..=10 {
        put(&world, service(&format!("old-{last}")), vec![said(last)]);
    }
    world.steps();
    let mut world = world.restart();
    let frontends = |world: &World| lines_with(world, "SLOT=0").len();
    world.step();
    assert_eq!(frontends(&world), 10 - PRUNE_AT_ONCE);
    put(&world, service("new"), vec![said(99)]);
    world.step();
    assert_eq!(lines_with(&world, "ADDR=203.0.113.99:80/TCP SLOT=0").len(), 1);
    assert_eq!(frontends(&world), 11 - 2 * PRUNE_AT_ONCE);
    world.steps();
    assert_eq!(frontends(&world), 1);
}

#[test]
fn surplus_slots_go_with_a_prune() {
    let mut world = with(service("web"), vec![web()], &["10.0.0.1"]);
    let key = Key::Service(web().address, 7);
    let slot = world.plane.maps().get(&Key::Service(web().address, 1)).unwrap();
    world.plane.maps_mut().update(key, slot).unwrap();
    world.reconciler.prune_now(world.now);
    world.steps();
    assert_eq!(world.plane.maps().get(&key), None);
}

#[test]
fn faults_come_as_often_as_asked_and_from_writes_only() {
    let mut maps = FaultyMaps::new(MemoryMaps::new(Sizes::all(1)), 100, 7);
    let (key, value) = (Key::Match(1, 1), Value::There);
    let failed = (0..10_000).filter(|_| maps.update(key, value.clone()).is_err()).count();
    assert!((800..1200).contains(&failed), "{failed}");
    assert_eq!(maps.failed(), failed as u64);
    assert_eq!(maps.get(&key), Some(Value::There));
    assert_eq!(maps.keys(Map::Affinity), [key]);
    maps.per_mille = 0;
    let full = Failure::Full(Map::Affinity, 1);
    assert_eq!(maps.update(Key::Match(1, 2), value.clone()), Err(full));
    assert!(maps.update(Key::Backend(1), value).is_err(), "no such value in that map");
}
