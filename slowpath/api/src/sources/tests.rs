//! Endpoints of sources: the response of each, and random histories checked against the model of
//! the state machine.

use axum::http::StatusCode;
use config::checked::OnExpiry;
use serde_json::{Value, json};
use state::name::{Name, Source};
use state::object::{Key, Kind};
use state::sources::{Limits, Setting};
use state::store::Disk;
use state::{address, backend, frontend, object};

use crate::{Outcome, Problem};

#[path = "../../../state/src/sources/tests/model.rs"]
mod model;
#[path = "../../../state/src/sources/tests/plate.rs"]
mod plate;
mod world;

use world::World;

/// Number of random histories.
const CASES: u32 = 100;

fn service(name: &str, address: &str) -> Value {
    let frontend = json!({ "address": address, "port": 80, "protocol": "tcp" });
    json!({ "kind": "Service", "name": name, "spec": { "frontends": [frontend] } })
}

fn backends(name: &str, of: &str, addresses: &[&str]) -> Value {
    let one = |address: &&str| json!({ "address": address, "port": 80, "protocol": "tcp" });
    let endpoints: Vec<Value> = addresses.iter().map(one).collect();
    let spec = json!({ "service": of, "endpoints": endpoints });
    json!({ "kind": "Backends", "name": name, "spec": spec })
}

fn shop() -> Value {
    let list = backends("shop/web", "shop/web", &["10.0.0.1", "10.0.0.2"]);
    json!([service("shop/web", "203.0.113.1"), list])
}

/// Sends a request that must fail, and returns the problem.
#[track_caller]
fn problem(
    world: &mut World,
    asked: (&str, &str, Option<Value>),
    status: u16,
    sort: &str,
) -> Problem {
    let (method, path, body) = asked;
    let revision = world.store.objects().revision();
    let (code, json) = world.ask(method, path, body);
    let problem: Problem = serde_json::from_value(json).unwrap();
    let found = (code.as_u16(), problem.status, &*problem.sort);
    assert_eq!(
        found,
        (status, status, &*format!("urn:weir:{sort}")),
        "{method} {path}: {problem:?}"
    );
    assert_eq!(world.store.objects().revision(), revision, "it changed something");
    problem
}

#[test]
fn a_source_says_all_anew_chunk_by_chunk() {
    let mut world = World::new();
    let (status, begun) =
        world.ask("POST", "/k8s/sessions", Some(json!({ "revision": "7", "lease_s": 30 })));
    assert_eq!(status, StatusCode::CREATED);
    let limits = Limits::default();
    let expected = (json!(30), json!(limits.chunk), json!(limits.session));
    assert_eq!(
        (&begun["lease_s"], &begun["chunk"], &begun["items"]),
        (&expected.0, &expected.1, &expected.2)
    );
    let session = format!("/k8s/sessions/{}", begun["session"]);
    let chunk = |n: u64| format!("{session}/chunks/{n}");
    let first = world.ask("PUT", &chunk(0), Some(shop()));
    assert_eq!(first, (StatusCode::OK, json!({ "next": 1, "objects": 2 })));
    assert_eq!(world.ask("PUT", &chunk(0), Some(shop())), first, "a repetition");
    let more = json!([service("shop/more", "203.0.113.2")]);
    assert_eq!(world.ask("PUT", &chunk(1), Some(more)).1, json!({ "next": 2, "objects": 3 }));
    let report = world.report("k8s");
    assert_eq!((report.revision.as_str(), report.left_s), ("", Some(30)), "nothing is said yet");
    assert_eq!(report.session.unwrap()["next"], 2);
    assert!(world.names("k8s").is_empty());

    let commit = format!("{session}/commit");
    let tried = world.ask("POST", &format!("{commit}?dry_run=true"), None);
    assert_eq!(tried, (StatusCode::OK, json!({ "written": 3, "released": 0 })));
    assert!(world.names("k8s").is_empty(), "as if");
    assert_eq!(world.ask("POST", &commit, None), tried);
    let names = ["Service shop/more", "Service shop/web", "Backends shop/web"];
    assert_eq!(world.names("k8s"), names);
    problem(&mut world, ("POST", &commit, None), 404, "absent");

    let id = world.begin("k8s", "8").unwrap();
    let only = json!([service("shop/more", "203.0.113.2")]);
    world.ask("PUT", &format!("/k8s/sessions/{id}/chunks/0"), Some(only));
    assert_eq!(world.commit("k8s", id), Ok(json!({ "written": 0, "released": 2 })));
    assert_eq!(world.names("k8s"), ["Service shop/more"]);
    let (status, all) = world.ask("GET", "", None);
    assert_eq!((status, &all["items"][0]["revision"]), (StatusCode::OK, &json!("8")), "{all}");
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let id = world.begin("k8s", "9").unwrap();
    world.abort("k8s", id).unwrap();
    assert_eq!(world.renew("k8s", None), Ok(json!({ "lease_s": 30, "revision": "8" })));
    assert_eq!(world.renew("k8s", Some(60)), Ok(json!({ "lease_s": 60, "revision": "8" })));
    assert_eq!(world.report("k8s").left_s, Some(60));
}

#[test]
fn whatever_cannot_be_is_a_problem_of_its_sort_with_its_field() {
    let mut world = World::new();
    let id = world.begin("k8s", "1").unwrap();
    let first = id;
    let (session, w) = (format!("/k8s/sessions/{id}"), &mut world);
    let chunk = |n: u64| format!("{session}/chunks/{n}");
    let field = |problem: Problem| problem.field.unwrap_or_default().into_string();
    let begin = |body: Value| ("POST", "/k8s/sessions", Some(body));
    assert_eq!(field(problem(w, begin(json!({ "lease_s": 0 })), 422, "wrong")), "lease_s");
    assert_eq!(field(problem(w, begin(json!({ "lease_s": 86_401 })), 422, "wrong")), "lease_s");
    assert_eq!(field(problem(w, begin(json!({ "lease_s": "x" })), 422, "wrong")), "lease_s");
    let long = json!({ "revision": "x".repeat(257) });
    assert_eq!(field(problem(w, begin(long), 422, "wrong")), "revision");
    problem(w, begin(json!({ "lease": 1 })), 422, "wrong");
    problem(w, begin(json!([])), 400, "request");
    problem(w, ("POST", "/K8s/sessions", None), 404, "absent");
    for own in ["file", "api"] {
        problem(w, ("POST", &format!("/{own}/sessions"), None), 403, "foreign");
        problem(w, ("DELETE", &format!("/{own}/sessions/1"), None), 403, "foreign");
    }
    problem(w, ("POST", "/k8s/sessions?wait=1s", None), 400, "request");
    problem(w, ("GET", "/none", None), 404, "absent");
    problem(w, ("POST", "/none/renew", None), 404, "absent");
    problem(w, ("DELETE", "/k8s", None), 405, "method");

    problem(w, ("PUT", &format!("{session}x/chunks/0"), Some(shop())), 400, "request");
    let gap = problem(w, ("PUT", &chunk(1), Some(shop())), 409, "gap");
    assert!(gap.detail.contains("send 0 first"), "{gap:?}");
    problem(w, ("PUT", &chunk(0), Some(json!({}))), 400, "request");
    problem(w, ("PUT", &chunk(0), None), 415, "media");
    let mut bad = shop();
    bad[1]["spec"]["endpoints"][1]["port"] = json!(70_000);
    let told = problem(w, ("PUT", &chunk(0), Some(bad)), 422, "wrong");
    assert_eq!(told.field.as_deref(), Some("[1].spec.endpoints[1].port"), "{told:?}");
    assert_eq!(told.object.as_deref(), Some("Backends shop/web of api"));
    assert_eq!(field(problem(w, ("PUT", &chunk(0), Some(json!([7]))), 422, "wrong")), "[0]");
    let mut strange = shop();
    strange[0]["source"] = json!("file");
    assert_eq!(field(problem(w, ("PUT", &chunk(0), Some(strange)), 403, "foreign")), "source");
    let appliance = json!([{ "kind": "Appliance", "name": "a", "spec": {} }]);
    assert_eq!(field(problem(w, ("PUT", &chunk(0), Some(appliance)), 422, "wrong")), "kind");
    let twice = json!([shop()[0], shop()[0]]);
    let told = problem(w, ("PUT", &chunk(0), Some(twice)), 422, "wrong");
    assert_eq!(told.object.as_deref(), Some("Service shop/web of k8s"), "{told:?}");

    let second = w.begin("k8s", "2").unwrap();
    for (method, path) in [("POST", format!("{session}/commit")), ("DELETE", session.clone())] {
        problem(w, (method, &path, None), 409, "superseded");
    }
    problem(w, ("PUT", &chunk(0), Some(shop())), 409, "superseded");
    assert!(second > first && w.abort("k8s", second).is_ok());
    problem(w, ("DELETE", &session, None), 404, "absent");
    w.clock.settings.lock().limits =
        Limits { chunk: 4, session: 7, sessions: 1, ..Limits::default() };
    let id = w.begin("k8s", "3").unwrap();
    let chunk = |n: u64| format!("/k8s/sessions/{id}/chunks/{n}");
    problem(w, ("PUT", &chunk(0), Some(shop())), 413, "too-large");
    let part = |name: &str| json!([backends(name, "a", &["10.0.0.1", "10.0.0.2", "10.0.0.3"])]);
    assert_eq!(w.ask("PUT", &chunk(0), Some(part("a"))).0, StatusCode::OK);
    problem(w, ("PUT", &chunk(1), Some(part("b"))), 413, "too-large");
    problem(w, ("POST", "/other/sessions", None), 429, "busy");
}

#[test]
fn what_the_disk_refuses_is_not_answered_and_the_session_stays() {
    let mut world = World::new();
    world.fail_disk(1);
    problem(&mut world, ("POST", "/k8s/sessions", None), 503, "store");
    world.set("k8s", Setting { lease_s: 5, on_expiry: OnExpiry::Release });
    let id = world.begin("k8s", "1").unwrap();
    world.ask("PUT", &format!("/k8s/sessions/{id}/chunks/0"), Some(shop()));
    let commit = format!("/k8s/sessions/{id}/commit");
    world.fail_disk(1);
    problem(&mut world, ("POST", &commit, None), 503, "store");
    assert_eq!(world.commit("k8s", id), Ok(json!({ "written": 2, "released": 0 })));
    world.restart();
    assert_eq!(world.names("k8s").len(), 2, "it was kept");
    world.fail_disk(2);
    world.pass(6);
    assert_eq!((&*world.report("k8s").heard, world.names("k8s").len()), ("yes", 2));
    world.pass(1);
    assert_eq!((&*world.report("k8s").heard, world.names("k8s").len()), ("Released", 0));
    problem(&mut world, ("POST", "/k8s/renew", None), 409, "released");
}

#[test]
fn a_commit_waits_for_all_of_it_to_be_in_force_if_that_is_asked() {
    let mut world = World::new();
    let mut say = |outcome: Option<Outcome>, said: Value| {
        *world.clock.outcome.lock() = outcome;
        let id = world.begin("k8s", "1").unwrap();
        world.ask("PUT", &format!("/k8s/sessions/{id}/chunks/0"), Some(said));
        let answer = world.ask("POST", &format!("/k8s/sessions/{id}/commit?wait=1ms"), None);
        let wait = world.clock.waits.lock().pop().unwrap();
        assert!(wait.whole && wait.revision == world.store.objects().revision());
        let about = wait.about.iter();
        let about = about.filter(|about| about.key.kind != Kind::Source).map(|about| {
            (about.key.to_string(), about.service.clone().unwrap(), about.addresses.len())
        });
        (answer.0.as_u16(), answer.1, about.collect::<Vec<_>>())
    };
    let web = || Name::new("shop/web").unwrap();
    let both = [
        ("Service shop/web of k8s".to_owned(), web(), 1),
        ("Backends shop/web of k8s".to_owned(), web(), 0),
    ];
    let (status, _, about) = say(None, shop());
    assert_eq!((status, about.as_slice()), (202, &both[..]), "it is kept, and on its way");
    // `wait` also waits for removals.
    let (status, committed, about) = say(Some(Outcome::Done), json!([shop()[0]]));
    assert_eq!((status, committed), (200, json!({ "written": 0, "released": 1 })));
    assert_eq!(about, both[1..]);
    let object = Key { kind: Kind::Service, name: web(), source: Source::new("k8s") };
    let refused = Outcome::Refused { object, why: "no room".into() };
    let (status, problem, _) = say(Some(refused), shop());
    assert_eq!((status, &problem["type"]), (409, &json!("urn:weir:not-in-force")));
    assert_eq!(problem["object"], both[0].0);
}
