//! Tests of the computation of probe targets from table rows.

use std::time::{Duration, SystemTime};

use config::services::{BackendTunnel, TunnelKind};
use state::address::Address;
use state::frontend::Kind;
use state::name::{Name, Source};
use state::object::{FrontendSpec, ServiceSpec};
use state::service::Service;
use state::writer::Writer;

use super::*;

fn probing() -> Probing {
    Probing {
        at_once: 8,
        sources: vec!["10.0.2.10".parse().unwrap()],
        ca_file: "/etc/ca.pem".into(),
        ca_folder: "/etc/ca".into(),
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        rise: 2,
        fall: 3,
        jitter_percent: 10,
        damping: 4,
    }
}

fn interface_entry(interface: &str) -> TunnelEntry {
    TunnelEntry::Interface(interface.into())
}

fn settings() -> ProbeSettings {
    let tunnel_entries = vec![interface_entry("weir0"), interface_entry("weir1")];
    ProbeSettings { probing: probing(), tunnel_entries }
}

/// Returns the plan of a service with these frontends and one backend.
fn plan_of(
    change: impl FnOnce(&mut ServiceSpec, &mut Instance),
    frontends: &[(&str, u16, u8)],
    settings: &ProbeSettings,
) -> Plan {
    let (name, source) = (Name::new("shop/web").unwrap(), Source::new("file"));
    let endpoint = Endpoint { addr: "10.0.2.11".parse().unwrap(), port: 8080, protocol: 6 };
    let mut instance = Instance::new(endpoint, name.clone(), source.clone());
    let probed = |spec: &mut ServiceSpec| {
        spec.health = Some(Arc::new(HealthCheck::new(ProbeKind::Http)));
        change(spec, &mut instance);
    };
    let service = Service::new(name.clone(), source.clone()).with(probed).unwrap();
    let specs = frontends.iter().map(|(addr, port, protocol)| {
        FrontendSpec::new(Address::new(addr.parse().unwrap(), *port, *protocol), Kind::LoadBalancer)
    });
    let writer = Writer::new();
    let mut transaction = writer.begin(SystemTime::UNIX_EPOCH);
    transaction.upsert_service_and_frontends(service, specs.collect()).unwrap();
    transaction.set_backends(&name, &source, vec![instance]);
    transaction.commit();
    plan(writer.tables().entry(&name).unwrap(), settings)
}

fn only(plan: &Plan) -> &Target {
    assert!(plan.unprobed.is_empty() && plan.desired.len() == 1, "{plan:?}");
    &plan.desired[0].0.target
}

const WEB: &[(&str, u16, u8)] = &[("203.0.113.1", 80, 6)];

fn set_geneve_tunnel(service: &mut ServiceSpec) {
    service.mode = Mode::Tunnel(BackendTunnel::new(TunnelKind::Geneve));
}

#[test]
fn target_is_the_backend_with_the_port_of_check_backend_or_frontend() {
    let plain = plan_of(|_, _| {}, WEB, &settings());
    let target = only(&plain);
    assert_eq!(target.to.to_string(), "10.0.2.11:8080");
    assert_eq!((target.from, target.tunnel_entry.clone()), (Some([10, 0, 2, 10].into()), None));
    let ProbeType::Http(http) = &*target.probe_type else { panic!("{:?}", target.probe_type) };
    assert_eq!((http.path.as_str(), http.host.as_str()), ("/", ""));
    assert_eq!(plain.desired[0].1, None, "no verdict yet");
    let ported = |s: &mut ServiceSpec, _: &mut Instance| {
        s.health = Some(Arc::new(HealthCheck { port: 9000, ..HealthCheck::new(ProbeKind::Tcp) }));
    };
    let ported = plan_of(ported, WEB, &settings());
    assert_eq!(only(&ported).to.port(), 9000);
    assert_eq!(*only(&ported).probe_type, ProbeType::Connection);
    let frontends = &[("203.0.113.1", 53, 17), ("203.0.113.1", 443, 6)];
    let without = plan_of(|_, i| i.endpoint.port = 0, frontends, &settings());
    assert_eq!(only(&without).to.port(), 443, "the TCP frontend comes before the UDP one");
    let portless = plan_of(|_, i| i.endpoint.port = 0, &[("203.0.113.1", 0, 0)], &settings());
    assert!(portless.unprobed[0].1.contains("write health.port"), "{portless:?}");
    let none = plan_of(|s, _| s.health = None, WEB, &settings());
    assert!(none.desired.is_empty() && none.unprobed.is_empty());
    // Backends are probed in every state, so that the verdict is known when they become active.
    let parked = plan_of(|_, i| i.state = state::backend::State::Maintenance, WEB, &settings());
    only(&parked);
}

#[test]
fn tls_settings_follow_host_server_name_and_ca_file() {
    let tls = |host: &str, server_name: &str, verify, ca_file: &str| {
        let plan = plan_of(
            |s, _| {
                s.health = Some(Arc::new(HealthCheck {
                    host: host.into(),
                    server_name: server_name.into(),
                    verify,
                    ca_file: ca_file.into(),
                    ..HealthCheck::new(ProbeKind::Https)
                }));
            },
            WEB,
            &settings(),
        );
        let tls = only(&plan).probe_type.tls().unwrap();
        (tls.name.clone(), tls.authorities.clone())
    };
    let own = Some(Authorities { file: "/etc/ca.pem".into(), folder: None });
    assert_eq!(tls("web.example:8443", "", true, ""), ("web.example".into(), own));
    assert_eq!(tls("[fd00::1]:8443", "", true, "").0, "fd00::1");
    assert_eq!(tls("[fd00::1]", "", true, "").0, "fd00::1");
    assert_eq!(tls("web.example", "other.example", true, "").0, "other.example");
    assert_eq!(tls("", "", false, ""), (String::new(), None));
    // A file that a service names must be in `health.ca_folder`.
    let named = Authorities { file: "/etc/ca/web.pem".into(), folder: Some("/etc/ca".into()) };
    assert_eq!(tls("", "", true, "/etc/ca/web.pem").1, Some(named));
}

#[test]
fn tunnel_probe_uses_frontend_address_and_reserved_source() {
    let probed = |s: &mut ServiceSpec, i: &mut Instance| {
        set_geneve_tunnel(s);
        (i.endpoint.port, i.probe) = (0, Some("198.18.0.1".parse().unwrap()));
    };
    let plan = plan_of(probed, &[("203.0.113.1", 53, 17), ("203.0.113.2", 80, 6)], &settings());
    let target = only(&plan);
    assert_eq!(target.to.to_string(), "203.0.113.2:80");
    assert_eq!(target.from, Some([198, 18, 0, 1].into()));
    assert_eq!(target.tunnel_entry, Some(interface_entry("weir1")), "the arm of the backend");
    // Without a reserved source address, the backend is probed directly.
    let direct = plan_of(|s, _| set_geneve_tunnel(s), WEB, &settings());
    assert_eq!(only(&direct).tunnel_entry, None);
    // A backend that replies directly to clients (DSR) is probed in the same way.
    let dsr = |s: &mut ServiceSpec, i: &mut Instance| {
        probed(s, i);
        s.mode = Mode::Dsr(BackendTunnel::new(TunnelKind::Geneve));
    };
    let plan = plan_of(dsr, WEB, &settings());
    assert_eq!(only(&plan).tunnel_entry, Some(interface_entry("weir1")));
    let other_family = plan_of(probed, &[("2001:db8::1", 80, 6)], &settings());
    assert!(other_family.unprobed[0].1.contains("198.18.0.1"), "{other_family:?}");
    let marked = ProbeSettings { tunnel_entries: vec![TunnelEntry::Mark(7)], ..settings() };
    let plan = plan_of(probed, WEB, &marked);
    assert_eq!(only(&plan).tunnel_entry, Some(TunnelEntry::Mark(7)), "the only arm");
    assert_eq!(only(&plan_of(|_, _| {}, WEB, &marked)).tunnel_entry, None);
}
