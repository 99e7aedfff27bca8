//! Tests of sources that use the API: examples, and random histories against a model.

use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

use super::*;
use crate::name::Name;
use crate::object::ServiceSpec;
use crate::store::Disk;
use crate::{address, backend, frontend, object};

mod model;
mod plate;
mod removals;
mod world;

use world::World;

/// Number of random histories.
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

/// Returns a world in which source `k8s` has committed the shop, with a lease of 30 s.
fn told(on_expiry: OnExpiry) -> World {
    let mut world = World::new();
    world.set("k8s", Setting { lease_s: 30, on_expiry });
    world.says("k8s", "1", shop()).unwrap();
    world
}

#[test]
fn what_is_committed_is_all_that_the_source_says() {
    let mut world = told(OnExpiry::Keep);
    assert_eq!(world.names("k8s"), ["Backends shop/web", "Service shop/old", "Service shop/web"]);
    assert_eq!(world.serving("shop/web"), ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP"]);

    let id = world.begin("k8s", "2").unwrap();
    world.add("k8s", id, 0, vec![shop().swap_remove(0)]).unwrap();
    let list = backends("shop/web", "shop/web", &["10.0.0.2", "10.0.0.3"]);
    world.add("k8s", id, 1, vec![list]).unwrap();
    assert_eq!(world.serving("shop/web"), ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP"], "not yet");
    let committed = world.commit("k8s", id).unwrap();
    assert_eq!(committed, Committed { written: 1, released: 1 });
    assert_eq!(world.names("k8s"), ["Backends shop/web", "Service shop/web"]);
    assert_eq!(world.serving("shop/web"), ["10.0.0.2:80/TCP", "10.0.0.3:80/TCP"]);
    assert!(matches!(world.commit("k8s", id), Err(Error::NoSession { .. })), "it has ended");

    // Writing the same objects again changes nothing and creates no event.
    let revision = world.writer.tables().revision();
    let said = vec![shop().swap_remove(0), backends("shop/web", "shop/web", &["10.0.0.3"])];
    world.says("k8s", "3", said.clone()).unwrap();
    assert_eq!(world.writer.tables().revision(), revision + 1);
    assert_eq!(world.says("k8s", "4", said).unwrap(), Committed { written: 0, released: 0 });
    assert_eq!(world.writer.tables().revision(), revision + 1);
    assert_eq!(&*world.report("k8s").revision, "4");
}

#[test]
fn an_aborted_a_replaced_and_an_idle_session_were_never_there() {
    let mut world = told(OnExpiry::Keep);
    let before = world.names("k8s");
    let first = world.begin("k8s", "2").unwrap();
    world.add("k8s", first, 0, Vec::new()).unwrap();
    let second = world.begin("k8s", "3").unwrap();
    assert!(second > first);
    for gone in [world.commit("k8s", first).unwrap_err(), world.abort("k8s", first).unwrap_err()] {
        assert!(matches!(gone, Error::Superseded { .. }), "{gone}");
    }
    let never = world.commit("k8s", second + 1).unwrap_err();
    assert!(matches!(never, Error::NoSession { .. }), "{never}");
    world.abort("k8s", second).unwrap();
    assert!(matches!(world.add("k8s", second, 0, Vec::new()), Err(Error::NoSession { .. })));
    let third = world.begin("k8s", "4").unwrap();
    world.pass(59);
    world.add("k8s", third, 0, Vec::new()).unwrap();
    world.pass(59);
    assert_eq!(world.report("k8s").session.unwrap().next, 1);
    world.pass(2);
    assert_eq!(world.report("k8s").session, None);
    assert_eq!((world.names("k8s"), &*world.report("k8s").revision), (before, "1"));
}

#[test]
fn chunks_are_bounded_numbered_and_checked_before_any_of_them_is_taken() {
    let mut world = World::new();
    world.settings.limits = Limits { chunk: 5, session: 8, sessions: 2, ..Limits::default() };
    world.configure();
    let id = world.begin("k8s", "1").unwrap();
    let mut refused =
        |number, said: Vec<Object>| world.add("k8s", id, number, said).unwrap_err().to_string();
    assert_eq!(refused(1, shop()), "chunk 1 came before chunk 0; send 0 first");
    let all = "the chunk has 7 objects, frontends and backends; a chunk may have 5: send several";
    assert_eq!(refused(0, shop()), all);
    let twice = [service("a", "203.0.113.1"), service("a", "203.0.113.2")];
    assert!(refused(0, twice.to_vec()).contains("Service a of k8s: it is there twice"));
    let mut strange = service("a", "203.0.113.1");
    strange.source = Source::new("file");
    assert!(refused(0, vec![strange]).contains("not what source `k8s` says"));
    let own = object("Appliance", "a", &json!({}));
    assert!(refused(0, vec![own]).contains("kind Service and Backends"));
    let Spec::Service(spec) = service("a", "203.0.113.1").spec else { panic!() };
    let spec = ServiceSpec { mss: 9_999, ..ServiceSpec::clone(&spec) };
    let wrong = Object::new(Name::new("a").unwrap(), Source::new(API), Spec::Service(spec.into()));
    assert_eq!(
        refused(0, vec![wrong]),
        "Service a of k8s: spec.mss: 9999 is out of range; allowed: 0 to 9460"
    );
    let first: Vec<Object> = shop().into_iter().take(2).collect();
    let next = Added { next: 1, objects: 2 };
    assert_eq!(world.add("k8s", id, 0, first.clone()), Ok(next.clone()));
    assert_eq!(world.add("k8s", id, 0, first), Ok(next), "a repetition");
    let more = backends("b", "b", &["10.0.0.1", "10.0.0.2"]);
    let full = world.add("k8s", id, 1, vec![more.clone(), service("c", "203.0.113.7")]);
    assert_eq!(full, Err(Error::Session { most: 8 }));
    assert_eq!(world.add("k8s", id, 1, vec![more]), Ok(Added { next: 2, objects: 3 }));
    world.begin("other", "1").unwrap();
    assert_eq!(world.begin("third", "1"), Err(Error::Sessions { most: 2 }));
    assert!(world.begin("k8s", "2").is_ok(), "instead of its own");
}

#[test]
fn names_leases_and_the_appliances_own_sources_are_looked_at() {
    let mut world = World::new();
    for name in ["", "a b", "a/b", "K8s", &"x".repeat(64)] {
        assert!(matches!(world.begin(name, "1"), Err(Error::Name(_))), "{name}");
    }
    for name in ["file", "api"] {
        let own = world.begin(name, "1").unwrap_err().to_string();
        assert!(own.contains("the appliance's own"), "{own}");
    }
    let long = world.begin("k8s", &"ä".repeat(257)).unwrap_err();
    assert_eq!(long, Error::Revision { found: 257 });
    assert!(world.begin("k8s", &"ä".repeat(256)).is_ok());
    for found in [0, 86_401] {
        let asked = Begin { lease_s: Some(found), ..Begin::default() };
        let now = world.now;
        let refused = world.sources.begin("k8s", &asked, world.store.objects(), now);
        assert_eq!(refused.unwrap_err(), Error::Lease { found });
    }
    let unknown = world.renew("k9s", None).unwrap_err().to_string();
    assert!(unknown.contains("has said nothing yet"), "{unknown}");
}

#[test]
fn a_lease_that_runs_out_is_kept_quarantined_or_released_and_comes_back() {
    for on_expiry in [OnExpiry::Keep, OnExpiry::Quarantine, OnExpiry::Release] {
        let mut world = told(on_expiry);
        world.pass(29);
        assert_eq!(world.renew("k8s", None).unwrap().lease_s, 30);
        world.pass(29);
        assert_eq!((world.report("k8s").heard, world.report("k8s").left_s), ("yes", Some(1)));
        world.pass(1);
        let (heard, serving, rows) = match on_expiry {
            OnExpiry::Keep => ("Kept", 2, 2),
            OnExpiry::Quarantine => ("Quarantined", 0, 2),
            OnExpiry::Release => ("Released", 0, 0),
        };
        assert_eq!(world.report("k8s").heard, heard);
        assert_eq!(world.serving("shop/web").len(), serving, "{on_expiry:?}");
        assert_eq!(world.writer.tables().frontend_count(), rows);
        let written = world.store.objects().revision();
        world.pass(1_000);
        assert_eq!(world.store.objects().revision(), written, "it is said once");
        // Neither a restart nor a clock that jumps changes this.
        world.restart();
        assert_eq!((world.report("k8s").heard, world.serving("shop/web").len()), (heard, serving));

        if on_expiry == OnExpiry::Release {
            let released = world.renew("k8s", None).unwrap_err();
            assert!(matches!(released, Error::Released { .. }), "{released}");
            world.says("k8s", "2", shop()).unwrap();
        } else {
            assert_eq!(&*world.renew("k8s", None).unwrap().revision, "1");
        }
        assert_eq!((world.report("k8s").heard, world.serving("shop/web").len()), ("yes", 2));
    }
}

#[test]
fn another_setting_judges_what_ran_out_before_but_brings_nothing_back() {
    let mut world = told(OnExpiry::Keep);
    world.pass(31);
    for (on_expiry, heard, serving) in [
        (OnExpiry::Quarantine, "Quarantined", 0),
        (OnExpiry::Keep, "Kept", 2),
        (OnExpiry::Release, "Released", 0),
        (OnExpiry::Keep, "Released", 0),
    ] {
        world.set("k8s", Setting { lease_s: 30, on_expiry });
        world.pass(1);
        let found = (world.report("k8s").heard, world.serving("shop/web").len());
        assert_eq!(found, (heard, serving), "{on_expiry:?}");
    }
}

#[test]
fn a_source_that_is_heard_comes_before_a_preferred_one_that_is_quarantined() {
    let mut world = told(OnExpiry::Quarantine);
    world.prefer(&["k8s", "other"]);
    let list = backends("more", "shop/web", &["10.0.0.1", "10.0.0.9"]);
    world.says("other", "1", vec![list]).unwrap();
    let all = ["10.0.0.1:80/TCP", "10.0.0.2:80/TCP", "10.0.0.9:80/TCP"];
    assert_eq!(world.serving("shop/web"), all);
    assert_eq!(world.sources_of("shop/web"), ["k8s", "k8s", "other"]);
    world.pass(31);
    assert_eq!(world.serving("shop/web"), [all[0], all[2]]);
    assert_eq!(world.sources_of("shop/web"), ["other", "k8s", "other"]);
    world.renew("k8s", Some(60)).unwrap();
    assert_eq!(world.serving("shop/web"), all);
    assert_eq!(world.sources_of("shop/web"), ["k8s", "k8s", "other"]);
}

#[test]
fn what_the_disk_refuses_is_asked_for_again() {
    let mut world = told(OnExpiry::Quarantine);
    let id = world.begin("k8s", "2").unwrap();
    world.add("k8s", id, 0, vec![service("shop/new", "203.0.113.9")]).unwrap();
    world.fail_disk(1);
    assert!(world.commit("k8s", id).is_err());
    assert_eq!(world.names("k8s").len(), 3);
    world.commit("k8s", id).unwrap();
    assert_eq!(world.names("k8s"), ["Service shop/new"]);
    world.fail_disk(1);
    world.pass(30);
    assert_eq!(world.report("k8s").heard, "yes");
    world.pass(1);
    assert_eq!(world.report("k8s").heard, "Quarantined");
    world.fail_disk(1);
    assert!(world.renew("k8s", None).is_err());
    assert_eq!(world.report("k8s").heard, "Quarantined");
    world.renew("k8s", None).unwrap();
    assert_eq!(world.report("k8s").heard, "yes");
}

#[test]
fn an_order_that_changes_nothing_touches_nothing() {
    let mut world = told(OnExpiry::Keep);
    world.prefer(&["k8s"]);
    let said = vec![service("own", "203.0.113.20"), backends("own", "own", &["10.0.0.1"])];
    world.says("other", "1", said).unwrap();
    let before = world.rows();
    world.prefer(&["new", "other", "k8s"]);
    assert_eq!(world.rows(), before, "nobody says the same, so nobody is chosen anew");
    world.says("new", "1", vec![backends("own", "own", &["10.0.0.1"])]).unwrap();
    let before = world.rows();
    world.prefer(&["other", "k8s", "new"]);
    let touched: Vec<String> = world.rows().difference(&before).map(|row| row.0.clone()).collect();
    assert_eq!(touched, ["203.0.113.20:80/TCP"]);
}

#[test]
fn requests_and_answers_are_written_as_documented() {
    let begin: Begin = serde_json::from_value(json!({"revision": "7", "lease_s": 30})).unwrap();
    assert_eq!(begin, Begin { revision: "7".into(), lease_s: Some(30) });
    let begun = Begun { session: 5, lease_s: 30, chunk: 10, items: 20 };
    let expected = json!({"session": 5, "lease_s": 30, "chunk": 10, "items": 20});
    assert_eq!(serde_json::to_value(begun).unwrap(), expected);
    let report = serde_json::to_value(told(OnExpiry::Release).report("k8s")).unwrap();
    let expected = json!({"source": "k8s", "revision": "1", "lease_s": 30, "left_s": 30,
        "heard": "yes", "on_expiry": "release", "held": null, "session": null});
    assert_eq!(report, expected);
    assert!(serde_json::from_value::<Lease>(json!({"lease": 3})).is_err());
}
