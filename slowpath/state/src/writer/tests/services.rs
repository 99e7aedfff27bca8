//! Tests of writing and deleting services with their frontends, and of hooks.

use super::*;
use crate::object::AFFINITY_MAX_S;

#[test]
fn service_change_renews_its_frontends() {
    let writer = web();
    let before = row(&writer, 1);
    before.set_status(Progress::Done, None, now(1));
    let changed = service("web").with(|spec| spec.affinity_s = 30).unwrap();
    let (result, revision) = write(&writer, 5, |t| {
        t.upsert_service_and_frontends(changed.clone(), vec![frontend_spec(1)]).unwrap()
    });
    assert_eq!(result.as_deref(), Some(&service("web")));
    assert_eq!(revision, 2);
    let after = row(&writer, 1);
    assert_eq!(*after.service, changed);
    assert!(Arc::ptr_eq(&after.service, writer.tables().service(&name("web")).unwrap()));
    assert_eq!((after.status().progress, after.status().since), (Progress::Pending, now(5)));
    assert_eq!(before.status().progress, Progress::Done, "the older row has its own status");
    assert_eq!(desired(&writer, 1).serving, 2);
}

#[test]
fn identical_write_changes_nothing() {
    let writer = web();
    let (row_before, revision_before) = (row(&writer, 1), writer.tables().revision());
    let (_, revision) = write(&writer, 9, |t| {
        t.upsert_service_and_frontends(service("web"), vec![frontend_spec(1)]).unwrap();
        t.set_backends(&name("web"), &source("file"), vec![instance(2), instance(1)]);
        t.set_redirect_to(&address(1), None).unwrap();
        t.set_precedence(Precedence::default());
        t.set_backends(&name("web"), &source("api"), vec![]);
    });
    assert_eq!(revision, revision_before);
    assert!(Arc::ptr_eq(&row_before, &row(&writer, 1)));
    assert_eq!(writer.changes_since(revision).touched, Some(vec![]));
}

#[test]
fn upsert_deletes_unlisted_frontends() {
    let writer = web();
    let all = || vec![frontend_spec(2), frontend_spec(3), frontend_spec(1)];
    write(&writer, 2, |t| t.upsert_service_and_frontends(service("web"), all()).unwrap());
    let old_row = row(&writer, 2);
    write(&writer, 3, |t| {
        let two = vec![frontend_spec(2), FrontendSpec { service_port: 7, ..frontend_spec(3) }];
        t.upsert_service_and_frontends(service("web"), two).unwrap();
    });
    let tables = writer.tables();
    assert!(tables.frontend(&address(1)).is_none());
    assert_eq!(tables.frontend(&address(3)).unwrap().spec.service_port, 7);
    assert_eq!(tables.frontends().count(), 2);
    assert!(!Arc::ptr_eq(&old_row, &row(&writer, 2)), "all rows of a changed service are new");
    // Of two frontends with the same address, only the last one is written.
    let twice = vec![
        FrontendSpec { service_port: 1, ..frontend_spec(2) },
        FrontendSpec { service_port: 2, ..frontend_spec(2) },
    ];
    write(&writer, 4, |t| t.upsert_service_and_frontends(service("web"), twice).unwrap());
    assert_eq!(row(&writer, 2).spec.service_port, 2);
}

#[test]
fn a_conflict_of_an_address_is_found_before_anything_is_written() {
    let writer = web();
    let tables = writer.tables();
    let (result, revision) = write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(2), frontend_spec(1)])
    });
    let (owner, claimant) = (name("web"), name("shop"));
    let conflict = Error::FrontendConflict { address: address(1), owner, claimant };
    assert_eq!(result, Err(conflict.clone()));
    assert_eq!(
        conflict.to_string(),
        "address 192.0.2.1:80/TCP belongs to service `web`, and service `shop` cannot use it: \
         remove it from one of the two"
    );
    assert_eq!(revision, tables.revision());
    assert!(writer.tables().service(&name("shop")).is_none());
    assert!(writer.tables().frontend(&address(2)).is_none());
}

#[test]
fn an_address_moves_once_it_is_released() {
    let writer = web();
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("web"), vec![frontend_spec(3)]).unwrap();
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(1)]).unwrap();
    });
    assert_eq!(row(&writer, 1).service.name, name("shop"));
    assert_eq!(row(&writer, 3).service.name, name("web"));
    let touched = writer.changes_since(1).touched.unwrap();
    assert_eq!(touched[0].services, [name("shop"), name("web")]);
    assert_eq!(touched[0].frontends, [address(1), address(3)]);
}

#[test]
fn service_of_another_source_is_rejected_until_deleted() {
    let writer = web();
    let of_api = || service_of("web", "api");
    let conflict = Error::ServiceConflict {
        name: name("web"),
        owner: source("file"),
        claimant: source("api"),
    };
    let (_, revision) = write(&writer, 2, |t| {
        let result = t.upsert_service_and_frontends(of_api(), vec![frontend_spec(1)]);
        assert_eq!(result, Err(conflict.clone()));
        let result = t.delete_service_and_frontends(&name("web"), &source("api"));
        assert_eq!(result, Err(conflict.clone()));
    });
    assert_eq!(revision, 1);
    assert_eq!(
        conflict.to_string(),
        "service `web` belongs to source `file`, and source `api` cannot write it: delete it \
         there first, or choose another name"
    );
    write(&writer, 3, |t| {
        t.delete_service_and_frontends(&name("web"), &source("file")).unwrap();
        t.upsert_service_and_frontends(of_api(), vec![frontend_spec(1)]).unwrap();
    });
    assert_eq!(row(&writer, 1).service.source, source("api"));
    assert_eq!(hosts(&writer, "web"), of_file(&[1, 2]));
}

#[test]
fn delete_service_and_frontends_leaves_the_backends() {
    let writer = web();
    write(&writer, 2, |t| {
        let row = t.delete_service_and_frontends(&name("web"), &source("file")).unwrap();
        assert_eq!(row.name, name("web"));
    });
    let tables = writer.tables();
    assert_eq!((tables.services().count(), tables.frontends().count()), (0, 0));
    assert_eq!(hosts(&writer, "web"), of_file(&[1, 2]));
    let (result, revision) =
        write(&writer, 3, |t| t.delete_service_and_frontends(&name("web"), &source("file")));
    assert_eq!(
        result.as_ref().unwrap_err().to_string(),
        "there is no service `web`: `weir db show services` lists the existing ones"
    );
    assert_eq!((result, revision), (Err(Error::ServiceNotFound(name("web"))), 2));
    let touched = writer.changes_since(1).touched.unwrap();
    assert_eq!(
        (&touched[0].services[..], &touched[0].frontends[..]),
        (&[name("web")][..], &[address(1)][..])
    );
    // A service that is written again has the backends that stayed.
    write(&writer, 4, |t| {
        t.upsert_service_and_frontends(service("web"), vec![frontend_spec(1)]).unwrap()
    });
    assert_eq!(desired(&writer, 1).serving, 2);
}

#[test]
fn hooks_run_in_order_before_the_first_write() {
    let writer = Writer::new();
    writer.add_hook(Box::new(|tables, service| {
        assert!(tables.service(&service.name).is_none() || service.spec.mss > 0);
        service.spec = service.spec.changed(|spec| spec.health_check_port = 1000).unwrap();
        service.name = name("mine");
        service.source = source("mine");
    }));
    writer.add_hook(Box::new(|_, service| {
        service.spec = service.spec.changed(|spec| spec.health_check_port += 1).unwrap();
    }));
    let (result, _) =
        write(&writer, 1, |t| t.upsert_service_and_frontends(service("web"), vec![]).unwrap());
    assert!(result.is_none());
    let expected = service("web").with(|spec| spec.health_check_port = 1001).unwrap();
    assert_eq!(**writer.tables().service(&name("web")).unwrap(), expected);
    assert_eq!(writer.tables().revision(), 1);
    write(&writer, 2, |t| {
        let service = service("web").with(|spec| spec.mss = 1400).unwrap();
        t.upsert_service_and_frontends(service, vec![frontend_spec(1)]).unwrap();
    });
    assert_eq!(row(&writer, 1).service.spec.health_check_port, 1001);
}

#[test]
fn rows_contain_only_valid_specs() {
    let with = |affinity_s| service("web").with(|spec| spec.affinity_s = affinity_s);
    let writer = Writer::new();
    let max = with(AFFINITY_MAX_S).unwrap();
    write(&writer, 1, |t| t.upsert_service_and_frontends(max, vec![]).unwrap());
    let row = writer.tables().service(&name("web")).cloned().unwrap();
    assert_eq!(row.spec.affinity_s, AFFINITY_MAX_S);
    let error = with(AFFINITY_MAX_S + 1).unwrap_err().to_string();
    assert!(error.contains("spec.affinity_s") && error.contains("16777215"), "{error}");
}
