//! Tests of the endpoints of sources: their responses, and random histories checked against the
//! model of the state machine. `slowpath/tests/process/removal.rs` tests `confirm`.

use axum::http::StatusCode;
use config::checked::OnExpiry;
use serde_json::{Value, json};
use state::name::{Name, Source};
use state::object::{Key, Kind};
use state::sources::{Limits, Setting};
use state::store::Disk;
use state::{address, backend, frontend, object};

use crate::{Outcome, Problem};

mod fixture;
#[path = "../../../state/src/sources/tests/memory_disk.rs"]
mod memory_disk;
#[path = "../../../state/src/sources/tests/model.rs"]
mod model;

use fixture::Fixture;

/// Number of random histories that `model` plays over HTTP.
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

/// Sends a request that must fail with this status and problem type, and change no object. Returns
/// the problem.
#[track_caller]
fn problem(
    fixture: &mut Fixture,
    request: (&str, &str, Option<Value>),
    status: u16,
    problem_type: &str,
) -> Problem {
    let (method, path, body) = request;
    let revision = fixture.store.objects().revision();
    let (code, json) = fixture.request(method, path, body);
    let problem: Problem = serde_json::from_value(json).unwrap();
    let found = (code.as_u16(), problem.status, &*problem.problem_type);
    assert_eq!(
        found,
        (status, status, &*format!("urn:weir:{problem_type}")),
        "{method} {path}: {problem:?}"
    );
    assert_eq!(fixture.store.objects().revision(), revision, "the failed request changed objects");
    problem
}

#[test]
fn commit_replaces_the_list_by_all_chunks_at_once() {
    let mut fixture = Fixture::new();
    let (status, begun) =
        fixture.request("POST", "/k8s/sessions", Some(json!({ "revision": "7", "lease_s": 30 })));
    assert_eq!(status, StatusCode::CREATED);
    let limits = Limits::default();
    let expected = (json!(30), json!(limits.chunk), json!(limits.session));
    assert_eq!(
        (&begun["lease_s"], &begun["chunk"], &begun["items"]),
        (&expected.0, &expected.1, &expected.2)
    );
    let session = format!("/k8s/sessions/{}", begun["session"]);
    let chunk = |n: u64| format!("{session}/chunks/{n}");
    let first = fixture.request("PUT", &chunk(0), Some(shop()));
    assert_eq!(first, (StatusCode::OK, json!({ "next": 1, "objects": 2 })));
    assert_eq!(fixture.request("PUT", &chunk(0), Some(shop())), first, "a repetition");
    let more = json!([service("shop/more", "203.0.113.2")]);
    assert_eq!(fixture.request("PUT", &chunk(1), Some(more)).1, json!({ "next": 2, "objects": 3 }));
    let report = fixture.report("k8s");
    assert_eq!((report.revision.as_str(), report.left_s), ("", Some(30)), "not committed");
    assert_eq!(report.session.unwrap()["next"], 2);
    assert!(fixture.names("k8s").is_empty());

    let commit = format!("{session}/commit");
    let dry_run = fixture.request("POST", &format!("{commit}?dry_run=true"), None);
    assert_eq!(dry_run, (StatusCode::OK, json!({ "written": 3, "released": 0 })));
    assert!(fixture.names("k8s").is_empty(), "a dry run changes nothing");
    assert_eq!(fixture.request("POST", &commit, None), dry_run);
    let names = ["Service shop/more", "Service shop/web", "Backends shop/web"];
    assert_eq!(fixture.names("k8s"), names);
    problem(&mut fixture, ("POST", &commit, None), 404, "not-found");

    let id = fixture.begin("k8s", "8").unwrap();
    let only = json!([service("shop/more", "203.0.113.2")]);
    fixture.request("PUT", &format!("/k8s/sessions/{id}/chunks/0"), Some(only));
    assert_eq!(fixture.commit("k8s", id), Ok(json!({ "written": 0, "released": 2 })));
    assert_eq!(fixture.names("k8s"), ["Service shop/more"]);
    let (status, all) = fixture.request("GET", "", None);
    assert_eq!((status, &all["items"][0]["revision"]), (StatusCode::OK, &json!("8")), "{all}");
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    let id = fixture.begin("k8s", "9").unwrap();
    fixture.abort("k8s", id).unwrap();
    assert_eq!(fixture.renew("k8s", None), Ok(json!({ "lease_s": 30, "revision": "8" })));
    assert_eq!(fixture.renew("k8s", Some(60)), Ok(json!({ "lease_s": 60, "revision": "8" })));
    assert_eq!(fixture.report("k8s").left_s, Some(60));
}

#[test]
fn invalid_requests_return_problem_type_and_field() {
    let mut fixture = Fixture::new();
    let id = fixture.begin("k8s", "1").unwrap();
    let first = id;
    let (session, f) = (format!("/k8s/sessions/{id}"), &mut fixture);
    let chunk = |n: u64| format!("{session}/chunks/{n}");
    let field = |problem: Problem| problem.field.unwrap_or_default().into_string();
    let begin = |body: Value| ("POST", "/k8s/sessions", Some(body));
    assert_eq!(field(problem(f, begin(json!({ "lease_s": 0 })), 422, "invalid")), "lease_s");
    assert_eq!(field(problem(f, begin(json!({ "lease_s": 86_401 })), 422, "invalid")), "lease_s");
    assert_eq!(field(problem(f, begin(json!({ "lease_s": "x" })), 422, "invalid")), "lease_s");
    let long = json!({ "revision": "x".repeat(257) });
    assert_eq!(field(problem(f, begin(long), 422, "invalid")), "revision");
    problem(f, begin(json!({ "lease": 1 })), 422, "invalid");
    problem(f, begin(json!([])), 400, "request");
    problem(f, ("POST", "/K8s/sessions", None), 404, "not-found");
    for own in ["file", "api"] {
        problem(f, ("POST", &format!("/{own}/sessions"), None), 403, "foreign");
        problem(f, ("DELETE", &format!("/{own}/sessions/1"), None), 403, "foreign");
    }
    problem(f, ("POST", "/k8s/sessions?wait=1s", None), 400, "request");
    problem(f, ("GET", "/none", None), 404, "not-found");
    problem(f, ("POST", "/none/renew", None), 404, "not-found");
    problem(f, ("DELETE", "/k8s", None), 405, "method");

    problem(f, ("PUT", &format!("{session}x/chunks/0"), Some(shop())), 400, "request");
    let gap = problem(f, ("PUT", &chunk(1), Some(shop())), 409, "missing-chunk");
    assert!(gap.detail.contains("send 0 first"), "{gap:?}");
    problem(f, ("PUT", &chunk(0), Some(json!({}))), 400, "request");
    problem(f, ("PUT", &chunk(0), None), 415, "media");
    let mut bad = shop();
    bad[1]["spec"]["endpoints"][1]["port"] = json!(70_000);
    let rejected = problem(f, ("PUT", &chunk(0), Some(bad)), 422, "invalid");
    assert_eq!(rejected.field.as_deref(), Some("[1].spec.endpoints[1].port"), "{rejected:?}");
    assert_eq!(rejected.object.as_deref(), Some("Backends shop/web of api"));
    assert_eq!(field(problem(f, ("PUT", &chunk(0), Some(json!([7]))), 422, "invalid")), "[0]");
    let mut foreign = shop();
    foreign[0]["source"] = json!("file");
    assert_eq!(field(problem(f, ("PUT", &chunk(0), Some(foreign)), 403, "foreign")), "source");
    let appliance = json!([{ "kind": "Appliance", "name": "a", "spec": {} }]);
    assert_eq!(field(problem(f, ("PUT", &chunk(0), Some(appliance)), 422, "invalid")), "kind");
    let twice = json!([shop()[0], shop()[0]]);
    let rejected = problem(f, ("PUT", &chunk(0), Some(twice)), 422, "invalid");
    assert_eq!(rejected.object.as_deref(), Some("Service shop/web of k8s"), "{rejected:?}");

    let second = f.begin("k8s", "2").unwrap();
    for (method, path) in [("POST", format!("{session}/commit")), ("DELETE", session.clone())] {
        problem(f, (method, &path, None), 409, "superseded");
    }
    problem(f, ("PUT", &chunk(0), Some(shop())), 409, "superseded");
    assert!(second > first && f.abort("k8s", second).is_ok());
    problem(f, ("DELETE", &session, None), 404, "not-found");
    f.control.settings.lock().limits =
        Limits { chunk: 4, session: 7, sessions: 1, ..Limits::default() };
    let id = f.begin("k8s", "3").unwrap();
    let chunk = |n: u64| format!("/k8s/sessions/{id}/chunks/{n}");
    problem(f, ("PUT", &chunk(0), Some(shop())), 413, "too-large");
    let part = |name: &str| json!([backends(name, "a", &["10.0.0.1", "10.0.0.2", "10.0.0.3"])]);
    assert_eq!(f.request("PUT", &chunk(0), Some(part("a"))).0, StatusCode::OK);
    problem(f, ("PUT", &chunk(1), Some(part("b"))), 413, "too-large");
    problem(f, ("POST", "/other/sessions", None), 429, "busy");
}

#[test]
fn failed_disk_write_changes_nothing_and_can_be_repeated() {
    let mut fixture = Fixture::new();
    fixture.fail_disk(1);
    problem(&mut fixture, ("POST", "/k8s/sessions", None), 503, "store");
    fixture.set("k8s", Setting { lease_s: 5, on_expiry: OnExpiry::Release });
    let id = fixture.begin("k8s", "1").unwrap();
    fixture.request("PUT", &format!("/k8s/sessions/{id}/chunks/0"), Some(shop()));
    let commit = format!("/k8s/sessions/{id}/commit");
    fixture.fail_disk(1);
    problem(&mut fixture, ("POST", &commit, None), 503, "store");
    assert_eq!(fixture.commit("k8s", id), Ok(json!({ "written": 2, "released": 0 })));
    fixture.restart();
    assert_eq!(fixture.names("k8s").len(), 2, "the list was stored");
    // The lease of 5 s expires, and storing that fails twice.
    fixture.fail_disk(2);
    fixture.pass(6);
    assert_eq!((&*fixture.report("k8s").lease_status, fixture.names("k8s").len()), ("valid", 2));
    fixture.pass(1);
    assert_eq!((&*fixture.report("k8s").lease_status, fixture.names("k8s").len()), ("Released", 0));
    problem(&mut fixture, ("POST", "/k8s/renew", None), 409, "released");
}

#[test]
fn commit_with_wait_returns_200_in_force_202_on_timeout_and_409_if_rejected() {
    let mut fixture = Fixture::new();
    let mut commit_list = |outcome: Option<Outcome>, list: Value| {
        *fixture.control.outcome.lock() = outcome;
        let id = fixture.begin("k8s", "1").unwrap();
        fixture.request("PUT", &format!("/k8s/sessions/{id}/chunks/0"), Some(list));
        let answer = fixture.request("POST", &format!("/k8s/sessions/{id}/commit?wait=1ms"), None);
        let wait = fixture.control.waits.lock().pop().unwrap();
        assert!(wait.is_complete_list && wait.revision == fixture.store.objects().revision());
        let objects = wait.objects.iter();
        let objects = objects.filter(|object| object.key.kind != Kind::Source).map(|object| {
            (object.key.to_string(), object.service.clone().unwrap(), object.addresses.len())
        });
        (answer.0.as_u16(), answer.1, objects.collect::<Vec<_>>())
    };
    let web = || Name::new("shop/web").unwrap();
    let both = [
        ("Service shop/web of k8s".to_owned(), web(), 1),
        ("Backends shop/web of k8s".to_owned(), web(), 0),
    ];
    let (status, _, objects) = commit_list(None, shop());
    assert_eq!((status, objects.as_slice()), (202, &both[..]), "stored, and not yet in force");
    // `wait` also waits for removals.
    let (status, committed, objects) = commit_list(Some(Outcome::InForce), json!([shop()[0]]));
    assert_eq!((status, committed), (200, json!({ "written": 0, "released": 1 })));
    assert_eq!(objects, both[1..]);
    let object = Key { kind: Kind::Service, name: web(), source: Source::new("k8s") };
    let rejected = Outcome::Rejected { object, reason: "no space".into() };
    let (status, problem, _) = commit_list(Some(rejected), shop());
    assert_eq!((status, &problem["type"]), (409, &json!("urn:weir:not-in-force")));
    assert_eq!(problem["object"], both[0].0);
}
