//! Tests of a store's disk that does not respond: the control loop continues.

use super::*;
use serde_json::json;
use state::object::Change;
use state::store::WriteRequest;

/// Returns the last address bytes of the backends in the region.
fn last_bytes(region: &Region) -> Vec<u8> {
    ids(region).1.into_iter().map(|(last, _)| last).collect()
}

fn services(reconcile: &Reconcile<'_>) -> Vec<String> {
    let tables = reconcile.desired.writer.tables();
    tables.services().map(|service| service.name.to_string()).collect()
}

/// Returns a write of a service by the API.
fn put() -> WriteRequest {
    let frontend = json!({ "address": "203.0.113.7", "port": 80, "protocol": "tcp" });
    let spec = json!({ "frontends": [frontend] });
    let json = json!({ "kind": "Service", "name": "api/other", "spec": spec });
    let object = Object::from_json(&json).unwrap();
    WriteRequest::new(vec![Change::put(object)], SystemTime::UNIX_EPOCH)
}

#[test]
fn a_hung_disk_does_not_block_the_loop_and_the_newest_files_are_applied_after_it() {
    let mut fixture = Fixture::new("frozen");
    let (mut reconcile, shared) = fixture.start();
    let _fastpath = fixture.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(fixture.region);
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    let at = fixture.region.generation();

    fixture.disk_responds = false;
    fixture.backends(&["10.0.2.11", "10.0.2.12"]);
    fixture.pass(4000, &mut reconcile, Some(&mut lcore));
    assert_eq!((fixture.region.generation(), last_bytes(fixture.region)), (at, vec![11]));
    let error = shared.status_now().services_file.error.unwrap();
    assert!(error.contains("control.state has not responded for"), "{error}");
    assert!(able(&shared).able, "{:?}", able(&shared));
    fixture.region.lcores()[0].set_link(1, false);
    fixture.pass(200, &mut reconcile, Some(&mut lcore));
    assert_eq!(able(&shared).reasons, ["the link of egress is down"]);
    fixture.region.lcores()[0].set_link(1, true);
    fixture.backends(&["10.0.2.11", "10.0.2.13"]);
    fixture.pass(1000, &mut reconcile, Some(&mut lcore));
    assert_eq!(fixture.region.generation(), at);

    fixture.disk_responds = true;
    fixture.pass(6000, &mut reconcile, Some(&mut lcore));
    assert_eq!(shared.status_now().services_file.error, None);
    assert_eq!(last_bytes(fixture.region), [11, 13]);
}

#[test]
fn other_sources_apply_while_the_files_wait_for_the_disk() {
    let mut fixture = Fixture::new("others");
    let (mut reconcile, _) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    // The API's write is on disk; that of the files is queued behind it.
    fixture.disk_responds = false;
    let (_, answer) = fixture.store.request(put());
    fixture.store.write_waiting();
    assert!(answer.blocking_recv().unwrap().is_ok());
    fixture.backends(&["10.0.2.12"]);
    while reconcile.pending_write.is_none() {
        fixture.pass(20, &mut reconcile, None);
    }
    fixture.pass(1000, &mut reconcile, None);
    assert_eq!(services(&reconcile), ["api/other", "default/web"]);
    assert_eq!(last_bytes(fixture.region), [11]);
    // Written but not acknowledged yet: the files' rows are made with the acknowledgment, not
    // before.
    fixture.store.write_waiting();
    let revision = reconcile.desired.writer.tables().revision();
    assert!(!reconcile.desired.follow(SystemTime::UNIX_EPOCH));
    assert_eq!(reconcile.desired.writer.tables().revision(), revision);
    fixture.pass(20, &mut reconcile, None);
    assert!(reconcile.desired.writer.tables().revision() > revision);
    fixture.disk_responds = true;
    fixture.pass(5000, &mut reconcile, None);
    assert_eq!(last_bytes(fixture.region), [12]);
}

#[test]
fn a_rejected_file_is_never_partly_applied_while_its_rollback_waits_for_the_disk() {
    let mut fixture = Fixture::new("back");
    let (mut reconcile, shared) = fixture.start();
    fixture.backends(&["10.0.2.11"]);
    fixture.pass(1000, &mut reconcile, None);
    let (before, at) = (ids(fixture.region), fixture.region.generation());
    // More tunnels than the region has capacity for; one frontend alone would fit.
    let tunnels = (1..=20).map(|vni| {
        format!(
            "[[service]]\nname = \"t{vni}\"\nmode = \"tunnel\"\ntunnel = \"vxlan\"\nvni = {vni}\n\
             frontends = [{{address = \"203.0.113.2\", port = {vni}, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.0.2.12\"}}]\n"
        )
    });
    fixture.write(&format!("allow_removal = true\n{}", tunnels.collect::<String>()));
    while reconcile.pending_write.is_none() {
        fixture.pass(20, &mut reconcile, None);
    }
    // The write is on disk; from here on the disk hangs.
    fixture.disk_responds = false;
    fixture.pass(10_000, &mut reconcile, None);
    assert!(reconcile.pending_write.as_ref().is_some_and(PendingWrite::is_restoring));
    assert_eq!((ids(fixture.region), fixture.region.generation()), (before.clone(), at));
    fixture.disk_responds = true;
    fixture.pass(1000, &mut reconcile, None);
    let error = shared.status_now().services_file.error.unwrap();
    assert!(error.contains("tunnels"), "{error}");
    assert_eq!(services(&reconcile), ["default/web"]);
    assert_eq!((ids(fixture.region), fixture.region.generation()), (before, at));
}
