//! Tests of transactions, snapshots and initializers.

use super::*;

#[test]
fn a_transaction_that_is_dropped_changes_nothing() {
    let writer = web();
    let before = writer.tables();
    let mut receiver = writer.subscribe();
    let mut transaction = writer.begin(now(2));
    transaction.delete_service_and_frontends(&name("web"), &source("file")).unwrap();
    transaction.set_backends(&name("web"), &source("file"), vec![]);
    transaction.set_precedence(Precedence::new([source("api")]));
    assert!(transaction.tables().service(&name("web")).is_none());
    assert!(transaction.tables().entry(&name("web")).is_none());
    drop(transaction);
    let after = writer.tables();
    assert_eq!(after.revision(), before.revision());
    let (one, other) = (before.entry(&name("web")), after.entry(&name("web")));
    assert!(Arc::ptr_eq(one.unwrap(), other.unwrap()));
    assert!(!receiver.has_changed().unwrap());
    write(&writer, 3, |t| t.set_backends(&name("web"), &source("api"), vec![instance(1)]));
    assert_eq!(receiver.borrow_and_update().revision(), 2);
    assert_eq!(after.instances_at(&endpoint(1)).next().unwrap().priority, 0);
}

#[test]
fn a_commit_is_one_revision_and_a_snapshot_stays() {
    let writer = web();
    let before = writer.tables();
    let (_, revision) = write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(2)]).unwrap();
        t.set_backends(&name("web"), &source("file"), vec![instance(3)]);
    });
    assert_eq!((revision, writer.tables().revision()), (2, 2));
    assert_eq!(before.revision(), 1);
    assert!(before.service(&name("shop")).is_none());
    assert_eq!(before.entry(&name("web")).unwrap().instances.len(), 2);
    let touched = writer.changes_since(1).touched.unwrap();
    let expected = TouchedKeys {
        revision: 2,
        services: vec![name("shop"), name("web")],
        frontends: vec![address(1), address(2)],
        endpoints: vec![endpoint(1), endpoint(2), endpoint(3)],
    };
    assert_eq!(touched, [Arc::new(expected)]);
}

#[test]
fn transaction_creates_each_row_once() {
    let writer = Writer::new();
    let mut transaction = writer.begin(now(1));
    transaction.upsert_service_and_frontends(service("web"), vec![frontend_spec(1)]).unwrap();
    let row_before = transaction.tables().frontend(&address(1)).unwrap().clone();
    transaction.set_backends(&name("web"), &source("file"), vec![instance(1)]);
    transaction.commit();
    assert!(Arc::ptr_eq(&row_before, &row(&writer, 1)));
}

#[test]
fn pruning_waits_for_all_initializers() {
    let writer = Writer::new();
    let (file, api) = (writer.register_initializer("file"), writer.register_initializer("api"));
    let opened = writer.tables();
    assert_eq!(opened.pending_sources().collect::<Vec<_>>(), ["file", "api"]);
    let (_, revision) = write(&writer, 1, |t| t.complete(&file));
    assert_eq!(revision, 3);
    assert_eq!(writer.tables().pending_sources().collect::<Vec<_>>(), ["api"]);
    assert!(!writer.tables().initialized());
    // A transaction that is dropped completes nothing, and the token stays valid.
    let mut dropped = writer.begin(now(2));
    dropped.complete(&api);
    drop(dropped);
    assert!(!writer.tables().initialized());
    let (_, revision) = write(&writer, 3, |t| (t.complete(&api), t.complete(&api)));
    assert_eq!(revision, 4);
    assert!(writer.tables().initialized());
    assert!(!opened.initialized(), "earlier snapshots do not change");
    assert_eq!(write(&writer, 4, |t| t.complete(&api)).1, 4);
    let touched = writer.changes_since(3).touched.unwrap();
    assert_eq!(touched, [Arc::new(TouchedKeys { revision: 4, ..TouchedKeys::default() })]);
    // A source that is enabled later blocks pruning again. Two tokens of one name must both be
    // completed.
    let (one, other) = (writer.register_initializer("file"), writer.register_initializer("file"));
    write(&writer, 5, |t| t.complete(&one));
    assert!(!writer.tables().initialized());
    write(&writer, 6, |t| t.complete(&other));
    assert!(writer.tables().initialized());
}

#[test]
fn readers_are_not_blocked_by_a_transaction() {
    let writer = web();
    let transaction = writer.begin(now(2));
    assert_eq!(writer.tables().revision(), 1);
    assert_eq!(writer.changes_since(0).touched.map(|touched| touched.len()), Some(1));
    assert_eq!(transaction.commit(), 1);
}

#[test]
fn writers_of_several_threads_are_serialized() {
    let writer = Writer::new();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let writer = &writer;
            scope.spawn(move || {
                let (from, mut instances) = (source(&format!("file-{thread}")), Vec::new());
                for host in 0..50u8 {
                    write(writer, 1, |t| {
                        instances.push(Instance::new(
                            Endpoint { port: u16::from(thread), ..endpoint(host) },
                            name("dummy"),
                            source("dummy"),
                        ));
                        t.set_backends(&name("web"), &from, instances.clone());
                    });
                }
            });
        }
    });
    assert_eq!(writer.tables().revision(), 200);
    assert_eq!(writer.tables().endpoints().count(), 200);
}

#[test]
fn change_readers_see_every_revision_once() {
    let writer = Writer::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut instances = Vec::new();
            for n in 0..2000u16 {
                write(&writer, 1, |t| {
                    let host = (n % 7) as u8;
                    instances.retain(|instance: &Instance| instance.endpoint != endpoint(host));
                    instances.push(Instance { weight: n + 1, ..instance(host) });
                    t.set_backends(&name("web"), &source("file"), instances.clone());
                });
            }
        });
        let mut observed = 0;
        while observed < 2000 {
            let changes = writer.changes_since(observed);
            let touched = changes.touched.unwrap();
            let revisions: Vec<u64> = touched.iter().map(|touched| touched.revision).collect();
            let now = changes.tables.revision();
            assert_eq!(revisions, (observed + 1..=now).collect::<Vec<_>>());
            if let Some(last) = touched.last() {
                let host = ((now - 1) % 7) as u8;
                assert_eq!(last.endpoints, [endpoint(host)]);
                let at = changes.tables.instances_at(&endpoint(host)).next().unwrap();
                assert_eq!(u64::from(at.weight), now);
            }
            observed = now;
        }
    });
}
