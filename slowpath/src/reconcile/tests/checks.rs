//! Tests of health verdicts: their effect on the region, also over a restart.

use std::sync::mpsc::Sender;

use super::*;
use health::checker::HealthEvent;
use health::scheduler::Verdict;
use state::address::Endpoint;
use state::name::Name;
use state::object::{ConditionStatus, Kind as ObjectKind};

fn web() -> Name {
    Name::new("default/web").unwrap()
}

fn endpoint(last: u8) -> Endpoint {
    Endpoint { addr: [10, 0, 2, last].into(), port: 80, protocol: 6 }
}

/// Writes the service `default/web` with two backends. `health` is the key of a health check, or
/// empty.
fn backends(fixture: &Fixture, health: &str) {
    fixture.write(&format!(
        "[[service]]\nname = \"default/web\"\nmode = \"nat\"\ntable_size = 251\n{health}\n\
         frontends = [{{address = \"203.0.113.1\", port = 80, protocol = \"tcp\"}}]\n\
         backends = [{{address = \"10.0.2.11\", port = 80}}, \
                     {{address = \"10.0.2.12\", port = 80}}]\n"
    ));
}

/// The key of a health check.
const CHECKED: &str = "health = { kind = \"tcp\" }";

fn send_verdict(to: &Sender<HealthEvent>, last: u8, healthy: bool) {
    let (service, endpoint) = (web(), endpoint(last));
    to.send(HealthEvent::Verdict(Verdict { service, endpoint, healthy })).unwrap();
}

/// Returns the last address bytes of the backends that get new flows.
fn serving(region: &Region) -> Vec<u8> {
    let set = region.tables(region.generation());
    let Some((_, service)) = set.services().next() else { return Vec::new() };
    let last = |id: u32| set.backend(id).unwrap().addr.octets()[15];
    if service.single != tables::record::NONE {
        return vec![last(service.single)];
    }
    let mut all: Vec<u8> = set.slots(&service.slots).map(last).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_verdict_removes_a_backend_and_restores_it() {
    let mut fixture = Fixture::new("verdict");
    let (mut reconcile, shared) = fixture.start();
    let (writer, events) = reconcile.connect_checker();
    backends(&fixture, CHECKED);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(serving(fixture.region), [11, 12]);
    let health = |last| {
        let tables = shared.desired_now().tables;
        tables.entry(&web()).unwrap().at(&endpoint(last))[0].health
    };
    for (healthy, left) in [(false, vec![12]), (true, vec![11, 12])] {
        send_verdict(&events, 11, healthy);
        fixture.pass(1000, &mut reconcile, None);
        assert_eq!(serving(fixture.region), left);
        assert_eq!(health(11).unhealthy, !healthy, "and readers see it");
    }
    // A verdict on a backend that is gone, and a repeated one, change nothing.
    let (at, revision) = (fixture.region.generation(), writer.tables().revision());
    send_verdict(&events, 99, false);
    send_verdict(&events, 11, true);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!((fixture.region.generation(), writer.tables().revision()), (at, revision));
    send_verdict(&events, 12, false);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(serving(fixture.region), [11]);
    // Without a health check, the state declared by the source applies.
    backends(&fixture, "");
    fixture.pass(1000, &mut reconcile, None);
    events.send(HealthEvent::Unchecked(web(), endpoint(12))).unwrap();
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(serving(fixture.region), [11, 12]);
}

#[test]
fn no_verdict_is_lost_over_a_restart() {
    for steps in 0..12 {
        let mut fixture = Fixture::new(&format!("verdicts{steps}"));
        let (mut reconcile, _) = fixture.start();
        let (_, events) = reconcile.connect_checker();
        backends(&fixture, CHECKED);
        fixture.pass(1000, &mut reconcile, None);
        send_verdict(&events, 11, false);
        fixture.pass(1000, &mut reconcile, None);
        assert_eq!(serving(fixture.region), [12]);
        // Killed while another change is in progress.
        send_verdict(&events, 12, true);
        fixture.pass(20 * steps, &mut reconcile, None);
        drop(reconcile);

        let (mut reconcile, _) = fixture.start();
        let (writer, events) = reconcile.connect_checker();
        for _ in 0..200 {
            fixture.pass(20, &mut reconcile, None);
            assert_eq!(serving(fixture.region), [12], "it gets no traffic in between");
        }
        let tables = writer.tables();
        let found = tables.entry(&web()).unwrap().at(&endpoint(11))[0].health;
        assert!(found.unhealthy && found.since.is_some(), "the checker starts with that state");
        send_verdict(&events, 11, true);
        fixture.pass(1000, &mut reconcile, None);
        assert_eq!(serving(fixture.region), [11, 12]);
    }
}

#[test]
fn a_service_with_two_different_traffic_policies_is_served_and_checked() {
    let mut fixture = Fixture::new("reaches");
    let (mut reconcile, _) = fixture.start();
    let (_, events) = reconcile.connect_checker();
    backends(&fixture, &format!("external_policy = \"local\"\n{CHECKED}"));
    fixture.pass(1000, &mut reconcile, None);
    let is_served = |region: &Region| {
        let web = "203.0.113.1".parse::<IpAddr>().unwrap().into();
        region.tables(region.generation()).frontend(0, &web, 80, 6).is_some()
    };
    assert!(is_served(fixture.region), "the internal frontend does not replace it");
    send_verdict(&events, 11, false);
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(serving(fixture.region), [12]);
    drop(reconcile);
    let (mut reconcile, _) = fixture.start();
    for _ in 0..50 {
        fixture.pass(20, &mut reconcile, None);
        assert_eq!((is_served(fixture.region), serving(fixture.region)), (true, vec![12]));
    }
}

#[test]
fn checker_errors_become_service_conditions() {
    let mut fixture = Fixture::new("conditions");
    let (mut reconcile, shared) = fixture.start();
    let (_, events) = reconcile.connect_checker();
    backends(&fixture, CHECKED);
    fixture.pass(1000, &mut reconcile, None);
    let condition = || {
        let desired = shared.desired_now();
        let name = web();
        let object = desired.objects.named(ObjectKind::Service, &name).next().cloned().unwrap();
        let status = object.lifecycle().status.clone().unwrap_or_default();
        let found = status.conditions.iter().find(|one| &*one.aspect == "Probed").cloned();
        found.map(|one| (one.status, one.message.to_string()))
    };
    assert_eq!(condition(), None);
    for (trouble, truth) in
        [(Some("no port"), ConditionStatus::False), (None, ConditionStatus::True)]
    {
        let trouble = trouble.map(str::to_owned);
        events.send(HealthEvent::Condition(web(), "Probed", trouble.clone())).unwrap();
        fixture.pass(40, &mut reconcile, None);
        assert_eq!(condition(), Some((truth, trouble.unwrap_or_default())));
    }
}
