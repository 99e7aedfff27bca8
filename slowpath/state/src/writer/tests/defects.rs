//! Regression tests for defects that other implementations of such tables had.

use super::*;

#[test]
fn health_change_makes_the_frontend_pending() {
    let writer = web();
    let before = row(&writer, 1);
    before.set_status(Progress::Done, None, now(1));
    assert_eq!(desired(&writer, 1).serving, 2);
    write(&writer, 2, |t| t.update_backend_health(&name("web"), &endpoint(1), false).unwrap());
    let after = row(&writer, 1);
    assert_eq!(after.status().progress, Progress::Pending);
    assert_eq!(writer.changes_since(1).touched.unwrap()[0].frontends, [address(1)]);
    let desired = desired(&writer, 1);
    assert_eq!(desired.serving().iter().map(|b| b.endpoint).collect::<Vec<_>>(), [endpoint(2)]);
    assert_eq!(desired.backends.len(), 2, "the backend keeps its flows");
}

#[test]
fn health_verdict_applies_to_one_service() {
    let writer = web();
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(2)]).unwrap();
        t.set_backends(&name("shop"), &source("file"), vec![instance(1)]);
        t.update_backend_health(&name("web"), &endpoint(1), false).unwrap();
    });
    assert_eq!((desired(&writer, 1).serving, desired(&writer, 2).serving), (1, 1));
    let before = row(&writer, 2);
    write(&writer, 3, |t| t.update_backend_health(&name("web"), &endpoint(1), true).unwrap());
    assert!(Arc::ptr_eq(&before, &row(&writer, 2)));
}

#[test]
fn good_verdict_does_not_override_source_state() {
    use BackendState::{Maintenance, Quarantined, Terminating, TerminatingNotServing};
    let writer = web();
    let effective = |state, healthy| {
        write(&writer, 2, |t| {
            let instances = vec![Instance { state, ..instance(1) }];
            t.set_backends(&name("web"), &source("file"), instances);
            t.update_backend_health(&name("web"), &endpoint(1), healthy).unwrap();
        });
        let tables = writer.tables();
        tables.instances_at(&endpoint(1)).next().unwrap().effective()
    };
    for state in [Terminating, TerminatingNotServing, Quarantined, Maintenance] {
        assert_eq!(effective(state, true), state);
    }
    assert_eq!(effective(Terminating, false), Quarantined);
    assert_eq!(effective(TerminatingNotServing, false), TerminatingNotServing);
    assert_eq!(effective(Maintenance, false), Maintenance);
}

#[test]
fn set_backends_changes_only_instances_of_its_source() {
    let writer = web();
    // Two sources have 10.0.0.1, and a write of one does not affect the other's instance, whichever
    // comes first in the list.
    for order in [["file", "api"], ["api", "file"]] {
        write(&writer, 2, |t| {
            t.set_precedence(Precedence::new(order.map(source)));
            t.set_backends(&name("web"), &source("file"), vec![instance(1)]);
            t.set_backends(&name("web"), &source("api"), vec![instance(1)]);
        });
        assert_eq!(hosts(&writer, "web"), order.map(|source| (1, source.to_owned())));
        write(&writer, 3, |t| t.set_backends(&name("web"), &source("api"), vec![]));
        assert_eq!(hosts(&writer, "web"), of_file(&[1]));
    }
}

#[test]
fn address_conflict_is_an_error() {
    let writer = web();
    let (result, _) = write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![]).unwrap();
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(1)])
    });
    let (owner, claimant) = (name("web"), name("shop"));
    let conflict = Error::FrontendConflict { address: address(1), owner, claimant };
    assert_eq!(result, Err(conflict));
    assert_eq!(row(&writer, 1).service.name, name("web"));
}

#[test]
fn addresses_and_endpoints_differ_by_protocol() {
    let writer = web();
    let udp = Address { protocol: 17, ..address(1) };
    write(&writer, 2, |t| {
        let list = vec![FrontendSpec::new(udp, Kind::LoadBalancer)];
        t.upsert_service_and_frontends(service("dns"), list).unwrap();
        let udp = Endpoint { protocol: 17, ..endpoint(1) };
        let instances = vec![Instance { endpoint: udp, ..instance(1) }, instance(1)];
        t.set_backends(&name("dns"), &source("file"), instances);
    });
    let tables = writer.tables();
    assert_eq!(tables.frontend(&udp).unwrap().service.name, name("dns"));
    assert_eq!(tables.frontend(&address(1)).unwrap().service.name, name("web"));
    assert_eq!(tables.services_at(&Endpoint { protocol: 17, ..endpoint(1) }).count(), 1);
    assert_eq!(tables.services_at(&endpoint(1)).count(), 2);
    let desired = select_backends(&tables, tables.frontend(&udp).unwrap(), &Appliance::default());
    let chosen = desired.backends.iter().map(|b| b.endpoint.protocol).collect::<Vec<_>>();
    assert_eq!(chosen, [17]);
}

#[test]
fn node_ports_of_both_families_are_distinct() {
    let writer = web();
    let port = |addr: std::net::IpAddr| {
        let mut wildcard = Address::new(addr, 30_080, 6);
        wildcard.prefix.len = 0;
        FrontendSpec { service_port: 80, ..FrontendSpec::new(wildcard, Kind::NodePort) }
    };
    let (four, six) = (port([0; 4].into()), port([0u16; 8].into()));
    write(&writer, 2, |t| {
        let both = vec![four.clone(), six.clone()];
        t.upsert_service_and_frontends(service("web"), both).unwrap();
    });
    write(&writer, 3, |t| {
        t.upsert_service_and_frontends(service("web"), vec![six.clone()]).unwrap();
    });
    let tables = writer.tables();
    assert!(tables.frontend(&four.address).is_none());
    assert!(tables.frontend(&six.address).is_some());
}

#[test]
fn deleting_a_service_keeps_backends_of_other_sources() {
    let writer = web();
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service_of("shop", "api"), vec![frontend_spec(2)]).unwrap();
        t.set_backends(&name("shop"), &source("kubernetes"), vec![instance(1), instance(4)]);
        t.delete_service_and_frontends(&name("shop"), &source("api")).unwrap();
    });
    let kubernetes = |host| (host, "kubernetes".to_owned());
    assert_eq!(hosts(&writer, "shop"), [kubernetes(1), kubernetes(4)]);
    assert_eq!(hosts(&writer, "web"), of_file(&[1, 2]));
    assert_eq!(writer.tables().services_at(&endpoint(1)).count(), 2);
}

#[test]
fn terminating_is_distinct_from_quarantined() {
    let writer = web();
    write(&writer, 2, |t| {
        let instances = vec![
            Instance { state: BackendState::Terminating, ..instance(1) },
            Instance { state: BackendState::Quarantined, ..instance(2) },
        ];
        t.set_backends(&name("web"), &source("file"), instances);
    });
    let states = desired(&writer, 1).backends.iter().map(|b| b.effective()).collect::<Vec<_>>();
    assert_eq!(states, [BackendState::Terminating, BackendState::Quarantined]);
    assert_eq!(desired(&writer, 1).serving, 1, "the terminating one serves");
}
