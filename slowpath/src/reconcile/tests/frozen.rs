//! Tests of a store's disk that does not respond: the control loop continues.

use super::*;
use serde_json::json;
use state::object::Change;
use state::store::WriteRequest;

/// Returns the last address bytes of the backends in the region.
fn lasts(region: &Region) -> Vec<u8> {
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
    let mut stage = Stage::new("frozen");
    let (mut reconcile, shared) = stage.start();
    let _fastpath = stage.region.claim(Role::Fastpath).unwrap();
    let mut lcore = FakeLcore::join(stage.region);
    stage.backends(&["10.0.2.11"]);
    stage.pass(1000, &mut reconcile, Some(&mut lcore));
    let at = stage.region.generation();

    stage.thawed = false;
    stage.backends(&["10.0.2.11", "10.0.2.12"]);
    stage.pass(4000, &mut reconcile, Some(&mut lcore));
    assert_eq!((stage.region.generation(), lasts(stage.region)), (at, vec![11]));
    let error = shared.status_now().services_file.error.unwrap();
    assert!(error.contains("control.state has not responded for"), "{error}");
    assert!(able(&shared).able, "{:?}", able(&shared));
    stage.region.lcores()[0].set_link(1, false);
    stage.pass(200, &mut reconcile, Some(&mut lcore));
    assert_eq!(able(&shared).reasons, ["the link of egress is down"]);
    stage.region.lcores()[0].set_link(1, true);
    stage.backends(&["10.0.2.11", "10.0.2.13"]);
    stage.pass(1000, &mut reconcile, Some(&mut lcore));
    assert_eq!(stage.region.generation(), at);

    stage.thawed = true;
    stage.pass(6000, &mut reconcile, Some(&mut lcore));
    assert_eq!(shared.status_now().services_file.error, None);
    assert_eq!(lasts(stage.region), [11, 13]);
}

#[test]
fn other_sources_apply_while_the_files_wait_for_the_disk() {
    let mut stage = Stage::new("others");
    let (mut reconcile, _) = stage.start();
    stage.backends(&["10.0.2.11"]);
    stage.pass(1000, &mut reconcile, None);
    // The API's write is on disk; that of the files is queued behind it.
    stage.thawed = false;
    let (_, answer) = stage.store.request(put());
    stage.store.write_waiting();
    assert!(answer.blocking_recv().unwrap().is_ok());
    stage.backends(&["10.0.2.12"]);
    while reconcile.pending_write.is_none() {
        stage.pass(20, &mut reconcile, None);
    }
    stage.pass(1000, &mut reconcile, None);
    assert_eq!(services(&reconcile), ["api/other", "default/web"]);
    assert_eq!(lasts(stage.region), [11]);
    // Written but not acknowledged yet: the files' rows are made with the acknowledgment, not
    // before.
    stage.store.write_waiting();
    let revision = reconcile.desired.writer.tables().revision();
    assert!(!reconcile.desired.follow(SystemTime::UNIX_EPOCH));
    assert_eq!(reconcile.desired.writer.tables().revision(), revision);
    stage.pass(20, &mut reconcile, None);
    assert!(reconcile.desired.writer.tables().revision() > revision);
    stage.thawed = true;
    stage.pass(5000, &mut reconcile, None);
    assert_eq!(lasts(stage.region), [12]);
}

#[test]
fn a_rejected_file_is_never_partly_applied_while_its_rollback_waits_for_the_disk() {
    let mut stage = Stage::new("back");
    let (mut reconcile, shared) = stage.start();
    stage.backends(&["10.0.2.11"]);
    stage.pass(1000, &mut reconcile, None);
    let (before, at) = (ids(stage.region), stage.region.generation());
    // More tunnels than the region has capacity for; one frontend alone would fit.
    let tunnels = (1..=20).map(|vni| {
        format!(
            "[[service]]\nname = \"t{vni}\"\nmode = \"tunnel\"\ntunnel = \"vxlan\"\nvni = {vni}\n\
             frontends = [{{address = \"203.0.113.2\", port = {vni}, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.0.2.12\"}}]\n"
        )
    });
    stage.write(&format!("allow_removal = true\n{}", tunnels.collect::<String>()));
    while reconcile.pending_write.is_none() {
        stage.pass(20, &mut reconcile, None);
    }
    // The write is on disk; from here on the disk hangs.
    stage.thawed = false;
    stage.pass(10_000, &mut reconcile, None);
    assert!(reconcile.pending_write.as_ref().is_some_and(PendingWrite::is_restoring));
    assert_eq!((ids(stage.region), stage.region.generation()), (before.clone(), at));
    stage.thawed = true;
    stage.pass(1000, &mut reconcile, None);
    let error = shared.status_now().services_file.error.unwrap();
    assert!(error.contains("tunnels"), "{error}");
    assert_eq!(services(&reconcile), ["default/web"]);
    assert_eq!((ids(stage.region), stage.region.generation()), (before, at));
}
