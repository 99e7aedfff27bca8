//! Tests of the API as clients use it: over the unix socket, and over TCP with TLS and a token.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use control_client::Request;
use patience::{check, eventually};
use serde_json::{Value, json};

use crate::appliance::{Answer, Folder};
use crate::generation;
use patience::ports::free_port;

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PATCH: (&str, &str) = ("Content-Type", "application/merge-patch+json");

/// Returns the folder of an appliance without a services file.
fn folder_without_services(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("weir.toml", &config_without_services(&folder));
    folder
}

/// Returns the folder's configuration without a services file.
pub fn config_without_services(folder: &Folder) -> String {
    let file = format!("services = \"{}/services.toml\"", folder.path.display());
    folder.config().replace(&file, "services = \"\"")
}

/// Returns a service with the frontend 203.0.113.HOST.
fn service(host: u8, port: u16) -> Value {
    let address = format!("203.0.113.{host}");
    json!({ "spec": { "frontends": [{ "address": address, "port": port, "protocol": "tcp" }] } })
}

/// Returns a list with one backend of the service `of`.
fn backends(of: &str) -> Value {
    let endpoint = json!({ "address": "10.97.2.11", "port": 80, "protocol": "tcp" });
    json!({ "spec": { "service": of, "endpoints": [endpoint] } })
}

/// Writes an object through the API.
fn put(folder: &Folder, path: &str, body: &Value) -> Answer {
    folder.request("PUT", &format!("/v1/objects/{path}"), &[JSON], &body.to_string())
}

fn etag(answer: &Answer) -> &str {
    answer.header("etag").unwrap_or_else(|| panic!("no ETag: {answer:?}"))
}

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, problem_type: &str, parts: &[&str]) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = answer.json();
    assert_eq!(problem["type"], format!("urn:weir:{problem_type}"), "{answer:?}");
    assert_eq!(problem["status"], status);
    for part in parts {
        assert!(answer.body.contains(part), "no {part:?} in {answer:?}");
    }
}

#[test]
fn objects_are_written_conditionally_and_read_back() {
    let folder = folder_without_services("api-objects");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let path = "/v1/objects/services/shop/web";
    let new = put(&folder, "services/shop/web", &service(1, 80));
    assert_eq!((new.status, &new.json()["source"]), (201, &json!("api")), "{new:?}");
    let same = put(&folder, "services/shop/web", &service(1, 80));
    assert_eq!((same.status, etag(&same)), (200, etag(&new)), "{same:?}");
    let body = service(1, 81).to_string();
    let first = etag(&new).to_owned();
    let ask = |method: &str, headers: &[(&str, &str)], body: &str| {
        folder.request(method, path, headers, body)
    };
    assert_problem(
        &ask("PUT", &[JSON, ("If-None-Match", "*")], &body),
        412,
        "precondition-failed",
        &["revision"],
    );
    assert_problem(
        &ask("PUT", &[JSON, ("If-Match", "\"9999\"")], &body),
        412,
        "precondition-failed",
        &[],
    );
    let second = ask("PUT", &[JSON, ("If-Match", &first)], &body);
    assert_eq!(second.status, 200, "{second:?}");
    assert_ne!(etag(&second), first);
    assert_problem(&ask("DELETE", &[("If-Match", &first)], ""), 412, "precondition-failed", &[]);
    assert_eq!(ask("GET", &[("If-None-Match", etag(&second))], "").status, 304);
    assert_eq!(ask("GET", &[("If-None-Match", &first)], "").status, 200);
    // A patch of some fields leaves the others.
    let patch = json!({ "labels": { "tier": "front" }, "spec": { "affinity_s": 30 } });
    let third = ask("PATCH", &[PATCH], &patch.to_string());
    assert_eq!(third.status, 200, "{third:?}");
    let json = third.json();
    assert_eq!(
        (&json["labels"]["tier"], &json["spec"]["affinity_s"]),
        (&json!("front"), &json!(30))
    );
    assert_eq!(json["spec"]["frontends"][0]["port"], 81);
    let patched = ask("PATCH", &[PATCH], r#"{"spec": {"affinity_s": null}}"#).json();
    assert!(patched["spec"].get("affinity_s").is_none(), "{patched}");
    // A dry run changes nothing.
    let tried = folder.request("DELETE", &format!("{path}?dry_run=true"), &[], "");
    assert_eq!(tried.status, 204, "{tried:?}");
    assert_eq!(ask("GET", &[], "").json(), patched);
    slowpath.kill();
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(ask("GET", &[], "").json(), patched, "the object was stored");
    assert_eq!(ask("DELETE", &[], "").status, 204);
    assert_problem(&ask("GET", &[], ""), 404, "not-found", &["there is no Service shop/web"]);
    assert_problem(&ask("DELETE", &[], ""), 404, "not-found", &[]);
}

#[test]
fn errors_have_a_type_and_name_the_cause() {
    let folder = Folder::new("api-wrong");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let mut wrong = service(1, 80);
    wrong["spec"]["mss"] = 9461.into();
    let answer = put(&folder, "services/a", &wrong);
    assert_problem(&answer, 422, "invalid", &["spec.mss", "0 to 9460", "Service a of api"]);
    assert_eq!(answer.json()["field"], "spec.mss");
    let ask = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        folder.request(method, &format!("/v1/{path}"), headers, body)
    };
    let good = service(1, 80).to_string();
    assert_problem(
        &ask("PUT", "objects/services/a", &[JSON], "{"),
        400,
        "request",
        &["not valid JSON", "line 1"],
    );
    assert_problem(
        &ask("PUT", "objects/services/a", &[], &good),
        415,
        "media",
        &["application/json"],
    );
    let named = json!({ "name": "b", "spec": {} }).to_string();
    assert_problem(
        &ask("PUT", "objects/services/a", &[JSON], &named),
        400,
        "request",
        &["`b`", "name"],
    );
    let other = json!({ "source": "file", "spec": {} }).to_string();
    assert_problem(&ask("PUT", "objects/services/a", &[JSON], &other), 403, "foreign", &["`file`"]);
    // The body is not read, so a client that does not send `Expect: 100-continue` gets a closed
    // connection.
    folder.write("long", &format!("{{\"spec\": {{\"x\": \"{}\"}}}}", "x".repeat(5 << 20)));
    let out = Command::new("curl")
        .args(["--silent", "--include", "--max-time", "20", "--unix-socket", &folder.socket()])
        .args(["-X", "PUT", "-H", "Content-Type: application/json", "-H", "Expect: 100-continue"])
        .arg("--data-binary")
        .arg(format!("@{}", folder.path.join("long").display()))
        .arg("http://weir/v1/objects/services/a")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let last = text.rfind("HTTP/1.1 ").unwrap();
    let answer = Answer::read(&text[last..]).unwrap();
    assert_problem(&answer, 413, "too-large", &["4194304"]);
    assert_problem(
        &ask("GET", "objects/sevices", &[], ""),
        404,
        "not-found",
        &["unknown kind", "Service"],
    );
    assert_problem(&ask("GET", "objects/services?limt=1", &[], ""), 400, "request", &["limt"]);
    assert_problem(
        &ask("GET", "objects/services?limit=0", &[], ""),
        400,
        "request",
        &["1 to 1000"],
    );
    assert_problem(
        &ask("GET", "objects/services?continue=zz", &[], ""),
        400,
        "request",
        &["continue"],
    );
    assert_problem(
        &ask("GET", "objects/services/a%20b", &[], ""),
        404,
        "not-found",
        &["is not a valid name"],
    );
    assert_problem(
        &ask("PUT", "objects/services/a?wait=soon", &[JSON], &good),
        400,
        "request",
        &["5s"],
    );
    assert_problem(&ask("GET", "tables/flows", &[], ""), 404, "not-found", &["frontends"]);
    assert_problem(&ask("GET", "nothing", &[], ""), 404, "not-found", &["/v1/openapi.json"]);
    let answer = ask("POST", "objects/services", &[], "");
    assert_problem(&answer, 405, "method", &["POST"]);
    assert!(answer.header("allow").is_some_and(|allow| allow.contains("GET")), "{answer:?}");
    // The file's object belongs to its source, not to the API.
    assert_problem(
        &ask("GET", "objects/services/default/web", &[], ""),
        404,
        "not-found",
        &["file"],
    );
    let of_file = ask("GET", "objects/services/default/web?source=file", &[], "");
    assert_eq!((of_file.status, &of_file.json()["source"]), (200, &json!("file")));
}

#[test]
fn lists_and_tables_are_paginated() {
    let folder = folder_without_services("api-lists");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    for host in 1..=7 {
        assert_eq!(put(&folder, &format!("services/s/{host}"), &service(host, 80)).status, 201);
    }
    assert_eq!(put(&folder, "backends/s/1", &backends("s/1")).status, 201);
    folder
        .until(&["db", "show", "frontends"], |rows| rows.as_array().is_some_and(|r| r.len() == 7));
    let all = |path: &str| {
        let (mut names, mut next, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let answer = folder.request("GET", &format!("{path}&limit=3{next}"), &[], "");
            let page = answer.json();
            names.extend(page["items"].as_array().unwrap().iter().map(|item| {
                item.get("name").or(item.get("address")).unwrap().as_str().unwrap().to_owned()
            }));
            pages += 1;
            match page["continue"].as_str() {
                Some(mark) => next = format!("&continue={mark}"),
                None => return (names, pages),
            }
        }
    };
    let names: Vec<String> = (1..=7).map(|host| format!("s/{host}")).collect();
    assert_eq!(all("/v1/objects/services?fields=name"), (names.clone(), 3));
    assert_eq!(all("/v1/tables/services?prefix=s/"), (names, 3));
    assert_eq!(all("/v1/tables/frontends?fields=address").0.len(), 7);
    let some = folder.request(
        "GET",
        "/v1/objects/services?fields=name,spec.frontends.port&limit=1",
        &[],
        "",
    );
    assert_eq!(
        some.json()["items"],
        json!([{ "name": "s/1", "spec": { "frontends": [{ "port": 80 }] } }])
    );
    let list = folder.request("GET", "/v1/objects/services", &[], "");
    let again = [("If-None-Match", etag(&list))];
    assert_eq!(folder.request("GET", "/v1/objects/services", &again, "").status, 304);
    let shown = folder.until(&["get", "services"], |o| o.as_array().is_some_and(|o| o.len() == 7));
    assert_eq!(shown, list.json()["items"]);
}

#[test]
fn a_watch_streams_changes_after_a_revision() {
    let folder = folder_without_services("api-watch");
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    put(&folder, "services/a", &service(1, 80));
    let at = folder.request("GET", "/v1/objects/services", &[], "").json()["revision"].clone();
    let mut weir = Command::new(super::appliance::weir())
        .args(["--socket", &folder.socket(), "get", "service", "--watch", "--json"])
        .args(["--revision", &at.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(weir.stdout.take().unwrap()).lines();
    let mut next = || -> Value {
        let mut events = lines.by_ref().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        events.find(|line: &Value| line["type"] != "bookmark").unwrap()
    };
    put(&folder, "services/b", &service(2, 80));
    put(&folder, "backends/b", &backends("b"));
    folder.request("DELETE", "/v1/objects/services/a", &[], "");
    let event = next();
    assert_eq!((&event["type"], &event["object"]["name"]), (&json!("put"), &json!("b")), "{event}");
    let event = next();
    let gone = json!({ "kind": "Service", "name": "a", "source": "api" });
    assert_eq!((&event["type"], &event["object"]), (&json!("removed"), &gone), "{event}");
    let last = event["revision"].as_u64().unwrap();
    slowpath.kill();
    let mut error = String::new();
    weir.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(!weir.wait().unwrap().success() && error.contains("the stream ended"), "{error}");
    // The next process has the current state, but not the history.
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let watch = |query: &str| {
        folder.request("GET", &format!("/v1/objects/services?watch=true&seconds=0{query}"), &[], "")
    };
    let old = watch(&format!("&revision={}", last - 1));
    assert_problem(&old, 410, "too-old", &["read all objects again"]);
    assert_problem(&watch("&revision=999999"), 410, "too-old", &["there is no revision"]);
    assert_eq!(watch(&format!("&revision={last}")).status, 200);
    let body = watch("").body;
    let lines: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["object"]["name"], &lines[1]["type"]), (&json!("b"), &json!("bookmark")));
    let shown = folder.weir(&["get", "service", "--watch", "--revision", "1"]);
    assert!(String::from_utf8_lossy(&shown.stderr).contains("no longer available"), "{shown:?}");
}

#[test]
fn wait_returns_when_lcores_serve_the_change_or_it_is_rejected_or_on_timeout() {
    let folder = folder_without_services("api-wait");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let waited =
        |name: &str, body: &Value| put(&folder, &format!("services/{name}?wait=300ms"), body);
    assert_eq!(waited("a", &service(1, 80)).status, 202, "no lcore polls");
    // An address of another service, and an invalid node port.
    let answer = waited("b", &service(1, 80));
    assert_problem(&answer, 409, "not-in-force", &["belongs to service `a`", "Service b of api"]);
    let mut node = service(2, 80);
    node["spec"]["frontends"][0]["type"] = "NodePort".into();
    assert_problem(&waited("c", &node), 409, "not-in-force", &["30000 to 32767", "node_ports"]);
    // The object's conditions may be written after the response.
    eventually("the condition Rejected", || {
        let object = folder.request("GET", "/v1/objects/services/c", &[], "").json();
        check(object["status"]["conditions"][0]["reason"] == "Rejected", || object.to_string())
    });

    // An lcore that only acknowledges generations.
    let region = tables::region::Region::open(folder.path.join("region/file").as_path());
    let region: &'static tables::region::Region = Box::leak(Box::new(region.unwrap()));
    let _fastpath = region.claim(tables::region::Role::Fastpath).unwrap();
    let lcore = &region.lcores()[0];
    lcore.join(region, region.epoch(tables::region::Role::Fastpath), 1);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                lcore.count_iteration();
                lcore.acknowledge(region.generation());
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let answers = [
            put(&folder, "services/d?wait=20s", &service(4, 80)),
            put(&folder, "backends/d?wait=20s", &backends("d")),
            folder.request("DELETE", "/v1/objects/services/d?wait=20s", &[], ""),
            // The complete list of a source, then an empty one.
            write_session(
                &folder,
                &json!([object("Service", &service(5, 80)), object("Backends", &backends("e"))]),
            ),
            write_session(&folder, &json!([])),
        ];
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let statuses = answers.each_ref().map(|answer| answer.status);
        assert_eq!(statuses, [201, 201, 204, 200, 200], "{answers:?}");
    });
}

/// Returns an object named `e` with the spec of another one.
fn object(kind: &str, spec: &Value) -> Value {
    json!({ "kind": kind, "name": "e", "spec": spec["spec"] })
}

/// Sends a complete list of the source `k8s`, and commits it with `wait`. Returns the response to
/// the commit.
fn write_session(folder: &Folder, objects: &Value) -> Answer {
    let ask = |method: &str, path: &str, body: &str| {
        folder.request(method, &format!("/v1/sources/k8s/sessions{path}"), &[JSON], body)
    };
    let session = ask("POST", "", "{}").json()["session"].clone();
    let taken = ask("PUT", &format!("/{session}/chunks/0"), &objects.to_string());
    assert_eq!(taken.status, 200, "{taken:?}");
    ask("POST", &format!("/{session}/commit?wait=20s"), r#"{"allow_removal": true}"#)
}

/// Creates a certificate for `localhost`. Returns the section `[api]` with it and a token file,
/// which the caller writes.
pub fn write_certificate(folder: &Folder, port: u16) -> String {
    let path = folder.path.display();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &format!("{path}/key.pem"), "-out", &format!("{path}/cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    format!(
        "[api]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = \"{path}/token\"\n\
         tls_cert = \"{path}/cert.pem\"\ntls_key = \"{path}/key.pem\"\n"
    )
}

#[test]
fn tcp_requires_tls_and_a_token() {
    let folder = folder_without_services("api-tls");
    let (port, path) = (free_port(), folder.path.display().to_string());
    let token = "0123456789abcdefXYZ";
    folder.write("token", &format!("{token}\n"));
    let api = write_certificate(&folder, port);
    folder.write("weir.toml", &(config_without_services(&folder) + &api));
    let slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let curl = |args: &[&str]| {
        let out = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "20", "--include"])
            .args(["--cacert", &format!("{path}/cert.pem")])
            .args(args)
            .output()
            .unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let list = format!("https://localhost:{port}/v1/objects/services");
    // A client that sends nothing does not delay others.
    let _silent = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let bearer = format!("Authorization: Bearer {token}");
    let good = Answer::read(&curl(&["-H", &bearer, &list])).unwrap();
    assert_eq!((good.status, &good.json()["items"]), (200, &json!([])));
    for wrong in ["X: y", "Authorization: Bearer 0123456789abcdefXYY", "Authorization: Basic eA=="]
    {
        let answer = Answer::read(&curl(&["-H", wrong, &list])).unwrap();
        assert_problem(&answer, 401, "token", &["api.token_file"]);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(
        Answer::read(&curl(&["-H", &bearer, &list.replace("/v1", "/status")])).unwrap().status,
        404
    );
    assert_eq!(curl(&["-H", &bearer, &list.replace("https", "http")]), "", "nothing in plain text");
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    assert!(!log.contains(token) && !log.contains("PRIVATE"), "{log}");
    folder.write("token", "short");
    drop(slowpath);
    let _slowpath = folder.slowpath();
    let status = folder.until(&["status"], |s| s["listeners"][0]["key"] == "api.listen");
    let error = status["listeners"][0]["error"].as_str().unwrap();
    assert!(error.contains("api.token_file") && error.contains("at least 16"), "{error}");
}

#[test]
fn the_openapi_document_matches_the_routes() {
    let folder = folder_without_services("api-document");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let document = folder.request("GET", "/v1/openapi.json", &[], "").json();
    let paths = document["paths"].as_object().unwrap();
    for kind in state::object::Kind::ALL {
        assert!(paths.keys().any(|path| **path == format!("/v1/objects/{}", kind.plural())));
    }
    for (path, methods) in paths {
        let placeholders = ["{name}", "{source}", "{session}", "{chunk}"];
        let requested = placeholders.iter().fold(path.clone(), |path, of| path.replace(of, "1"));
        let answer = folder.request("GET", &requested, &[], "");
        let expected = match methods.get("get") {
            None => 405,
            Some(_) if requested != *path => 404,
            Some(_) => 200,
        };
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
    }
    let own = put(&folder, "sources/api", &json!({ "spec": { "lease_s": 1 } }));
    assert_problem(&own, 405, "method", &["/v1/sources/SOURCE"]);
    assert_eq!(own.header("allow"), Some("GET,HEAD"));
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(reference).is_some(), "{reference} does not resolve");
    }
    // Abandons a stream, to run the code that detects this; nothing is asserted.
    let watch = Request::new("GET", "/v1/objects/services?watch=true");
    drop(control_client::send(Path::new(&folder.socket()), &watch).unwrap());
}

#[test]
fn the_appliance_object_is_read_only() {
    let folder = Folder::new("api-appliance");
    let config = |zone: &str| format!("zone = \"{zone}\"\n{}", folder.config());
    folder.write("weir.toml", &config("a"));
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let listed = || folder.until(&["get", "appliances"], |all| all[0].is_object());
    let shown = listed();
    assert_eq!(shown.as_array().unwrap().len(), 1, "{shown}");
    assert_eq!(
        (&shown[0]["name"], &shown[0]["source"]),
        (&json!("weir-p"), &json!("configuration"))
    );
    let spec = &shown[0]["spec"];
    assert_eq!(
        (&spec["zone"], &spec["addresses"]),
        (&json!("a"), &json!(["10.97.1.10", "10.97.2.10"]))
    );
    let path = "/v1/objects/appliances/weir-p";
    let read = folder.request("GET", &format!("{path}?source=configuration"), &[], "");
    assert_eq!((read.status, &read.json()), (200, &shown[0]), "{read:?}");
    let body = r#"{"spec": {"zone": "z"}}"#;
    for (method, headers) in [("PUT", &[JSON][..]), ("PATCH", &[PATCH]), ("DELETE", &[])] {
        for name in ["weir-p", "other"] {
            let at = format!("/v1/objects/appliances/{name}");
            let answer = folder.request(method, &at, headers, body);
            assert_problem(&answer, 405, "method", &["`zone`", "`external_cluster_ip`"]);
            assert_eq!(answer.header("allow"), Some("GET,HEAD"), "{answer:?}");
        }
    }
    assert_eq!(listed(), shown);
    // A file with that object is skipped with a notice: only the configuration changes it, at the
    // next start.
    folder.write("edge.json", &shown.to_string());
    let file = folder.path.join("edge.json").display().to_string();
    let out = folder.weir(&["apply", "-f", &file, "--wait", "0"]);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && error.contains("Appliance weir-p: skipped"), "{out:?}");
    slowpath.kill();
    folder.write("weir.toml", &config("b"));
    let _slowpath = folder.slowpath();
    let shown = folder.until(&["get", "appliances"], |all| all[0]["spec"]["zone"] == "b");
    assert_eq!(shown.as_array().unwrap().len(), 1, "{shown}");
}
