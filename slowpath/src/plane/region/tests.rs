//! Tests that apply frontends one by one to a region in memory.

use super::*;
use std::time::{Duration, SystemTime};

use config::services::{Algorithm, BackendTunnel, Mode, NatPolicy, TrafficPolicy, TunnelKind};
use state::address::{Address, Endpoint};
use state::backend::{Instance, State};
use state::dump::{TextFormat, text};
use state::frontend::{Frontend, Kind};
use state::name::{Name, Source};
use state::object::FrontendSpec;
use state::service::Service;
use tables::flow::{Flows, Forward, GatewayLeg, NewFlow};
use tables::layout::Sizes;
use tables::record::{BackendState, NONE};

mod fields;
mod model;
mod policy;

pub(crate) const CONFIG: &str = r#"
    name = "weir-t"
    [tables]
    maglev_size = 251
    [fastpath]
    lcores = [1]
    [ingress]
    device = "net_null0"
    address = ["10.0.1.10/24", "fd00::10/64"]
    mtu = 9001
    [egress]
    device = "net_null1"
    address = ["10.0.2.10/24"]
    mtu = 9001
    [nat]
    addresses = ["10.0.2.10"]
    [[gateway]]
    name = "aws"
    kind = "aws"
    sources = ["10.0.1.0/24"]
"#;

fn config() -> Arc<Config> {
    Arc::new(config::from_toml(CONFIG).unwrap())
}

fn region(sizes: &Sizes) -> &'static Region {
    Box::leak(Box::new(Region::anonymous(sizes).unwrap()))
}

fn attach(region: &'static Region) -> RegionPlane<'static> {
    let mut plane = RegionPlane::attach(region, &config()).unwrap();
    let addresses = vec!["10.0.1.10".parse().unwrap(), "fd00::10".parse().unwrap()];
    plane.set_appliance(&Appliance { addresses, ..Appliance::default() });
    plane
}

/// Returns a plane over a new region of the smallest sizes.
fn small() -> RegionPlane<'static> {
    attach(region(&Sizes::SMALL))
}

fn service(name: &str) -> Service {
    Service::new(Name::new(name).unwrap(), Source::new("file"))
}

/// Parses the address of a frontend.
fn at(text: &str, protocol: u8) -> Address {
    let at: std::net::SocketAddr = text.parse().unwrap();
    Address::new(at.ip(), at.port(), protocol)
}

fn frontend(service: Service, spec: FrontendSpec) -> Arc<Frontend> {
    Arc::new(Frontend::new(spec, Arc::new(service), None, 1, SystemTime::UNIX_EPOCH))
}

/// Returns a backend at 10.0.2.`last`, port 80, any protocol.
fn instance(of: &Service, last: u8) -> Instance {
    let addr = IpAddr::from([10, 0, 2, last]);
    let endpoint = Endpoint { addr, port: 80, protocol: 0 };
    Instance::new(endpoint, of.name.clone(), Source::new("file"))
}

/// Returns a frontend with all of these backends, serving as the selection does: the active ones,
/// or the terminating ones if none is active.
fn chosen(service: Service, address: Address, mut instances: Vec<Instance>) -> DesiredFrontend {
    instances.sort_by_key(|instance| (instance.effective(), instance.endpoint));
    let active = instances.iter().filter(|i| i.effective() == State::Active).count();
    let terminating = instances.iter().filter(|i| i.effective() == State::Terminating).count();
    DesiredFrontend {
        frontend: frontend(service, FrontendSpec::new(address, Kind::LoadBalancer)),
        backends: instances.into_iter().map(Arc::new).collect(),
        serving: if active > 0 { active } else { terminating },
        note: None,
    }
}

/// Returns a TCP frontend with active backends at 10.0.2.x, port 80, by their last bytes.
fn web(name: &str, address: &str, backends: &[u8]) -> DesiredFrontend {
    let of = service(name);
    let instances = backends.iter().map(|last| instance(&of, *last)).collect();
    chosen(of, at(address, 6), instances)
}

/// Applies one batch; returns the errors and the generation.
fn apply_batch(plane: &mut RegionPlane<'_>, all: &[DesiredFrontend]) -> (Vec<String>, Generation) {
    plane.begin().unwrap();
    let errors = all.iter().filter_map(|desired| plane.update(desired).err());
    let errors = errors.map(|error| error.to_string()).collect();
    (errors, plane.commit().unwrap())
}

fn apply_all(plane: &mut RegionPlane<'_>, all: &[DesiredFrontend]) -> Generation {
    let (errors, generation) = apply_batch(plane, all);
    assert_eq!(errors, Vec::<String>::new());
    generation
}

fn delete(plane: &mut RegionPlane<'_>, addresses: &[&str]) -> Generation {
    plane.begin().unwrap();
    for address in addresses {
        plane.delete(&at(address, 6)).unwrap();
    }
    plane.commit().unwrap()
}

fn names(plane: &RegionPlane<'_>) -> Vec<String> {
    let set = plane.writer.committed();
    let mut names: Vec<_> = set.services().map(|(id, _)| set.service_name(id).unwrap()).collect();
    names.sort();
    names
}

/// Returns the last address bytes of the backends that new flows of a frontend are sent to.
fn selected_backends(plane: &RegionPlane<'_>, address: &str, protocol: u8) -> Vec<u8> {
    let (set, at) = (plane.writer.committed(), at(address, protocol));
    let found = set.frontend(0, &at.prefix.addr.into(), at.port, protocol);
    let Some(service) = found.map(|id| set.service(id).unwrap()) else { return Vec::new() };
    let hashes = (0..64).map(|n: u64| n << 58);
    let picked = hashes.filter_map(|hash| set.pick(service, hash));
    let mut picked: Vec<u8> = picked.map(|id| set.backend(id).unwrap().addr.octets()[15]).collect();
    picked.sort_unstable();
    picked.dedup();
    picked
}

fn dumped(plane: &RegionPlane<'_>) -> Vec<String> {
    text(&plane.dump(), &TextFormat::WITHOUT_IDENTIFIERS)
}

#[test]
fn frontends_with_the_same_selection_share_a_region_service() {
    let mut plane = small();
    let all = [
        web("shop/web", "203.0.113.1:80", &[1, 2]),
        web("shop/web", "203.0.113.1:443", &[1, 2]),
        chosen(
            service("shop/web"),
            at("203.0.113.1:80", 17),
            vec![instance(&service("shop/web"), 3)],
        ),
    ];
    apply_all(&mut plane, &all);
    assert_eq!(names(&plane), ["shop/web", "shop/web~udp4"]);
    assert_eq!(selected_backends(&plane, "203.0.113.1:443", 6), [1, 2]);
    assert_eq!(selected_backends(&plane, "203.0.113.1:80", 17), [3]);
    delete(&mut plane, &["203.0.113.1:80"]);
    assert_eq!(names(&plane), ["shop/web", "shop/web~udp4"]);
    assert_eq!(selected_backends(&plane, "203.0.113.1:80", 6), [0_u8; 0]);
    delete(&mut plane, &["203.0.113.1:443"]);
    assert_eq!(names(&plane), ["shop/web~udp4"], "removed with its last frontend");
}

#[test]
fn unchanged_frontends_write_nothing() {
    let mut plane = small();
    let all = [web("a", "203.0.113.1:80", &[1, 2]), web("b", "203.0.113.2:80", &[2])];
    let first = apply_all(&mut plane, &all);
    assert_eq!(apply_all(&mut plane, &all), first);
    assert_eq!(delete(&mut plane, &["203.0.113.9:80"]), first);
}

#[test]
fn a_rejected_frontend_keeps_its_state_and_the_others_are_applied() {
    // Capacity for one table of 251 slots, and for the members of all services.
    let mut plane = attach(region(&Sizes { slots: 300, ..Sizes::SMALL }));
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1])]);
    let full = [
        web("b", "203.0.113.2:80", &[1, 2]),
        web("a", "203.0.113.1:80", &[1, 3]),
        web("c", "203.0.113.3:80", &[4]),
    ];
    let (errors, generation) = apply_batch(&mut plane, &full);
    assert_eq!((errors.len(), generation), (1, 2));
    assert!(errors[0].contains("region.slots"), "{errors:?}");
    assert_eq!(selected_backends(&plane, "203.0.113.1:80", 6), [1]);
    assert_eq!(selected_backends(&plane, "203.0.113.2:80", 6), [1, 2]);
    assert_eq!(selected_backends(&plane, "203.0.113.3:80", 6), [4]);
    let (again, same) = apply_batch(&mut plane, &full);
    assert_eq!((again.len(), same), (1, generation), "a repeated error changes nothing");
}

#[test]
fn a_full_table_is_named_and_its_frontend_leaves_no_trace() {
    let mut plane = attach(region(&Sizes { next_hops: 64, ..Sizes::SMALL }));
    let last = |n: u32| u8::try_from(n).unwrap();
    let backends: Vec<u8> = (1..=30).map(last).collect();
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &backends)]);
    let before = dumped(&plane);
    // The capacity of 32 backends is reached with the second of these; the two written before the
    // third fails are rolled back.
    let (errors, generation) =
        apply_batch(&mut plane, &[web("b", "203.0.113.2:80", &[41, 42, 43])]);
    assert!(errors[0].contains("region.max_backends"), "{errors:?}");
    assert_eq!((generation, dumped(&plane)), (1, before.clone()));
    // A service that exists keeps its policy, its backends and its frontends.
    let mut changed = web("a", "203.0.113.1:80", &[1, 2, 51, 52, 53]);
    let mut policy = service("a");
    policy = policy.with(|spec| spec.mss = 1300).unwrap();
    changed.frontend = frontend(policy, changed.frontend.spec.clone());
    let (errors, generation) = apply_batch(&mut plane, &[changed]);
    assert!(errors[0].contains("region.max_backends"), "{errors:?}");
    assert_eq!((generation, dumped(&plane)), (1, before));
    assert_eq!(plane.writer.committed().services().next().unwrap().1.mss, 0);
    // Exceed the capacity for frontends.
    let more = |n: u32| web("a", &format!("203.0.113.1:{}", 100 + n), &backends);
    let (errors, _) = apply_batch(&mut plane, &(0..64).map(more).collect::<Vec<_>>());
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("region.max_frontends"), "{errors:?}");
}

#[test]
fn a_failed_commit_changes_nothing() {
    let mut plane = small();
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1, 2])]);
    let before = dumped(&plane);
    plane.begin().unwrap();
    // More tunnels than the region's capacity of 8.
    for vni in 1..=15 {
        let mut of = service(&format!("t{vni}"));
        of = of
            .with(|spec| {
                spec.mode = Mode::Tunnel(BackendTunnel {
                    kind: TunnelKind::Vxlan,
                    port: 4789,
                    vni,
                    outer_checksum: false,
                    dont_fragment: true,
                })
            })
            .unwrap();
        let to = Instance {
            endpoint: Endpoint { port: 0, ..instance(&of, 9).endpoint },
            ..instance(&of, 9)
        };
        let address = Address { port: 80 + vni as u16, ..at("203.0.113.2:80", 6) };
        let (name, instances) = (format!("t{vni}"), vec![to]);
        plane.update(&chosen(of, address, instances)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let error = plane.commit().unwrap_err().to_string();
    assert!(error.contains("tunnels"), "{error}");
    assert_eq!((dumped(&plane), plane.region.generation()), (before, 1));
    assert_eq!(apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1])]), 2);
}

#[test]
fn a_frontend_may_have_backends_of_the_other_family() {
    let mut plane = small();
    let of = service("a").with(|spec| spec.nat_policy = NatPolicy::Nat64).unwrap();
    let instances = vec![instance(&of, 1), instance(&of, 2)];
    apply_all(&mut plane, &[chosen(of, at("[2001:db8::1]:80", 6), instances)]);
    assert_eq!(names(&plane), ["a~tcp6"]);
    let set = plane.writer.committed();
    let frontend = Addr::from("2001:db8::1".parse::<IpAddr>().unwrap());
    assert!(set.frontend(0, &frontend, 80, 6).is_some());
    let nat: Vec<_> = set.backends().map(|(_, backend)| backend.nat_ports).collect();
    assert!(nat.len() == 2 && !nat.contains(&NONE), "{nat:?}");
}

#[test]
fn unreachable_frontends_are_tracked_and_not_written() {
    let mut plane = small();
    let inner =
        chosen(service("a"), at("203.0.113.1:80", 6).internal(), vec![instance(&service("a"), 1)]);
    let mut cluster = web("b", "10.96.0.1:80", &[2]);
    let spec = FrontendSpec { kind: Kind::ClusterIp, ..cluster.frontend.spec.clone() };
    cluster.frontend = frontend(service("b"), spec);
    apply_all(&mut plane, &[inner, cluster, web("c", "203.0.113.2:80", &[2])]);
    assert_eq!(names(&plane), ["c"]);
    assert_eq!(plane.writer.committed().backends().count(), 1);
    let dump = dumped(&plane);
    assert!(dump.contains(&"BE: ADDR=10.0.2.1:80/* STATE=active".to_owned()), "{dump:#?}");
    let slots = dump.iter().filter(|line| line.contains("SLOT=1")).count();
    assert_eq!(slots, 3, "{dump:#?}");
    plane.begin().unwrap();
    plane.delete(&at("10.96.0.1:80", 6)).unwrap();
    let is_desired =
        |address: &Address| address.port == 80 && *address != at("203.0.113.1:80", 6).internal();
    assert_eq!(plane.prune(&is_desired, usize::MAX), Ok(true));
    plane.commit().unwrap();
    assert_eq!(dumped(&plane).iter().filter(|line| line.contains("SLOT=0")).count(), 1);
}

#[test]
fn a_node_port_is_served_on_the_own_addresses_of_its_family() {
    let mut plane = small();
    let mut desired = web("a", "0.0.0.0:30080", &[1]);
    let spec = FrontendSpec { kind: Kind::NodePort, ..desired.frontend.spec.clone() };
    desired.frontend = frontend(service("a"), spec);
    let first = apply_all(&mut plane, std::slice::from_ref(&desired));
    assert_eq!(selected_backends(&plane, "10.0.1.10:30080", 6), [1]);
    assert_eq!(plane.writer.committed().frontends().count(), 1);
    assert_eq!(apply_all(&mut plane, std::slice::from_ref(&desired)), first);
    let frontends = |plane: &RegionPlane<'_>| {
        dumped(plane).into_iter().filter(|line| line.contains("SLOT=0")).collect::<Vec<_>>()
    };
    assert_eq!(frontends(&plane).len(), 2, "the wildcard and its copy: {:?}", frontends(&plane));
    // Another service takes that address and port, until it is removed.
    apply_all(&mut plane, &[web("b", "10.0.1.10:30080", &[2])]);
    apply_all(&mut plane, std::slice::from_ref(&desired));
    assert_eq!(selected_backends(&plane, "10.0.1.10:30080", 6), [2]);
    delete(&mut plane, &["10.0.1.10:30080"]);
    assert_eq!(selected_backends(&plane, "10.0.1.10:30080", 6), [1]);
    // If the appliance's addresses change, the copy at the old one is unused.
    let addresses = vec!["10.0.1.11".parse().unwrap()];
    plane.set_appliance(&Appliance { addresses, ..Appliance::default() });
    plane.begin().unwrap();
    plane.update(&desired).unwrap();
    plane.prune(&|_| true, usize::MAX).unwrap();
    plane.commit().unwrap();
    assert_eq!(selected_backends(&plane, "10.0.1.10:30080", 6), [0_u8; 0]);
    assert_eq!(selected_backends(&plane, "10.0.1.11:30080", 6), [1]);
    delete(&mut plane, &["0.0.0.0:30080"]);
    assert_eq!(names(&plane), [""; 0]);
}

#[test]
fn a_restart_finds_records_by_name_and_prunes_only_on_request() {
    let region = region(&Sizes::SMALL);
    let mut plane = attach(region);
    let mut local = service("b");
    local = local.with(|spec| spec.external_policy = TrafficPolicy::Local).unwrap();
    let long = "x".repeat(60) + "/" + &"y".repeat(59);
    let mut long_udp =
        chosen(service(&long), at("203.0.113.4:80", 17), vec![instance(&service(&long), 3)]);
    long_udp.serving = 1;
    let all = [
        web("a", "203.0.113.1:80", &[1, 2]),
        chosen(local, at("203.0.113.2:80", 6), vec![instance(&service("b"), 1)]),
        web(&long, "203.0.113.3:80", &[2]),
        long_udp,
        web("gone", "203.0.113.9:80", &[9]),
    ];
    let generation = apply_all(&mut plane, &all);
    let (before, found) = (text(&plane.dump(), &TextFormat::default()), names(&plane));
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|name| name.len() <= 120), "{found:?}");
    drop(plane);
    let mut plane = attach(region);
    assert_eq!(text(&plane.dump(), &TextFormat::default()), before);
    assert_eq!(apply_all(&mut plane, &all[..4]), generation, "nothing changed");
    assert_eq!(text(&plane.dump(), &TextFormat::default()), before);
    plane.begin().unwrap();
    plane.prune(&|address| *address != at("203.0.113.9:80", 6), usize::MAX).unwrap();
    assert_eq!(plane.commit().unwrap(), generation + 1);
    assert_eq!(names(&plane).len(), 4);
    let drained = plane.writer.committed().backends().find(|(_, b)| b.addr.octets()[15] == 9);
    assert_eq!(drained.unwrap().1.state, BackendState::Terminating as u8);
}

#[test]
fn quarantined_backends_are_reported_after_a_restart() {
    let region = region(&Sizes::SMALL);
    let mut plane = attach(region);
    let mut failed = instance(&service("a"), 2);
    failed.health.unhealthy = true;
    let backends = vec![instance(&service("a"), 1), failed.clone()];
    apply_all(&mut plane, &[chosen(service("a"), at("203.0.113.1:80", 6), backends)]);
    assert_eq!(plane.quarantined(), []);
    drop(plane);
    let plane = attach(region);
    assert_eq!(plane.quarantined(), [(at("203.0.113.1:80", 6), failed.endpoint)]);
}

#[test]
fn after_a_restart_services_keep_their_own_requirements() {
    let region = region(&Sizes::SMALL);
    let mut plane = attach(region);
    let mut encapsulated = service("t");
    encapsulated = encapsulated
        .with(|spec| {
            spec.mode = Mode::Dsr(BackendTunnel {
                kind: TunnelKind::Ipip,
                port: 0,
                vni: 0,
                outer_checksum: false,
                dont_fragment: true,
            })
        })
        .unwrap();
    let mut terminating = instance(&encapsulated, 1);
    terminating.state = State::Terminating;
    let dsr = chosen(encapsulated, at("203.0.113.2:80", 6), vec![terminating]);
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1]), dsr.clone()]);
    let record = |plane: &RegionPlane<'_>| *plane.writer.committed().backends().next().unwrap().1;
    let before = record(&plane);
    assert_eq!((before.nat_ports == NONE, before.state), (false, 0));
    drop(plane);
    let mut plane = attach(region);
    let mut other = dsr.clone();
    let mut policy = dsr.frontend.service.as_ref().clone();
    policy = policy.with(|spec| spec.mss = 1200).unwrap();
    other.frontend = frontend(policy, dsr.frontend.spec.clone());
    apply_all(&mut plane, &[other]);
    assert_eq!(record(&plane), before, "the NAT service, not updated yet, still has its ports");
    delete(&mut plane, &["203.0.113.1:80"]);
    let after = record(&plane);
    assert_eq!((after.nat_ports, after.state), (NONE, BackendState::Terminating as u8));
}

#[test]
fn an_unreferenced_backend_keeps_its_flows_and_its_id() {
    let mut plane = small();
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1, 2]), web("b", "203.0.113.2:80", &[2])]);
    let set = plane.writer.committed();
    let (id, record) = set.backends().find(|(_, b)| b.addr.octets()[15] == 2).unwrap();
    let record = *record;
    let flows = Flows::new(plane.region).as_owner(0, 1);
    flows.recover();
    let client = "192.0.2.1".parse::<IpAddr>().unwrap().into();
    let (front, front_initiator) = packet::flow::FlowKey::new(1, 17, client, 4000, record.addr, 80);
    let forward = Forward { backend: id, proto: 17, mode: 1, ..Forward::default() };
    let flow = NewFlow {
        front,
        front_initiator,
        back: None,
        forward,
        gateway: GatewayLeg::default(),
        digest: 0,
        nat_map: NONE,
        idle_s: 0,
    };
    let hit = flows.insert(&flow, &[], 1).unwrap();
    let state = |plane: &RegionPlane<'_>| plane.writer.committed().backend(id).map(|b| b.state);
    apply_all(&mut plane, &[web("a", "203.0.113.1:80", &[1])]);
    assert_eq!(state(&plane), Some(0), "b still uses it");
    delete(&mut plane, &["203.0.113.2:80"]);
    assert_eq!(state(&plane), Some(BackendState::Terminating as u8));
    let mut now = Instant::now();
    for _ in 0..5 {
        now += Duration::from_secs(2);
        plane.reclaim(now, &|_, _| true);
    }
    assert_eq!(state(&plane), Some(BackendState::Terminating as u8));
    apply_all(&mut plane, &[web("c", "203.0.113.3:80", &[2])]);
    assert_eq!(plane.writer.committed().backend(id), Some(&record), "as it was");
    delete(&mut plane, &["203.0.113.3:80"]);
    assert!(flows.remove(&hit).is_some());
    now += Duration::from_secs(2);
    plane.reclaim(now, &|_, _| true);
    assert_eq!(state(&plane), None);
}

#[test]
fn a_dump_has_the_records_of_the_map_model() {
    let mut plane = small();
    let mut quarantined = instance(&service("a"), 3);
    quarantined.health.unhealthy = true;
    let backends = vec![instance(&service("a"), 1), instance(&service("a"), 2), quarantined];
    let desired = chosen(service("a"), at("203.0.113.1:80", 6), backends);
    apply_all(&mut plane, &[desired, web("b", "203.0.113.2:443", &[1])]);
    assert_eq!(
        text(&plane.dump(), &TextFormat::default()),
        [
            "BE: ID=0 ADDR=10.0.2.1:80/* STATE=active",
            "BE: ID=1 ADDR=10.0.2.2:80/* STATE=active",
            "BE: ID=2 ADDR=10.0.2.3:80/* STATE=active",
            "MAGLEV: ID=0 INNER=[0(126), 1(125)]",
            "MAGLEV: ID=1 INNER=[0(251)]",
            "REV: ID=0 ADDR=203.0.113.1:80",
            "REV: ID=1 ADDR=203.0.113.2:443",
            "SVC: ID=0 ADDR=203.0.113.1:80/TCP SLOT=0 LBALG=maglev AFFTimeout=0 COUNT=2 QCOUNT=1 \
             FLAGS=LoadBalancer",
            "SVC: ID=0 ADDR=203.0.113.1:80/TCP SLOT=1 BEID=0 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer",
            "SVC: ID=0 ADDR=203.0.113.1:80/TCP SLOT=2 BEID=1 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer",
            "SVC: ID=0 ADDR=203.0.113.1:80/TCP SLOT=3 BEID=2 COUNT=0 QCOUNT=0 \
             FLAGS=LoadBalancer+quarantined",
            "SVC: ID=1 ADDR=203.0.113.2:443/TCP SLOT=0 LBALG=maglev AFFTimeout=0 COUNT=1 QCOUNT=0 \
             FLAGS=LoadBalancer",
            "SVC: ID=1 ADDR=203.0.113.2:443/TCP SLOT=1 BEID=0 COUNT=0 QCOUNT=0 FLAGS=LoadBalancer",
        ]
    );
}
