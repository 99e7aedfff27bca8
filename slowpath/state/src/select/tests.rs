//! Tests of the selection of backends, one for each rule.

use std::net::IpAddr;
use std::time::SystemTime;

use config::services::{BackendTunnel, TunnelKind};

use super::*;
use crate::address::{Address, Endpoint};
use crate::backend::{Health, Placement};
use crate::name::{Name, Source};
use crate::object::{FrontendSpec, ServiceSpec};
use crate::service::Service;
use crate::tables::Entry;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn instance(at: &str, port: u16) -> Instance {
    let endpoint = Endpoint { addr: at.parse().unwrap(), port, protocol: 6 };
    Instance::new(endpoint, name("web"), Source::new("file"))
}

fn placed(at: &str, node: &str, zone: &str, for_zones: &[&str]) -> Instance {
    let for_zones = for_zones.iter().map(|zone| Box::from(*zone)).collect();
    let placement = Placement { node: node.into(), zone: zone.into(), for_zones, cluster: 0 };
    Instance { placement: Some(Arc::new(placement)), ..instance(at, 80) }
}

fn in_state(at: &str, state: State) -> Instance {
    Instance { state, ..instance(at, 80) }
}

fn unhealthy(instance: Instance) -> Instance {
    Instance { health: Health { unhealthy: true, since: None }, ..instance }
}

/// Returns tables with these instances of the services `web` and `other`, sorted as by the writer.
fn tables(mut instances: Vec<Instance>) -> Tables {
    instances.sort_by_key(|instance| (instance.endpoint, instance.priority));
    let mut tables = Tables::default();
    for service in ["web", "other"].map(name) {
        let of: Vec<_> = instances.iter().filter(|i| i.service == service).cloned().collect();
        let instances = of.into_iter().map(Arc::new).collect();
        let entry = Entry { instances, ..Entry::default() };
        tables.entries.insert(service, Arc::new(entry));
    }
    tables
}

fn service(change: impl FnOnce(&mut ServiceSpec)) -> Service {
    Service::new(name("web"), Source::new("file")).with(change).unwrap()
}

fn frontend_at(address: Address, kind: Kind, service: Service) -> Arc<Frontend> {
    let (spec, now) = (FrontendSpec::new(address, kind), SystemTime::UNIX_EPOCH);
    Arc::new(Frontend::new(spec, Arc::new(service), None, 1, now))
}

fn frontend(kind: Kind, service: Service) -> Arc<Frontend> {
    frontend_at(Address::new("192.0.2.1".parse().unwrap(), 80, 6), kind, service)
}

fn web(kind: Kind) -> Arc<Frontend> {
    frontend(kind, service(|_| ()))
}

fn appliance() -> Appliance {
    Appliance {
        zone: "a".into(),
        local: ["n1", "zone-x"].map(Box::from).into(),
        ..Appliance::default()
    }
}

fn addrs(desired: &DesiredFrontend) -> Vec<String> {
    desired.backends.iter().map(|backend| backend.endpoint.addr.to_string()).collect()
}

/// Checks the addresses of the selected backends, in order, and how many of them get new flows.
#[track_caller]
fn check(frontend: &Arc<Frontend>, instances: Vec<Instance>, expected: &[&str], serving: usize) {
    let desired = select_backends(&tables(instances), frontend, &appliance());
    assert_eq!(addrs(&desired), expected);
    assert_eq!(desired.serving, serving);
    assert_eq!(desired.serving().len(), serving);
}

#[test]
fn protocol_zero_on_either_side_matches_any() {
    let udp = |at: &str| {
        let mut udp = instance(at, 80);
        udp.endpoint.protocol = 17;
        udp
    };
    let any = |at: &str| {
        let mut any = instance(at, 80);
        any.endpoint.protocol = 0;
        any
    };
    let all = || vec![instance("10.0.0.1", 80), udp("10.0.0.2"), any("10.0.0.3")];
    check(&web(Kind::LoadBalancer), all(), &["10.0.0.1", "10.0.0.3"], 2);
    let to_any = Address::new("192.0.2.1".parse().unwrap(), 0, 0);
    let to_any = frontend_at(to_any, Kind::LoadBalancer, service(|_| ()));
    check(&to_any, all(), &["10.0.0.1", "10.0.0.2", "10.0.0.3"], 3);
    let none =
        select_backends(&tables(vec![udp("10.0.0.2")]), &web(Kind::LoadBalancer), &appliance());
    assert_eq!(none.note, Some("no backend has the frontend's protocol"));
}

#[test]
fn nat_policy_selects_backends_of_the_other_family() {
    let both = || vec![instance("10.0.0.1", 80), instance("fd00::1", 80)];
    let at = |addr: &str, nat_policy| {
        let addr: IpAddr = addr.parse().unwrap();
        let service = service(|service| service.nat_policy = nat_policy);
        frontend_at(Address::new(addr, 80, 6), Kind::LoadBalancer, service)
    };
    check(&at("192.0.2.1", NatPolicy::None), both(), &["10.0.0.1"], 1);
    check(&at("2001:db8::1", NatPolicy::None), both(), &["fd00::1"], 1);
    check(&at("192.0.2.1", NatPolicy::Nat46), both(), &["fd00::1"], 1);
    check(&at("2001:db8::1", NatPolicy::Nat46), both(), &["fd00::1"], 1);
    check(&at("2001:db8::1", NatPolicy::Nat64), both(), &["10.0.0.1"], 1);
    check(&at("192.0.2.1", NatPolicy::Nat64), both(), &["10.0.0.1"], 1);
    let six = at("2001:db8::1", NatPolicy::None);
    let desired = select_backends(&tables(vec![instance("10.0.0.1", 80)]), &six, &appliance());
    assert!(desired.note.unwrap().starts_with("no backend has the frontend's address family"));
}

#[test]
fn traffic_policies_are_applied_in_selection() {
    let all = || {
        vec![
            placed("10.0.0.1", "n1", "b", &[]),
            placed("10.0.0.2", "n2", "zone-x", &[]),
            placed("10.0.0.3", "n3", "b", &[]),
            placed("10.0.0.4", "", "b", &[]),
            instance("10.0.0.5", 80),
        ]
    };
    let every = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"];
    let near = ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5"];
    let with = |kind, traffic_scope, external, internal| {
        let service = service(|service| {
            (service.external_policy, service.internal_policy) = (external, internal);
        });
        let address = Address::new("192.0.2.1".parse().unwrap(), 80, 6);
        frontend_at(Address { traffic_scope, ..address }, kind, service)
    };
    use TrafficPolicy::{Cluster, Local};
    use TrafficScope::{External, Internal};
    for kind in [Kind::NodePort, Kind::LoadBalancer, Kind::ExternalIps] {
        check(&with(kind, External, Local, Cluster), all(), &near, 4);
        check(&with(kind, External, Cluster, Local), all(), &every, 5);
        check(&with(kind, Internal, Cluster, Local), all(), &near, 4);
        check(&with(kind, Internal, Local, Cluster), all(), &every, 5);
    }
    for traffic_scope in [External, Internal] {
        check(&with(Kind::ClusterIp, traffic_scope, Cluster, Local), all(), &near, 4);
        check(&with(Kind::ClusterIp, traffic_scope, Local, Cluster), all(), &every, 5);
        check(&with(Kind::HostPort, traffic_scope, Local, Local), all(), &every, 5);
    }
}

#[test]
fn unsatisfied_local_policy_is_noted() {
    let local = service(|service| service.external_policy = TrafficPolicy::Local);
    let far = tables(vec![placed("10.0.0.3", "n3", "b", &[])]);
    let desired = select_backends(&far, &frontend(Kind::LoadBalancer, local), &appliance());
    assert_eq!((addrs(&desired), desired.serving), (vec![], 0));
    assert!(desired.note.unwrap().starts_with("no local backend"), "{:?}", desired.note);
    let local = service(|service| service.external_policy = TrafficPolicy::Local);
    let none = select_backends(&tables(vec![]), &frontend(Kind::LoadBalancer, local), &appliance());
    assert_eq!(none.note, None, "the policy is not reported for a service without backends");
}

#[test]
fn port_name_selects_backends_that_list_it_or_none() {
    let named = |at: &str, names: &[&str]| Instance {
        port_names: names.iter().map(|name| Arc::from(*name)).collect(),
        ..instance(at, 80)
    };
    let all = vec![
        named("10.0.0.1", &["http"]),
        named("10.0.0.2", &["metrics", "http"]),
        named("10.0.0.3", &["metrics"]),
        named("10.0.0.4", &[]),
    ];
    let of = |port_name: &str| {
        let spec =
            FrontendSpec { port_name: Some(port_name.into()), ..web(Kind::ClusterIp).spec.clone() };
        let now = SystemTime::UNIX_EPOCH;
        Arc::new(Frontend::new(spec, Arc::new(service(|_| ())), None, 1, now))
    };
    check(&of("http"), all.clone(), &["10.0.0.1", "10.0.0.2", "10.0.0.4"], 3);
    check(&web(Kind::ClusterIp), all.clone(), &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"], 4);
    let desired = select_backends(&tables(all[..3].to_vec()), &of("admin"), &appliance());
    assert_eq!(
        (addrs(&desired), desired.note),
        (vec![], Some("no backend serves the frontend's port name"))
    );
}

#[test]
fn preferred_node_or_zone_is_used_if_it_serves() {
    let prefers = |distribution| {
        frontend(Kind::ClusterIp, service(|service| service.distribution = distribution))
    };
    let (zone, node) = (prefers(Distribution::SameZone), prefers(Distribution::SameNode));
    let own = placed("10.0.0.1", "n1", "b", &[]);
    let near = placed("10.0.0.2", "n2", "a", &[]);
    let hinted = placed("10.0.0.3", "n3", "b", &["a", "c"]);
    let for_c = placed("10.0.0.4", "n4", "a", &["c"]);
    let far = placed("10.0.0.5", "n5", "c", &[]);
    let all = || vec![own.clone(), near.clone(), hinted.clone(), for_c.clone(), far.clone()];
    // Some backends have no hint: hints are not used, and each backend is in the zone where it
    // runs.
    check(&zone, all(), &["10.0.0.2", "10.0.0.4"], 2);
    check(&node, all(), &["10.0.0.1"], 1);
    check(&node, all()[1..].to_vec(), &["10.0.0.2", "10.0.0.4"], 2);
    // All serving backends have a hint, so hints are used. Backends that do not serve need no hint.
    let terminating = Instance { state: State::Terminating, ..far.clone() };
    let both = || vec![hinted.clone(), for_c.clone(), terminating.clone()];
    check(&zone, both(), &["10.0.0.3"], 1);
    check(&node, both(), &["10.0.0.3"], 1);
    let of_b = placed("10.0.0.6", "n6", "a", &["b"]);
    check(&zone, vec![for_c.clone(), of_b], &["10.0.0.4", "10.0.0.6"], 2);
    check(
        &prefers(Distribution::Any),
        all()[2..].to_vec(),
        &["10.0.0.3", "10.0.0.4", "10.0.0.5"],
        3,
    );
    // No backend in the zone serves, so there is no preference.
    let failed = vec![unhealthy(near.clone()), far.clone()];
    check(&zone, failed, &["10.0.0.5", "10.0.0.2"], 1);
    let terminating = Instance { state: State::Terminating, ..near.clone() };
    check(&zone, vec![terminating.clone(), far.clone()], &["10.0.0.5", "10.0.0.2"], 1);
    let far_terminating = Instance { state: State::Terminating, ..far.clone() };
    check(&zone, vec![terminating, far_terminating], &["10.0.0.2"], 1);
    // Without a zone, or with preferences disabled, there is no preference.
    for off in [
        Appliance { zone: Box::default(), ..appliance() },
        Appliance { zone_aware: false, ..appliance() },
    ] {
        assert_eq!(select_backends(&tables(all()), &zone, &off).backends.len(), 5);
    }
}

#[test]
fn a_redirected_frontend_has_the_other_services_backends_and_no_preference() {
    let other =
        |at: &str, zone: &str| Instance { service: name("other"), ..placed(at, "n7", zone, &[]) };
    let prefers = service(|service| service.distribution = Distribution::SameZone);
    let web = frontend(Kind::ClusterIp, prefers);
    let to = Some(name("other"));
    let now = SystemTime::UNIX_EPOCH;
    let redirected =
        Arc::new(Frontend::new(web.spec.clone(), Arc::clone(&web.service), to, 2, now));
    let all =
        vec![placed("10.0.0.1", "n1", "a", &[]), other("10.1.0.1", "a"), other("10.1.0.2", "c")];
    check(&redirected, all.clone(), &["10.1.0.1", "10.1.0.2"], 2);
    let desired = select_backends(&tables(all[..1].to_vec()), &redirected, &appliance());
    assert_eq!(desired.note, Some("the service that it is redirected to has no backends"));
}

#[test]
fn slots_are_ordered_by_health_state_and_endpoint() {
    let all = vec![
        in_state("10.0.0.8", State::Maintenance),
        in_state("10.0.0.1", State::Quarantined),
        unhealthy(in_state("10.0.0.2", State::Active)),
        in_state("10.0.0.3", State::TerminatingNotServing),
        in_state("10.0.0.4", State::Terminating),
        instance("10.0.0.6", 81),
        instance("10.0.0.6", 80),
        in_state("10.0.0.5", State::Active),
        Instance { weight: 0, ..instance("10.0.0.7", 80) },
    ];
    let frontend = web(Kind::LoadBalancer);
    let desired = select_backends(&tables(all), &frontend, &appliance());
    let slots: Vec<_> = desired.backends.iter().map(|b| b.endpoint.to_string()).collect();
    let expected = [
        "10.0.0.5:80/TCP",
        "10.0.0.6:80/TCP",
        "10.0.0.6:81/TCP",
        "10.0.0.4:80/TCP",
        "10.0.0.3:80/TCP",
        "10.0.0.1:80/TCP",
        "10.0.0.2:80/TCP",
    ];
    assert_eq!(slots, expected);
    assert_eq!((desired.serving, desired.note), (3, None));
}

#[test]
fn terminating_backends_serve_when_none_is_active() {
    let terminating = in_state("10.0.0.4", State::Terminating);
    let not_serving = in_state("10.0.0.3", State::TerminatingNotServing);
    let failed = unhealthy(instance("10.0.0.2", 80));
    let kind = Kind::LoadBalancer;
    let all = vec![terminating.clone(), not_serving.clone(), failed.clone()];
    check(&web(kind), all, &["10.0.0.4", "10.0.0.3", "10.0.0.2"], 1);
    let none_serves = vec![unhealthy(terminating), not_serving, failed];
    check(&web(kind), none_serves, &["10.0.0.3", "10.0.0.2", "10.0.0.4"], 0);
}

#[test]
fn no_serving_backend_is_noted() {
    let result =
        |instance| select_backends(&tables(vec![instance]), &web(Kind::LoadBalancer), &appliance());
    let failed = result(unhealthy(instance("10.0.0.2", 80)));
    assert_eq!((failed.backends.len(), failed.serving), (1, 0));
    assert_eq!(failed.note, Some("no backend is healthy and serving"));
    let maintenance = result(in_state("10.0.0.2", State::Maintenance));
    assert_eq!((maintenance.backends.len(), maintenance.serving), (0, 0));
    assert_eq!(maintenance.note, Some("all matching backends are in maintenance or have weight 0"));
    let not_serving = result(in_state("10.0.0.2", State::TerminatingNotServing));
    assert_eq!((not_serving.backends.len(), not_serving.serving), (1, 0));
}

#[test]
fn shadowed_instances_are_not_selected() {
    let from_source = |source: &str, priority, state| Instance {
        source: Source::new(source),
        priority,
        ..in_state("10.0.0.1", state)
    };
    let two = vec![
        from_source("kubernetes", 1, State::Active),
        from_source("api", 0, State::Quarantined),
    ];
    let desired = select_backends(&tables(two), &web(Kind::LoadBalancer), &appliance());
    assert_eq!((desired.backends.len(), desired.serving), (1, 0));
    assert_eq!(desired.backends[0].source, Source::new("api"));
}

#[test]
fn a_tunnel_carries_either_family() {
    let tunnel = BackendTunnel {
        kind: TunnelKind::Ipip,
        port: 0,
        vni: 0,
        outer_checksum: false,
        dont_fragment: true,
    };
    let tables = tables(vec![instance("10.0.0.1", 80), instance("fd00::1", 80)]);
    let of = |mode| {
        let frontend = frontend(Kind::LoadBalancer, service(|service| service.mode = mode));
        addrs(&select_backends(&tables, &frontend, &appliance()))
    };
    assert_eq!(of(Mode::Tunnel(tunnel)), ["10.0.0.1", "fd00::1"]);
    assert_eq!(of(Mode::Dsr(tunnel)), ["10.0.0.1", "fd00::1"]);
    assert_eq!(of(Mode::Nat), ["10.0.0.1"]);
}
