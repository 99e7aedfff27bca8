//! Tests of sources that use the API: examples, and random histories against a model.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::*;
use crate::name::Name;
use crate::object::ServiceSpec;
use crate::store::Disk;
use crate::{address, backend, frontend, object};

mod fixture;
mod memory_disk;
mod model;
mod removals;

use fixture::Fixture;

/// Number of random histories in `model.rs`.
const CASES: u32 = 400;

fn service(name: &str, address: &str) -> Object {
    let frontend = json!({"address": address, "port": 80, "protocol": "tcp"});
    object("Service", name, &json!({"mode": "nat", "frontends": [frontend]}))
}

fn backends(name: &str, of: &str, addresses: &[&str]) -> Object {
    let one = |address: &&str| json!({"address": address, "port": 80, "protocol": "tcp"});
    let endpoints: Vec<Value> = addresses.iter().map(one).collect();
    object("Backends", name, &json!({"service": of, "endpoints": endpoints}))
}

fn object(kind: &str, name: &str, spec: &Value) -> Object {
    Object::from_json(&json!({"kind": kind, "name": name, "spec": spec})).unwrap()
}

fn shop() -> Vec<Object> {
    vec![
        service("shop/web", "203.0.113.1"),
        backends("shop/web", "shop/web", &["10.0.0.1", "10.0.0.2"]),
        service("shop/old", "203.0.113.2"),
    ]
}

/// Returns a fixture in which source `k8s` has committed the shop, with a lease of 30 s.
fn committed_shop(on_expiry: OnExpiry) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.set("k8s", Setting { lease_s: 30, on_expiry });
    fixture.replace("k8s", "1", shop()).unwrap();
    fixture
}

#[test]
fn commit_replaces_the_complete_list() {
    let mut fixture = committed_shop(OnExpiry::Keep);
    assert_eq!(fixture.names("k8s"), ["Backends shop/web", "Service shop/old", "Service shop/web"]);
    assert_eq!(fixture.serving("shop/web"), ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP"]);

    let id = fixture.begin("k8s", "2").unwrap();
    fixture.add("k8s", id, 0, vec![shop().swap_remove(0)]).unwrap();
    let list = backends("shop/web", "shop/web", &["10.0.0.2", "10.0.0.3"]);
    fixture.add("k8s", id, 1, vec![list]).unwrap();
    assert_eq!(fixture.serving("shop/web"), ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP"], "not yet");
    let committed = fixture.commit("k8s", id).unwrap();
    assert_eq!(committed, Committed { written: 1, released: 1 });
    assert_eq!(fixture.names("k8s"), ["Backends shop/web", "Service shop/web"]);
    assert_eq!(fixture.serving("shop/web"), ["10.0.0.2:80/TCP", "10.0.0.3:80/TCP"]);
    assert!(
        matches!(fixture.commit("k8s", id), Err(Error::NoSession { .. })),
        "the session has ended"
    );

    // A commit of the same list changes no row of the tables.
    let revision = fixture.writer.tables().revision();
    let list = vec![shop().swap_remove(0), backends("shop/web", "shop/web", &["10.0.0.3"])];
    fixture.replace("k8s", "3", list.clone()).unwrap();
    assert_eq!(fixture.writer.tables().revision(), revision + 1);
    assert_eq!(fixture.replace("k8s", "4", list).unwrap(), Committed { written: 0, released: 0 });
    assert_eq!(fixture.writer.tables().revision(), revision + 1);
    assert_eq!(&*fixture.report("k8s").revision, "4");
}

#[test]
fn aborted_replaced_and_idle_sessions_have_no_effect() {
    let mut fixture = committed_shop(OnExpiry::Keep);
    let before = fixture.names("k8s");
    let first = fixture.begin("k8s", "2").unwrap();
    fixture.add("k8s", first, 0, Vec::new()).unwrap();
    let second = fixture.begin("k8s", "3").unwrap();
    assert!(second > first);
    for gone in
        [fixture.commit("k8s", first).unwrap_err(), fixture.abort("k8s", first).unwrap_err()]
    {
        assert!(matches!(gone, Error::Superseded { .. }), "{gone}");
    }
    let never = fixture.commit("k8s", second + 1).unwrap_err();
    assert!(matches!(never, Error::NoSession { .. }), "{never}");
    fixture.abort("k8s", second).unwrap();
    assert!(matches!(fixture.add("k8s", second, 0, Vec::new()), Err(Error::NoSession { .. })));
    let third = fixture.begin("k8s", "4").unwrap();
    fixture.pass(59);
    fixture.add("k8s", third, 0, Vec::new()).unwrap();
    fixture.pass(59);
    assert_eq!(fixture.report("k8s").session.unwrap().next, 1);
    fixture.pass(2);
    assert_eq!(fixture.report("k8s").session, None);
    assert_eq!((fixture.names("k8s"), &*fixture.report("k8s").revision), (before, "1"));
}

#[test]
fn chunks_are_validated_as_a_whole() {
    let mut fixture = Fixture::new();
    fixture.settings.limits = Limits { chunk: 5, session: 8, sessions: 2, ..Limits::default() };
    fixture.configure();
    let id = fixture.begin("k8s", "1").unwrap();
    let mut rejection =
        |number, list: Vec<Object>| fixture.add("k8s", id, number, list).unwrap_err().to_string();
    assert_eq!(rejection(1, shop()), "chunk 1 came before chunk 0; send 0 first");
    let all = "the chunk has 7 objects, frontends and backends; allowed: up to 5; send several \
               chunks";
    assert_eq!(rejection(0, shop()), all);
    let twice = [service("a", "203.0.113.1"), service("a", "203.0.113.2")];
    assert!(rejection(0, twice.to_vec()).contains("Service a of k8s: it occurs twice"));
    let mut foreign = service("a", "203.0.113.1");
    foreign.source = Source::new("file");
    assert!(rejection(0, vec![foreign]).contains("the session is of source `k8s`"));
    let own = object("Appliance", "a", &json!({}));
    assert!(rejection(0, vec![own]).contains("kind Service and Backends"));
    let Spec::Service(spec) = service("a", "203.0.113.1").spec else { panic!() };
    let spec = ServiceSpec { mss: 9_999, ..ServiceSpec::clone(&spec) };
    let wrong = Object::new(Name::new("a").unwrap(), Source::new(API), Spec::Service(spec.into()));
    assert_eq!(
        rejection(0, vec![wrong]),
        "Service a of k8s: spec.mss: 9999 is out of range; allowed: 0 to 9460"
    );
    let first: Vec<Object> = shop().into_iter().take(2).collect();
    let next = Added { next: 1, objects: 2 };
    assert_eq!(fixture.add("k8s", id, 0, first.clone()), Ok(next.clone()));
    assert_eq!(fixture.add("k8s", id, 0, first), Ok(next), "a repetition");
    let more = backends("b", "b", &["10.0.0.1", "10.0.0.2"]);
    let full = fixture.add("k8s", id, 1, vec![more.clone(), service("c", "203.0.113.7")]);
    assert_eq!(full, Err(Error::Session { max: 8 }));
    assert_eq!(fixture.add("k8s", id, 1, vec![more]), Ok(Added { next: 2, objects: 3 }));
    fixture.begin("other", "1").unwrap();
    assert_eq!(fixture.begin("third", "1"), Err(Error::Sessions { max: 2 }));
    assert!(fixture.begin("k8s", "2").is_ok(), "it replaces the open session of the source");
}

#[test]
fn names_leases_and_reserved_sources_are_validated() {
    let mut fixture = Fixture::new();
    for name in ["", "a b", "a/b", "K8s", &"x".repeat(64)] {
        assert!(matches!(fixture.begin(name, "1"), Err(Error::Name(_))), "{name}");
    }
    for name in ["file", "api"] {
        let own = fixture.begin(name, "1").unwrap_err().to_string();
        assert!(own.contains("reserved for the appliance's files"), "{own}");
    }
    let long = fixture.begin("k8s", &"ä".repeat(257)).unwrap_err();
    assert_eq!(long, Error::Revision { found: 257 });
    assert!(fixture.begin("k8s", &"ä".repeat(256)).is_ok());
    for found in [0, 86_401] {
        let request = Begin { lease_s: Some(found), ..Begin::default() };
        let now = fixture.now;
        let rejection = fixture.sources.begin("k8s", &request, fixture.store.objects(), now);
        assert_eq!(rejection.unwrap_err(), Error::Lease { found });
    }
    let unknown = fixture.renew("k9s", None).unwrap_err().to_string();
    assert!(unknown.contains("has never begun a session"), "{unknown}");
}

#[test]
fn on_expiry_objects_are_kept_quarantined_or_released_until_the_source_recovers() {
    for on_expiry in [OnExpiry::Keep, OnExpiry::Quarantine, OnExpiry::Release] {
        let mut fixture = committed_shop(on_expiry);
        fixture.pass(29);
        assert_eq!(fixture.renew("k8s", None).unwrap().lease_s, 30);
        fixture.pass(29);
        assert_eq!(
            (fixture.report("k8s").lease_status, fixture.report("k8s").left_s),
            ("valid", Some(1))
        );
        fixture.pass(1);
        let (status, serving, rows) = match on_expiry {
            OnExpiry::Keep => ("Persisted", 2, 2),
            OnExpiry::Quarantine => ("Quarantined", 0, 2),
            OnExpiry::Release => ("Released", 0, 0),
        };
        assert_eq!(fixture.report("k8s").lease_status, status);
        assert_eq!(fixture.serving("shop/web").len(), serving, "{on_expiry:?}");
        assert_eq!(fixture.writer.tables().frontend_count(), rows);
        let written = fixture.store.objects().revision();
        fixture.pass(1_000);
        assert_eq!(fixture.store.objects().revision(), written, "the change is made once");
        // A restart and a jump of the clock do not change the result.
        fixture.restart();
        assert_eq!(
            (fixture.report("k8s").lease_status, fixture.serving("shop/web").len()),
            (status, serving)
        );

        if on_expiry == OnExpiry::Release {
            let released = fixture.renew("k8s", None).unwrap_err();
            assert!(matches!(released, Error::Released { .. }), "{released}");
            fixture.replace("k8s", "2", shop()).unwrap();
        } else {
            assert_eq!(&*fixture.renew("k8s", None).unwrap().revision, "1");
        }
        assert_eq!(
            (fixture.report("k8s").lease_status, fixture.serving("shop/web").len()),
            ("valid", 2)
        );
    }
}

#[test]
fn new_setting_applies_to_expired_leases_but_restores_no_released_objects() {
    let mut fixture = committed_shop(OnExpiry::Keep);
    fixture.pass(31);
    for (on_expiry, status, serving) in [
        (OnExpiry::Quarantine, "Quarantined", 0),
        (OnExpiry::Keep, "Persisted", 2),
        (OnExpiry::Release, "Released", 0),
        (OnExpiry::Keep, "Released", 0),
    ] {
        fixture.set("k8s", Setting { lease_s: 30, on_expiry });
        fixture.pass(1);
        let found = (fixture.report("k8s").lease_status, fixture.serving("shop/web").len());
        assert_eq!(found, (status, serving), "{on_expiry:?}");
    }
}

#[test]
fn valid_source_precedes_preferred_quarantined_source() {
    let mut fixture = committed_shop(OnExpiry::Quarantine);
    fixture.prefer(&["k8s", "other"]);
    let list = backends("more", "shop/web", &["10.0.0.1", "10.0.0.9"]);
    fixture.replace("other", "1", vec![list]).unwrap();
    let all = ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP", "10.0.0.9:80/TCP"];
    assert_eq!(fixture.serving("shop/web"), all);
    assert_eq!(fixture.sources_of("shop/web"), ["k8s", "k8s", "other"]);
    fixture.pass(31);
    assert_eq!(fixture.serving("shop/web"), [all[0], all[2]]);
    assert_eq!(fixture.sources_of("shop/web"), ["other", "k8s", "other"]);
    fixture.renew("k8s", Some(60)).unwrap();
    assert_eq!(fixture.serving("shop/web"), all);
    assert_eq!(fixture.sources_of("shop/web"), ["k8s", "k8s", "other"]);
}

#[test]
fn batches_rejected_by_the_disk_are_returned_again() {
    let mut fixture = committed_shop(OnExpiry::Quarantine);
    let id = fixture.begin("k8s", "2").unwrap();
    fixture.add("k8s", id, 0, vec![service("shop/new", "203.0.113.9")]).unwrap();
    fixture.fail_disk(1);
    assert!(fixture.commit("k8s", id).is_err());
    assert_eq!(fixture.names("k8s").len(), 3);
    fixture.commit("k8s", id).unwrap();
    assert_eq!(fixture.names("k8s"), ["Service shop/new"]);
    fixture.fail_disk(1);
    fixture.pass(30);
    assert_eq!(fixture.report("k8s").lease_status, "valid");
    fixture.pass(1);
    assert_eq!(fixture.report("k8s").lease_status, "Quarantined");
    fixture.fail_disk(1);
    assert!(fixture.renew("k8s", None).is_err());
    assert_eq!(fixture.report("k8s").lease_status, "Quarantined");
    fixture.renew("k8s", None).unwrap();
    assert_eq!(fixture.report("k8s").lease_status, "valid");
}

#[test]
fn precedence_change_renews_only_affected_rows() {
    let mut fixture = committed_shop(OnExpiry::Keep);
    fixture.prefer(&["k8s"]);
    let list = vec![service("own", "203.0.113.20"), backends("own", "own", &["10.0.0.1"])];
    fixture.replace("other", "1", list).unwrap();
    let before = fixture.rows();
    fixture.prefer(&["new", "other", "k8s"]);
    assert_eq!(fixture.rows(), before, "no service or endpoint has several sources");
    fixture.replace("new", "1", vec![backends("own", "own", &["10.0.0.1"])]).unwrap();
    let before = fixture.rows();
    fixture.prefer(&["other", "k8s", "new"]);
    let touched: Vec<String> =
        fixture.rows().difference(&before).map(|row| row.0.clone()).collect();
    assert_eq!(touched, ["203.0.113.20:80/TCP"]);
}

#[test]
fn requests_and_responses_serialize_as_documented() {
    let begin: Begin = serde_json::from_value(json!({"revision": "7", "lease_s": 30})).unwrap();
    assert_eq!(begin, Begin { revision: "7".into(), lease_s: Some(30) });
    let begun = Begun { session: 5, lease_s: 30, chunk: 10, items: 20 };
    let expected = json!({"session": 5, "lease_s": 30, "chunk": 10, "items": 20});
    assert_eq!(serde_json::to_value(begun).unwrap(), expected);
    let report = serde_json::to_value(committed_shop(OnExpiry::Release).report("k8s")).unwrap();
    let expected = json!({"source": "k8s", "revision": "1", "lease_s": 30, "left_s": 30,
        "lease_status": "valid", "on_expiry": "release", "held": null, "session": null});
    assert_eq!(report, expected);
    assert!(serde_json::from_value::<Lease>(json!({"lease": 3})).is_err());
}
