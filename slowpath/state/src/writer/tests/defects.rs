//! Regression tests for defects that other implementations of such tables had.

use super::*;

#[test]
fn a_health_change_leaves_no_frontend_as_it_was() {
    let writer = web();
    let before = row(&writer, 1);
    before.set_status(Progress::Done, None, now(1));
    assert_eq!(wanted(&writer, 1).serving, 2);
    write(&writer, 2, |t| t.update_backend_health(&name("web"), &endpoint(1), false).unwrap());
    let after = row(&writer, 1);
    assert_eq!(after.status().progress, Progress::Pending);
    assert_eq!(writer.news(1).touched.unwrap()[0].frontends, [address(1)]);
    let wanted = wanted(&writer, 1);
    assert_eq!(wanted.serving().iter().map(|b| b.endpoint).collect::<Vec<_>>(), [endpoint(2)]);
    assert_eq!(wanted.backends.len(), 2, "it keeps its flows");
}

#[test]
fn a_health_verdict_is_not_for_all_services_of_a_backend() {
    let writer = web();
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![said(2)]).unwrap();
        t.set_backends(&name("shop"), &source("file"), vec![instance(1)]);
        t.update_backend_health(&name("web"), &endpoint(1), false).unwrap();
    });
    assert_eq!((wanted(&writer, 1).serving, wanted(&writer, 2).serving), (1, 1));
    let before = row(&writer, 2);
    write(&writer, 3, |t| t.update_backend_health(&name("web"), &endpoint(1), true).unwrap());
    assert!(Arc::ptr_eq(&before, &row(&writer, 2)));
}

#[test]
fn a_good_verdict_brings_nothing_back_that_its_source_takes_out() {
    use Being::{Maintenance, Quarantined, Terminating, TerminatingNotServing};
    let writer = web();
    let effective = |state, healthy| {
        write(&writer, 2, |t| {
            let said = vec![Instance { state, ..instance(1) }];
            t.set_backends(&name("web"), &source("file"), said);
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
fn set_backends_does_not_take_the_first_instances_source_for_all() {
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
fn two_services_never_claim_one_address_silently() {
    let writer = web();
    let (told, _) = write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![]).unwrap();
        t.upsert_service_and_frontends(service("shop"), vec![said(1)])
    });
    let (owner, claimant) = (name("web"), name("shop"));
    let conflict = Error::FrontendConflict { address: address(1), owner, claimant };
    assert_eq!(told, Err(conflict));
    assert_eq!(row(&writer, 1).service.name, name("web"));
}

#[test]
fn protocols_are_told_apart() {
    let writer = web();
    let udp = Address { protocol: 17, ..address(1) };
    write(&writer, 2, |t| {
        let both = vec![FrontendSpec::new(udp, Kind::LoadBalancer)];
        t.upsert_service_and_frontends(service("dns"), both).unwrap();
        let udp = Endpoint { protocol: 17, ..endpoint(1) };
        let said = vec![Instance { endpoint: udp, ..instance(1) }, instance(1)];
        t.set_backends(&name("dns"), &source("file"), said);
    });
    let tables = writer.tables();
    assert_eq!(tables.frontend(&udp).unwrap().service.name, name("dns"));
    assert_eq!(tables.frontend(&address(1)).unwrap().service.name, name("web"));
    assert_eq!(tables.services_at(&Endpoint { protocol: 17, ..endpoint(1) }).count(), 1);
    assert_eq!(tables.services_at(&endpoint(1)).count(), 2);
    let wanted = choose(&tables, tables.frontend(&udp).unwrap(), &Appliance::default());
    let chosen = wanted.backends.iter().map(|b| b.endpoint.protocol).collect::<Vec<_>>();
    assert_eq!(chosen, [17]);
}

#[test]
fn node_ports_of_two_families_are_told_apart() {
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
fn deleting_a_service_does_not_delete_what_another_source_said_of_backends() {
    let writer = web();
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service_of("shop", "api"), vec![said(2)]).unwrap();
        t.set_backends(&name("shop"), &source("kubernetes"), vec![instance(1), instance(4)]);
        t.delete_service_and_frontends(&name("shop"), &source("api")).unwrap();
    });
    let kubernetes = |host| (host, "kubernetes".to_owned());
    assert_eq!(hosts(&writer, "shop"), [kubernetes(1), kubernetes(4)]);
    assert_eq!(hosts(&writer, "web"), of_file(&[1, 2]));
    assert_eq!(writer.tables().services_at(&endpoint(1)).count(), 2);
}

#[test]
fn terminating_is_not_taken_for_quarantined() {
    let writer = web();
    write(&writer, 2, |t| {
        let said = vec![
            Instance { state: Being::Terminating, ..instance(1) },
            Instance { state: Being::Quarantined, ..instance(2) },
        ];
        t.set_backends(&name("web"), &source("file"), said);
    });
    let states = wanted(&writer, 1).backends.iter().map(|b| b.effective()).collect::<Vec<_>>();
    assert_eq!(states, [Being::Terminating, Being::Quarantined]);
    assert_eq!(wanted(&writer, 1).serving, 1, "it serves while nothing is active");
}
