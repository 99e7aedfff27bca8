//! Tests of sources that use the API: precedence for the same service, expired leases, and the
//! state after a kill.

use std::collections::BTreeSet;

use patience::{check, eventually};
use serde_json::{Value, json};

use crate::api::config_without_services;
use crate::appliance::{Answer, Folder, Running};
use crate::generation;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const WEB: &str = "203.0.113.10";

/// Returns the folder of an appliance with these sources, highest precedence first. An item is the
/// quoted name of a source, optionally followed by lines with further keys.
fn appliance(name: &str, sources: &[&str]) -> Folder {
    let folder = Folder::new(name);
    configure(&folder, sources);
    folder
}

/// Writes a configuration with these sources, as for `appliance`.
fn configure(folder: &Folder, sources: &[&str]) {
    let sources: String =
        sources.iter().map(|rest| format!("[[source]]\nname = {rest}\n")).collect();
    folder.write("weir.toml", &(config_without_services(folder) + &sources));
}

/// Starts slowpath, and waits until it responds.
fn start(folder: &Folder) -> Running {
    let running = folder.slowpath();
    folder.until(&["status"], |_| true);
    running
}

/// Returns a service with one frontend, and a list of backends: hosts, and whether they are
/// terminating.
fn web(name: &str, frontend: &str, hosts: &[(u8, bool)]) -> Value {
    let frontend = json!({ "address": frontend, "port": 80, "protocol": "tcp" });
    let endpoint = |(host, is_terminating): &(u8, bool)| {
        let state = if *is_terminating { "terminating" } else { "active" };
        let address = format!("10.97.2.{host}");
        json!({ "address": address, "port": 80, "protocol": "tcp", "state": state })
    };
    let endpoints: Vec<Value> = hosts.iter().map(endpoint).collect();
    let spec = json!({ "mode": "nat", "frontends": [frontend] });
    json!([
        { "kind": "Service", "name": name, "spec": spec },
        { "kind": "Backends", "name": name, "spec": { "service": name, "endpoints": endpoints } },
    ])
}

/// Sends a request below `/v1/sources`.
fn request(folder: &Folder, method: &str, path: &str, body: &Value) -> Answer {
    folder.request(method, &format!("/v1/sources/{path}"), &[JSON], &body.to_string())
}

/// Opens a session and sends all objects in one chunk; returns the path for the commit.
fn write_source(folder: &Folder, source: &str, revision: &str, objects: &Value) -> String {
    let body = json!({ "revision": revision });
    let begun = request(folder, "POST", &format!("{source}/sessions"), &body);
    assert_eq!(begun.status, 201, "{begun:?}");
    let session = begun.header("location").unwrap().strip_prefix("/v1/sources/").unwrap();
    let chunk = request(folder, "PUT", &format!("{session}/chunks/0"), objects);
    assert_eq!(chunk.status, 200, "{chunk:?}");
    format!("{session}/commit")
}

/// Commits and permits any removal.
fn commit(folder: &Folder, path: &str) -> Value {
    let answer = request(folder, "POST", path, &json!({ "allow_removal": true }));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Returns the report of a source.
fn report(folder: &Folder, source: &str) -> Value {
    folder.request("GET", &format!("/v1/sources/{source}"), &[], "").json()
}

/// Polls the report of a source until it satisfies `fits`.
fn until(folder: &Folder, source: &str, fits: impl Fn(&Value) -> bool) {
    eventually(&format!("a report of the source {source} that fits"), || {
        let report = report(folder, source);
        check(fits(&report), || report.to_string())
    });
}

/// Returns the hosts in the Maglev table of a frontend in the region; empty without a table.
fn selected_hosts(dump: &Value, frontend: &str) -> BTreeSet<u8> {
    let lines = dump.as_array().into_iter().flatten().filter_map(Value::as_str);
    let head = format!("MAGLEV: ID={frontend}:80/TCP INNER=[");
    let found = lines.filter_map(|line| line.strip_prefix(&head)).next();
    let list = found.and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let host = |one: &str| one.strip_prefix("10.97.2.")?.split(':').next()?.parse().ok();
    list.split(", ").filter_map(host).collect()
}

/// Waits until the Maglev table of a frontend has exactly these hosts.
fn serves(folder: &Folder, frontend: &str, hosts: &[u8]) {
    let hosts: BTreeSet<u8> = hosts.iter().copied().collect();
    folder.until(&["maps", "dump", "--no-ids"], |dump| selected_hosts(dump, frontend) == hosts);
}

/// Waits until the region's dump has no line of a frontend.
fn no_frontend(folder: &Folder, frontend: &str) {
    folder.until(&["maps", "dump", "--no-ids"], |dump| {
        dump.is_array() && !dump.to_string().contains(frontend)
    });
}

/// Returns the names of the objects of a kind and source in `weir get`.
fn names(folder: &Folder, kind: &str, source: &str) -> Vec<String> {
    let all = folder.until(&["get", kind], Value::is_array);
    let all = all.as_array().unwrap().iter().filter(|object| object["source"] == source);
    all.map(|object| object["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn source_precedence_follows_the_configuration() {
    let (a, b) = ("\"a\"", "\"b\"");
    let folder = appliance("sources-two", &[a, b]);
    let mut slowpath = start(&folder);
    // Both sources name host 12, with different states.
    let of_a = web("shop/web", WEB, &[(11, false), (12, false)]);
    let of_b = web("shop/web", WEB, &[(12, true), (13, false)]);
    let both = json!([of_b[0], of_b[1], web("shop/b", "203.0.113.20", &[(13, false)])[0]]);
    let path = write_source(&folder, "a", "1", &of_a);
    assert_eq!(commit(&folder, &path), json!({ "written": 2, "released": 0 }));
    serves(&folder, WEB, &[11, 12]);
    let path = write_source(&folder, "b", "1", &both);
    assert_eq!(commit(&folder, &path), json!({ "written": 3, "released": 0 }));
    serves(&folder, WEB, &[11, 12, 13]);

    configure(&folder, &[b, a]);
    serves(&folder, WEB, &[11, 13]);
    slowpath.kill();
    configure(&folder, &[a, b]);
    let mut slowpath = start(&folder);
    serves(&folder, WEB, &[11, 12, 13]);
    slowpath.kill();
    configure(&folder, &[b, a]);
    let _slowpath = start(&folder);
    serves(&folder, WEB, &[11, 13]);

    // Each source sends a complete list again: its objects that are not in the list are removed,
    // and those of the other source stay.
    let less = web("shop/web", WEB, &[(13, false)]);
    let path = write_source(&folder, "b", "2", &less);
    let tried = folder.request("POST", &format!("/v1/sources/{path}?dry_run=true"), &[], "").json();
    assert_eq!(tried, json!({ "written": 1, "released": 1 }));
    assert_eq!(commit(&folder, &path), tried);
    serves(&folder, WEB, &[11, 12, 13]);
    no_frontend(&folder, "203.0.113.20");
    assert_eq!(names(&folder, "services", "b"), ["shop/web"]);
    let path = write_source(&folder, "b", "3", &json!([]));
    assert_eq!(commit(&folder, &path), json!({ "written": 0, "released": 2 }));
    serves(&folder, WEB, &[11, 12]);
    let path = write_source(&folder, "a", "2", &json!([]));
    commit(&folder, &path);
    no_frontend(&folder, WEB);
    assert_eq!(report(&folder, "b")["revision"], "3");
}

#[test]
fn an_expired_lease_keeps_quarantines_or_releases_as_configured() {
    let of = |name: &str| format!("\"{name}\"\nlease_s = 1\non_expiry = \"{name}\"");
    let all = ["keep", "quarantine", "release"];
    let texts = all.map(of);
    let rest = "\"other\"";
    let folder = appliance("sources-leases", &[&texts[0], &texts[1], &texts[2], rest]);
    let mut slowpath = start(&folder);
    let frontend = |n: usize| format!("203.0.113.{}", 31 + n);
    let hosts = |n: usize| [(11 + n as u8, false), (12 + n as u8, false)];
    // The source `other`, which has no lease, names the second backend of each service too.
    let mut others = Vec::new();
    for (n, source) in all.into_iter().enumerate() {
        let service = format!("shop/{source}");
        let objects = web(&service, &frontend(n), &hosts(n));
        let path = write_source(&folder, source, "1", &objects);
        commit(&folder, &path);
        let list = web(&service, &frontend(n), &hosts(n)[1..]);
        others.extend(list.as_array().unwrap().clone());
    }
    let path = write_source(&folder, "other", "1", &json!(others));
    commit(&folder, &path);
    let status = ["Persisted", "Quarantined", "Released"];
    let after = |folder: &Folder| {
        for (source, status) in all.iter().zip(status) {
            until(folder, source, |report| {
                report["lease_status"] == status && report["left_s"] == 0
            });
        }
        serves(folder, &frontend(0), &[11, 12]);
        // Backends of another source take precedence over those of one with an expired lease.
        serves(folder, &frontend(1), &[13]);
        serves(folder, &frontend(2), &[14]);
    };
    after(&folder);
    assert!(names(&folder, "backends", "release").is_empty());
    assert_eq!(names(&folder, "backends", "quarantine"), ["shop/quarantine"]);
    let shown = folder.weir(&["get", "source"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for part in ["other", "still applies", "no new flows", "are released"] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }

    // The state persists over a kill, independent of the new process's leases.
    slowpath.kill();
    let _slowpath = start(&folder);
    for (source, status) in all.iter().zip(status) {
        assert_eq!(report(&folder, source)["lease_status"], status);
    }
    after(&folder);

    // Recovery: by a longer lease, or by a complete list.
    let longer = json!({ "lease_s": 600 });
    for source in ["keep", "quarantine"] {
        let renewed = request(&folder, "POST", &format!("{source}/renew"), &longer);
        let expected = json!({ "lease_s": 600, "revision": "1" });
        assert_eq!((renewed.status, renewed.json()), (200, expected));
        assert_eq!(report(&folder, source)["lease_status"], "valid");
    }
    serves(&folder, &frontend(1), &[12, 13]);
    let late = request(&folder, "POST", "release/renew", &longer);
    assert_eq!((late.status, &late.json()["type"]), (409, &json!("urn:weir:released")));
    let body = json!({ "revision": "2", "lease_s": 600 });
    let begun = request(&folder, "POST", "release/sessions", &body).json();
    let session = format!("release/sessions/{}", begun["session"]);
    let objects = web("shop/release", &frontend(2), &hosts(2));
    assert_eq!(request(&folder, "PUT", &format!("{session}/chunks/0"), &objects).status, 200);
    commit(&folder, &format!("{session}/commit"));
    serves(&folder, &frontend(2), &[13, 14]);
    assert_eq!(report(&folder, "release")["lease_status"], "valid");
}

#[test]
fn a_session_is_applied_all_or_nothing_over_a_kill() {
    let folder = appliance("sources-kills", &["\"a\""]);
    let mut slowpath = start(&folder);
    let mut persisted = Value::Null;
    for round in 0..10_u8 {
        let desired = web("shop/web", WEB, &[(11 + round, false), (31 + round, false)]);
        let revision = round.to_string();
        let path = write_source(&folder, "a", &revision, &desired);
        let objects = |folder: &Folder| {
            let list = folder.request("GET", "/v1/objects/backends/shop/web?source=a", &[], "");
            list.json()["spec"].clone()
        };
        slowpath.kill();
        slowpath = start(&folder);
        assert_eq!(objects(&folder), persisted, "round {round}: the session was not committed");
        let gone = folder.request("POST", &format!("/v1/sources/{path}"), &[], "");
        assert_eq!(gone.status, 404, "{gone:?}");
        assert_eq!(report(&folder, "a")["session"], Value::Null);

        let path = write_source(&folder, "a", &revision, &desired);
        commit(&folder, &path);
        slowpath.kill();
        slowpath = start(&folder);
        persisted = objects(&folder);
        assert_eq!(persisted["endpoints"][1]["address"], format!("10.97.2.{}", 31 + round));
        assert_eq!(report(&folder, "a")["revision"], revision);
    }
    folder.until(&["status"], |status| generation(status) > 0);
    serves(&folder, WEB, &[20, 40]);
}
