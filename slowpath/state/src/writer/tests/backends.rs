//! Tests of backends: instances by service, endpoint and source.

use super::*;
use crate::backend::Health;

fn web_name() -> Name {
    name("web")
}

fn file() -> Source {
    source("file")
}

#[test]
fn backends_may_come_before_their_service() {
    let writer = Writer::new();
    write(&writer, 1, |t| t.set_backends(&web_name(), &file(), vec![instance(2), instance(1)]));
    assert_eq!(hosts(&writer, "web"), of_file(&[1, 2]));
    assert_eq!(writer.tables().services().count(), 0);
    write(&writer, 2, |t| {
        t.upsert_service_and_frontends(service("web"), vec![frontend_spec(1)]).unwrap()
    });
    assert_eq!(desired(&writer, 1).serving, 2);
}

#[test]
fn set_backends_adds_replaces_and_renews_frontends() {
    let writer = web();
    let before = row(&writer, 1);
    let with_weight = Instance { weight: 7, ..instance(2) };
    let (_, revision) = write(&writer, 2, |t| {
        let instances = vec![instance(9), instance(1), instance(3), with_weight.clone()];
        t.set_backends(&web_name(), &file(), instances);
    });
    assert_eq!(revision, 2);
    assert_eq!(hosts(&writer, "web"), of_file(&[1, 2, 3, 9]));
    let tables = writer.tables();
    let at_2: Vec<_> = tables.instances_at(&endpoint(2)).collect();
    let expected = Instance { service: web_name(), source: file(), ..with_weight };
    assert_eq!(at_2, [&Arc::new(expected)]);
    assert!(!Arc::ptr_eq(&before, &row(&writer, 1)));
    assert_eq!(row(&writer, 1).status().progress, Progress::Pending);
    let touched = writer.changes_since(1).touched.unwrap();
    assert_eq!(touched[0].endpoints, [endpoint(2), endpoint(3), endpoint(9)]);
    assert_eq!(touched[0].frontends, [address(1)]);
    // Of two instances with the same endpoint, only the last one is written.
    write(&writer, 3, |t| {
        let instances =
            vec![instance(2), Instance { state: BackendState::Terminating, ..instance(2) }];
        t.set_backends(&web_name(), &file(), instances);
    });
    let tables = writer.tables();
    assert_eq!(tables.instances_at(&endpoint(2)).next().unwrap().state, BackendState::Terminating);
}

#[test]
fn set_backends_removes_unlisted_instances() {
    let writer = web();
    write(&writer, 2, |t| {
        t.set_backends(&web_name(), &source("api"), vec![instance(1), instance(5)]);
        t.set_backends(&name("shop"), &file(), vec![instance(1)]);
        t.set_backends(&web_name(), &file(), vec![instance(2), instance(3)]);
    });
    let api = |host| (host, "api".to_owned());
    let expected = [api(1), of_file(&[2])[0].clone(), of_file(&[3])[0].clone(), api(5)];
    assert_eq!(hosts(&writer, "web"), expected);
    assert_eq!(hosts(&writer, "shop"), of_file(&[1]));
    write(&writer, 3, |t| t.set_backends(&web_name(), &file(), vec![]));
    assert_eq!(hosts(&writer, "web"), [api(1), api(5)]);
    let tables = writer.tables();
    let endpoints: Vec<_> = tables.endpoints().map(|(at, name)| (*at, name.as_str())).collect();
    assert_eq!(endpoints, [(endpoint(1), "shop"), (endpoint(1), "web"), (endpoint(5), "web")]);
}

#[test]
fn entry_is_removed_with_its_last_row() {
    let writer = web();
    write(&writer, 2, |t| {
        t.delete_service_and_frontends(&web_name(), &file()).unwrap();
        t.set_backends(&web_name(), &file(), vec![]);
    });
    let tables = writer.tables();
    assert!(tables.entry(&web_name()).is_none());
    assert_eq!((tables.entries().count(), tables.endpoints().count()), (0, 0));
}

#[test]
fn health_applies_to_one_service_until_the_next_verdict() {
    let writer = web();
    write(&writer, 2, |t| t.set_backends(&name("shop"), &file(), vec![instance(1)]));
    let set_health = |at, healthy| {
        let result = write(&writer, at, |t| {
            t.update_backend_health(&web_name(), &endpoint(1), healthy).unwrap()
        });
        let tables = writer.tables();
        let list = &tables.entry(&web_name()).unwrap().instances;
        (result.0, result.1, list[0].health)
    };
    let unhealthy = Health { unhealthy: true, since: Some(now(3)) };
    assert_eq!(set_health(3, false), (true, 3, unhealthy));
    let again = set_health(4, false);
    assert_eq!(again, (false, 3, unhealthy), "the same verdict again changes nothing");
    let tables = writer.tables();
    assert_eq!(tables.entry(&name("shop")).unwrap().instances[0].health, Health::default());
    // The source changes the instance: the verdict stays.
    let instances = vec![Instance { weight: 5, ..instance(1) }, instance(2)];
    write(&writer, 5, |t| t.set_backends(&web_name(), &file(), instances));
    assert_eq!(set_health(5, false), (false, 4, unhealthy));
    // An instance that another source adds gets the verdict, and the next verdict is for both.
    write(&writer, 6, |t| t.set_backends(&web_name(), &source("api"), vec![instance(1)]));
    let tables = writer.tables();
    let at = tables.entry(&web_name()).unwrap().at(&endpoint(1)).to_vec();
    assert_eq!(at.iter().map(|i| i.health).collect::<Vec<_>>(), [unhealthy, unhealthy]);
    let healthy = Health { unhealthy: false, since: Some(now(7)) };
    assert_eq!(set_health(7, true), (true, 6, healthy));
    // The first verdict is a change even if the backend is healthy.
    let (result, _) =
        write(&writer, 8, |t| t.update_backend_health(&web_name(), &endpoint(2), true).unwrap());
    assert!(result);
    // After health checks are disabled, only the source's state applies.
    for (at, (had_verdict, revision)) in [(8, (true, 8)), (9, (false, 8))] {
        let result = write(&writer, at, |t| t.remove_backend_health(&web_name(), &endpoint(2)));
        assert_eq!(result, (had_verdict, revision));
    }
    // A backend that is removed and added again has not been checked.
    write(&writer, 9, |t| {
        t.set_backends(&web_name(), &source("api"), vec![]);
        t.set_backends(&web_name(), &file(), vec![]);
        t.set_backends(&web_name(), &file(), vec![instance(1)]);
    });
    let tables = writer.tables();
    assert_eq!(tables.entry(&web_name()).unwrap().instances[0].health, Health::default());
}

#[test]
fn health_of_unknown_backend_is_rejected() {
    let writer = web();
    write(&writer, 2, |t| t.set_backends(&name("shop"), &file(), vec![instance(5)]));
    for (service, host) in [("web", 5), ("web", 6), ("shop", 1), ("mail", 1)] {
        let (result, revision) =
            write(&writer, 3, |t| t.update_backend_health(&name(service), &endpoint(host), false));
        let error = result.unwrap_err();
        let (service, endpoint) = (name(service), endpoint(host));
        assert_eq!(error, Error::BackendNotFound { service, endpoint });
        assert_eq!(revision, 2);
    }
    let (result, _) =
        write(&writer, 3, |t| t.update_backend_health(&web_name(), &endpoint(3), false));
    assert_eq!(
        result.unwrap_err().to_string(),
        "service `web` has no backend at 10.0.0.3:8080/TCP: `weir db show backends` lists the \
         existing ones"
    );
}

#[test]
fn the_preferred_source_of_an_endpoint_is_used_and_the_others_are_shadows() {
    let writer = web();
    let api = source("api");
    write(&writer, 2, |t| {
        t.set_precedence(Precedence::new([file(), api.clone()]));
        let instances = vec![Instance { weight: 7, ..instance(1) }];
        t.set_backends(&web_name(), &api, instances);
        t.set_backends(&web_name(), &source("else"), vec![instance(1)]);
    });
    let weights = |writer: &Writer| {
        let tables = writer.tables();
        tables.entry(&web_name()).unwrap().used().map(|i| i.weight).collect::<Vec<_>>()
    };
    let sources = |writer: &Writer| {
        let all = hosts(writer, "web").into_iter().filter(|(host, _)| *host == 1);
        all.map(|(_, source)| source).collect::<Vec<_>>()
    };
    assert_eq!(
        (weights(&writer), sources(&writer).join(" ")),
        (vec![100, 100], "file api else".into())
    );
    let before = row(&writer, 1);
    write(&writer, 3, |t| t.set_precedence(Precedence::new([api.clone()])));
    // The two sources that are not named share the last rank, sorted by name.
    assert_eq!(
        (weights(&writer), sources(&writer).join(" ")),
        (vec![7, 100], "api else file".into())
    );
    assert!(!Arc::ptr_eq(&before, &row(&writer, 1)));
    // The precedence applies to later instances, and the shadow takes over when the first is
    // removed.
    write(&writer, 4, |t| {
        t.set_backends(&web_name(), &api, vec![]);
        t.set_backends(&web_name(), &source("else"), vec![]);
    });
    assert_eq!(weights(&writer), [100, 100]);
    write(&writer, 5, |t| {
        t.set_backends(&web_name(), &api, vec![Instance { weight: 8, ..instance(1) }]);
    });
    assert_eq!(weights(&writer), [8, 100]);
}

#[test]
fn large_service_is_changed_incrementally() {
    let writer = web();
    let at = |n: u16| Instance { endpoint: Endpoint { port: n, ..endpoint(3) }, ..instance(3) };
    let mut instances = vec![instance(1), instance(2)];
    write(&writer, 2, |t| {
        for n in (0..2000).rev() {
            instances.push(at(n));
            t.set_backends(&web_name(), &file(), instances.clone());
        }
        for n in (0..2000).step_by(2) {
            instances.retain(|instance| instance.endpoint != at(n).endpoint);
            t.set_backends(&web_name(), &file(), instances.clone());
        }
    });
    let tables = writer.tables();
    let list = &tables.entry(&web_name()).unwrap().instances;
    assert_eq!(list.len(), 1002);
    assert!(list.is_sorted_by(|a, b| a.endpoint < b.endpoint));
    assert_eq!(tables.endpoints().count(), 1002);
}
