//! Tests of single frontends and redirection.

use super::*;

#[test]
fn frontend_is_inserted_replaced_deleted_or_conflicts() {
    let writer = web();
    let both = |second: &FrontendSpec| vec![frontend_spec(1), second.clone()];
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("web"), both(&frontend_spec(2))).unwrap();
        t.upsert_service_and_frontends(service("shop"), vec![]).unwrap();
    });
    assert_eq!(row(&writer, 2).service.name, name("web"));
    let other = FrontendSpec { port_name: Some("http".into()), ..frontend_spec(2) };
    write(&writer, 3, |t| {
        t.upsert_service_and_frontends(service("web"), both(&other)).unwrap();
    });
    assert_eq!(row(&writer, 2).spec, other);
    assert_eq!(writer.tables().frontends().count(), 2);
    let (result, revision) = write(&writer, 4, |t| {
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(2)])
    });
    let (owner, claimant) = (name("web"), name("shop"));
    assert_eq!(result, Err(Error::FrontendConflict { address: address(2), owner, claimant }));
    assert_eq!(revision, 3);
    write(&writer, 5, |t| {
        t.delete_frontend(&address(2)).unwrap();
        assert_eq!(t.delete_frontend(&address(2)), Err(Error::FrontendNotFound(address(2))));
        t.upsert_service_and_frontends(service("shop"), vec![frontend_spec(2)]).unwrap();
    });
    assert_eq!(row(&writer, 2).service.name, name("shop"));
}

#[test]
fn set_redirect_to_uses_another_services_backends_until_it_is_cleared() {
    let writer = web();
    let to_proxy = |to: Option<&str>| {
        write(&writer, 3, |t| t.set_redirect_to(&address(1), to.map(name)).unwrap()).1
    };
    let serving = || {
        let desired = desired(&writer, 1);
        desired.serving().iter().map(|b| b.endpoint).collect::<Vec<_>>()
    };
    assert_eq!(to_proxy(Some("proxy")), 2);
    assert_eq!(to_proxy(Some("proxy")), 2);
    assert_eq!(serving(), []);
    // The other service's backends are added later; the frontend is pending again.
    let before = row(&writer, 1);
    write(&writer, 4, |t| {
        t.set_backends(&name("proxy"), &source("api"), vec![instance(9)]);
    });
    assert!(!Arc::ptr_eq(&before, &row(&writer, 1)));
    let touched = writer.changes_since(2).touched.unwrap();
    assert_eq!(
        (&touched[0].services[..], &touched[0].frontends[..]),
        (&[name("proxy")][..], &[address(1)][..])
    );
    assert_eq!(serving(), [endpoint(9)]);
    // The redirection stays when the frontend's own service is written again.
    let other = FrontendSpec { service_port: 8, ..frontend_spec(1) };
    write(&writer, 5, |t| t.upsert_service_and_frontends(service("web"), vec![other]).unwrap());
    assert_eq!(row(&writer, 1).redirect_to, Some(name("proxy")));
    assert_eq!(to_proxy(None), 5);
    assert_eq!(serving(), [endpoint(1), endpoint(2)]);
    let before = row(&writer, 1);
    write(&writer, 6, |t| t.set_backends(&name("proxy"), &source("api"), vec![]));
    assert!(Arc::ptr_eq(&before, &row(&writer, 1)));
    let (result, _) = write(&writer, 7, |t| t.set_redirect_to(&address(2), None));
    assert_eq!(
        result.unwrap_err().to_string(),
        "there is no frontend at 192.0.2.2:80/TCP: `weir db show frontends` lists the existing \
         ones"
    );
}

#[test]
fn redirection_is_deleted_with_its_frontend() {
    let writer = web();
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("web"), vec![frontend_spec(1), frontend_spec(2)])
            .unwrap();
        t.set_redirect_to(&address(1), Some(name("proxy"))).unwrap();
        t.set_redirect_to(&address(2), Some(name("proxy"))).unwrap();
    });
    assert_eq!(writer.tables().redirected_to(&name("proxy")).count(), 2);
    write(&writer, 3, |t| t.delete_frontend(&address(1)).unwrap());
    assert_eq!(writer.tables().redirected_to(&name("proxy")).count(), 1);
    write(&writer, 4, |t| {
        t.delete_service_and_frontends(&name("web"), &source("file")).unwrap();
    });
    assert_eq!(writer.tables().redirected_to(&name("proxy")).count(), 0);
}
