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

fn by(interface: &str) -> Entrance {
    Entrance::Interface(interface.into())
}

fn place() -> Place {
    Place { probing: probing(), entrances: vec![by("weir0"), by("weir1")] }
}

/// Returns the plan of a service with these frontends and one backend.
fn planned(
    change: impl FnOnce(&mut ServiceSpec, &mut Instance),
    frontends: &[(&str, u16, u8)],
    place: &Place,
) -> Plan {
    let (name, source) = (Name::new("shop/web").unwrap(), Source::new("file"));
    let endpoint = Endpoint { addr: "10.0.2.11".parse().unwrap(), port: 8080, protocol: 6 };
    let mut instance = Instance::new(endpoint, name.clone(), source.clone());
    let probed = |spec: &mut ServiceSpec| {
        spec.health = Some(Arc::new(HealthCheck::new(ProbeKind::Http)));
        change(spec, &mut instance);
    };
    let service = Service::new(name.clone(), source.clone()).with(probed).unwrap();
    let said = frontends.iter().map(|(addr, port, protocol)| {
        FrontendSpec::new(Address::new(addr.parse().unwrap(), *port, *protocol), Kind::LoadBalancer)
    });
    let writer = Writer::new();
    let mut transaction = writer.begin(SystemTime::UNIX_EPOCH);
    transaction.upsert_service_and_frontends(service, said.collect()).unwrap();
    transaction.set_backends(&name, &source, vec![instance]);
    transaction.commit();
    plan(writer.tables().entry(&name).unwrap(), place)
}

fn only(plan: &Plan) -> &Target {
    assert!(plan.unprobed.is_empty() && plan.wanted.len() == 1, "{plan:?}");
    &plan.wanted[0].0.target
}

const WEB: &[(&str, u16, u8)] = &[("203.0.113.1", 80, 6)];

fn by_geneve(service: &mut ServiceSpec) {
    service.mode = Mode::Tunnel(BackendTunnel::new(TunnelKind::Geneve));
}

#[test]
fn a_backend_is_asked_where_it_is_unless_the_check_says_otherwise() {
    let plain = planned(|_, _| {}, WEB, &place());
    let target = only(&plain);
    assert_eq!(target.to.to_string(), "10.0.2.11:8080");
    assert_eq!((target.from, target.entrance.clone()), (Some([10, 0, 2, 10].into()), None));
    let Ask::Http(http) = &*target.ask else { panic!("{:?}", target.ask) };
    assert_eq!((http.path.as_str(), http.host.as_str()), ("/", ""));
    assert_eq!(plain.wanted[0].1, None, "nobody has judged yet");
    let ported = |s: &mut ServiceSpec, _: &mut Instance| {
        s.health = Some(Arc::new(HealthCheck { port: 9000, ..HealthCheck::new(ProbeKind::Tcp) }));
    };
    let ported = planned(ported, WEB, &place());
    assert_eq!(only(&ported).to.port(), 9000);
    assert_eq!(*only(&ported).ask, Ask::Connection);
    let frontends = &[("203.0.113.1", 53, 17), ("203.0.113.1", 443, 6)];
    let without = planned(|_, i| i.endpoint.port = 0, frontends, &place());
    assert_eq!(only(&without).to.port(), 443, "TCP's frontend before UDP's");
    let nowhere = planned(|_, i| i.endpoint.port = 0, &[("203.0.113.1", 0, 0)], &place());
    assert!(nowhere.unprobed[0].1.contains("write health.port"), "{nowhere:?}");
    let none = planned(|s, _| s.health = None, WEB, &place());
    assert!(none.wanted.is_empty() && none.unprobed.is_empty());
    // Backends are probed in every state, so that the verdict is known when they become active.
    let away = planned(|_, i| i.state = state::backend::State::Maintenance, WEB, &place());
    only(&away);
}

#[test]
fn a_name_is_required_of_certificates_as_the_host_says() {
    let tls = |host: &str, server_name: &str, verify, ca_file: &str| {
        let plan = planned(
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
            &place(),
        );
        let tls = only(&plan).ask.tls().unwrap();
        (tls.name.clone(), tls.authorities.clone())
    };
    let own = Some(Authorities { file: "/etc/ca.pem".into(), folder: None });
    assert_eq!(tls("web.example:8443", "", true, ""), ("web.example".into(), own));
    assert_eq!(tls("[fd00::1]:8443", "", true, "").0, "fd00::1");
    assert_eq!(tls("[fd00::1]", "", true, "").0, "fd00::1");
    assert_eq!(tls("web.example", "other.example", true, "").0, "other.example");
    assert_eq!(tls("", "", false, ""), (String::new(), None));
    // A file named by a service is only looked up in the directory.
    let named = Authorities { file: "/etc/ca/web.pem".into(), folder: Some("/etc/ca".into()) };
    assert_eq!(tls("", "", true, "/etc/ca/web.pem").1, Some(named));
}

#[test]
fn through_the_tunnel_it_is_asked_under_a_frontends_address_from_its_reserved_source() {
    let probed = |s: &mut ServiceSpec, i: &mut Instance| {
        by_geneve(s);
        (i.endpoint.port, i.probe) = (0, Some("198.18.0.1".parse().unwrap()));
    };
    let plan = planned(probed, &[("203.0.113.1", 53, 17), ("203.0.113.2", 80, 6)], &place());
    let target = only(&plan);
    assert_eq!(target.to.to_string(), "203.0.113.2:80");
    assert_eq!(target.from, Some([198, 18, 0, 1].into()));
    assert_eq!(target.entrance, Some(by("weir1")), "the arm of the backend");
    // Without a reserved source address, the backend is probed directly.
    let direct = planned(|s, _| by_geneve(s), WEB, &place());
    assert_eq!(only(&direct).entrance, None);
    // A backend that replies directly is probed in the same way; its replies arrive without a
    // tunnel.
    let plain = |s: &mut ServiceSpec, i: &mut Instance| {
        probed(s, i);
        s.mode = Mode::Dsr(BackendTunnel::new(TunnelKind::Geneve));
    };
    assert_eq!(only(&planned(plain, WEB, &place())).entrance, Some(by("weir1")));
    let chain = planned(probed, &[("2001:db8::1", 80, 6)], &place());
    assert!(chain.unprobed[0].1.contains("198.18.0.1"), "{chain:?}");
    let marked = Place { entrances: vec![Entrance::Mark(7)], ..place() };
    let plan = planned(probed, WEB, &marked);
    assert_eq!(only(&plan).entrance, Some(Entrance::Mark(7)), "of the one arm that there is");
    assert_eq!(only(&planned(|_, _| {}, WEB, &marked)).entrance, None);
}
