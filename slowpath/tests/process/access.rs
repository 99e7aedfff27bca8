//! Tests of roles, named tokens, peers of the control socket, TLS and tokens of the metrics
//! listener, and the audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use api::Role;
use api::named_tokens::{TokenLine, hash};
use patience::{check, eventually, ports::free_port};
use serde_json::{Value, json};
use slowpath::control;

use crate::api::{config_without_services, write_certificate};
use crate::appliance::{Answer, Folder, Running, weir};
use crate::floods::{Client, metric};
use crate::generation;

/// User ID without a name and without privileges.
const USER: &str = "54321";
/// Groups that every Debian has: those of `control.group`, `control.operate_group` and
/// `control.read_group`, and one without a role.
const GROUPS: [(&str, &str); 4] = [("users", "100"), ("games", "60"), ("mail", "8"), ("lp", "7")];
const ROLES: [Role; 4] = [Role::Admin, Role::Operate, Role::Read, Role::Metrics];

/// An appliance whose API listens on loopback without TLS, and has named tokens.
struct Appliance {
    folder: Folder,
    slowpath: Running,
    port: u16,
}

/// Returns a line of the tokens file for the token `{name}-token`.
fn line(name: &str, role: Role, expires: Option<SystemTime>) -> String {
    let hash = hash(format!("{name}-token").as_bytes());
    TokenLine { name: name.to_owned(), role, hash, expires }.text() + "\n"
}

/// Returns the lines of a token for each role, named like the role.
fn lines() -> String {
    ROLES.iter().map(|role| line(role.as_str(), *role, None)).collect()
}

/// Returns a configuration with the groups of `GROUPS` and the API on a port.
fn configuration(folder: &Folder, port: u16) -> String {
    let path = folder.path.display();
    let [(admin, _), (operate, _), (read, _), _] = GROUPS;
    let control = format!(
        "[control]\ngroup = \"{admin}\"\noperate_group = \"{operate}\"\nread_group = \"{read}\"\n"
    );
    config_without_services(folder).replace("[control]", &control)
        + &format!("[api]\nlisten = \"127.0.0.1:{port}\"\ntokens_file = \"{path}/tokens\"\n")
}

impl Appliance {
    fn new(name: &str, tokens: &str) -> Appliance {
        let (folder, port) = (Folder::new(name), free_port());
        folder.write("tokens", tokens);
        folder.write("weir.toml", &configuration(&folder, port));
        let slowpath = folder.slowpath();
        folder.until(&["status"], |s| generation(s) > 0);
        let appliance = Appliance { folder, slowpath, port };
        eventually("the API", || {
            check(TcpStream::connect(("127.0.0.1", port)).is_ok(), || appliance.folder.log())
        });
        appliance
    }

    /// Opens a connection over TCP and sends a request.
    fn open(&self, (method, path): (&str, &str), token: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
        )
        .unwrap();
        stream
    }

    /// Sends a request over TCP.
    fn ask(&self, call: (&str, &str), token: &str) -> Answer {
        let mut text = String::new();
        self.open(call, token).read_to_string(&mut text).unwrap();
        Answer::read(&text).unwrap_or_else(|| panic!("{call:?}: {text}"))
    }

    /// Lists services with a token.
    fn list(&self, token: &str) -> Answer {
        self.ask(("GET", "/v1/objects/services"), token)
    }

    /// Opens a watch of services with a token, and reads its bookmark.
    fn watch(&self, token: &str) -> BufReader<TcpStream> {
        let mut lines =
            BufReader::new(self.open(("GET", "/v1/objects/services?watch=true"), token));
        read_until(&mut lines, "bookmark");
        lines
    }

    /// Returns the entries of the audit log.
    fn audit(&self, args: &[&str]) -> Vec<Value> {
        let out = self.folder.weir(&[&["audit", "--json"], args].concat());
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"))
    }

    /// Sends requests to the control socket as a user with these groups, the first of which is the
    /// effective one. Returns status and body of each response.
    fn socket_as(&self, groups: &[&str], calls: &[(String, String)]) -> Vec<(u16, String)> {
        let mut curl = as_user(groups, "curl");
        for (at, (method, path)) in calls.iter().enumerate() {
            let next: &[&str] = if at == 0 { &[] } else { &["--next"] };
            curl.args(next).args(["--silent", "--max-time", "20", "--unix-socket"]);
            curl.arg(self.folder.socket()).args(["--request", method]);
            curl.args(["--write-out", "\n@@%{http_code}\n"]).arg(format!("http://weir{path}"));
        }
        let out = curl.output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut answers = Vec::new();
        let mut body = String::new();
        for line in text.lines() {
            match line.strip_prefix("@@") {
                Some(code) => answers.push((code.parse().unwrap(), std::mem::take(&mut body))),
                None => body += line,
            }
        }
        assert_eq!(answers.len(), calls.len(), "{out:?}");
        answers
    }
}

/// Returns a command that runs a program as a user with these groups.
fn as_user(groups: &[&str], program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", groups[0]]);
    match &groups[1..] {
        [] => command.arg("--clear-groups"),
        others => command.args(["--groups", &others.join(",")]),
    };
    command.arg(program);
    command
}

/// Reads lines until one contains `part`, and returns that line.
fn read_until(lines: &mut BufReader<TcpStream>, part: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the stream ended before {part}");
        if line.contains(part) {
            return line;
        }
    }
}

/// A call that the appliance declares.
struct Declared {
    method: String,
    path: String,
    operation: String,
    role: String,
}

/// Fills the parameters of a path.
fn fill(path: &str) -> String {
    let numbers = path.replace("{session}", "7").replace("{chunk}", "0");
    let known = numbers.replace("{kind}", "services").replace("{table}", "services");
    let known = known.replace("{verdict}", "approve");
    let mut filled = String::new();
    for (at, part) in known.split(['{', '}']).enumerate() {
        filled += if at % 2 == 0 { part } else { "x" };
    }
    filled
}

/// Returns the operations of the API, from its description.
fn operations(appliance: &Appliance) -> Vec<Declared> {
    let answer = appliance.folder.request("GET", "/v1/openapi.json", &[], "");
    let document = answer.json();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let text = |key: &str| operation[key].as_str().unwrap_or_default().to_owned();
            let responses = &operation["responses"];
            assert!(responses["403"].is_object(), "{method} {path}: {operation}");
            all.push(Declared {
                method: method.to_uppercase(),
                path: fill(path),
                operation: text("operationId"),
                role: text("x-weir-role"),
            });
        }
    }
    assert!(all.len() > 30, "{}", all.len());
    all
}

/// Returns the calls of the control socket beside those of the API.
fn socket_calls() -> Vec<Declared> {
    let declared = |call: api::access::Call| {
        let seconds = if call.operation == "trace" { "?seconds=1" } else { "" };
        Declared {
            method: call.method.to_uppercase(),
            path: fill(&call.path) + seconds,
            role: call.role.to_string(),
            operation: call.operation,
        }
    };
    let all: Vec<Declared> = control::calls().into_iter().map(declared).collect();
    assert!(all.len() > 15, "{}", all.len());
    all
}

/// Asserts that a caller with `role` was rejected if, and only if, the call needs a higher one.
fn assert_role(role: Role, call: &Declared, (status, body): (u16, &str)) {
    let needed: Role = call.role.parse().unwrap_or_else(|e| panic!("{}: {e}", call.operation));
    let rejected = status == 403 && body.contains("urn:weir:role");
    let Declared { method, path, .. } = call;
    assert_eq!(rejected, role < needed, "{role}: {method} {path}: {status} {body}");
    if rejected {
        let parts = [role.as_str(), needed.as_str()];
        assert!(parts.iter().all(|part| body.contains(part)), "{body}");
    }
    assert_ne!(status, 401, "{role}: {method} {path}: {body}");
}

#[test]
fn each_role_permits_the_calls_that_need_it_or_a_lower_role_and_no_others() {
    let appliance = Appliance::new("roles", &lines());
    let of_api = operations(&appliance);
    for role in ROLES {
        for call in &of_api {
            let token = format!("{role}-token");
            let answer = appliance.ask((call.method.as_str(), &call.path), &token);
            assert_role(role, call, (answer.status, &answer.body));
        }
    }
    let calls: Vec<Declared> = of_api.into_iter().chain(socket_calls()).collect();
    let requests: Vec<(String, String)> =
        calls.iter().map(|call| (call.method.clone(), call.path.clone())).collect();
    let [(_, admin), (_, operate), (_, read), (_, none)] = GROUPS;
    // The effective group and supplementary groups count alike, and the highest role of all.
    for (groups, role) in [
        (&[admin] as &[&str], Role::Admin),
        (&[none, read, operate], Role::Operate),
        (&[none, read], Role::Read),
    ] {
        let answers = appliance.socket_as(groups, &requests);
        for (call, (status, body)) in calls.iter().zip(&answers) {
            assert_role(role, call, (*status, body));
        }
    }
    // There are calls for each role.
    let needed: BTreeSet<&str> = calls.iter().map(|call| call.role.as_str()).collect();
    assert_eq!(needed, BTreeSet::from(["admin", "metrics", "operate", "read"]));
    let answer = appliance.folder.get(appliance.folder.ports[2], "/metrics", "text/plain");
    assert!(answer.starts_with("HTTP/1.0 200"), "no token is required by default: {answer}");
}

#[test]
fn user_without_a_group_is_rejected_with_the_keys_to_set() {
    let appliance = Appliance::new("no-role", &lines());
    let socket = appliance.folder.socket();
    let weir = weir().display().to_string();
    let status = |groups: &[&str]| -> Output {
        as_user(groups, &weir).args(["--socket", &socket, "status", "--json"]).output().unwrap()
    };
    let [_, _, (_, read), (_, none)] = GROUPS;
    let out = status(&[none]);
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && error.contains("permission denied"), "{out:?}");
    for key in ["control.group", "control.operate_group", "control.read_group"] {
        assert!(error.contains(key), "{error}");
    }
    let out = status(&[none, read]);
    assert!(out.stdout.starts_with(b"{"), "{out:?}");
    let drain = as_user(&[read], &weir).args(["--socket", &socket, "drain"]).output().unwrap();
    let error = String::from_utf8_lossy(&drain.stderr);
    let parts = ["uid=54321", "role read", "drain needs operate", "control.operate_group"];
    assert!(drain.status.code() == Some(2), "{drain:?}");
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    // A mode that lets all users connect gives none of them a role.
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).unwrap();
    let out = status(&[none]);
    let error = String::from_utf8_lossy(&out.stderr);
    let parts = ["uid=54321", "no role", "control.group", "control.read_group"];
    assert!(out.status.code() == Some(2) && parts.iter().all(|p| error.contains(p)), "{out:?}");
    let entries = appliance.audit(&["--who", "uid=54321"]);
    let denied: Vec<_> = entries.iter().map(|one| &one["outcome"]).collect();
    assert_eq!(denied, ["denied", "denied"], "{entries:?}");
}

#[test]
fn missing_group_is_an_error_that_names_its_key() {
    let folder = Folder::new("missing-group");
    let config = folder.config().replace("[control]", "[control]\nread_group = \"weir-absent\"");
    folder.write("weir.toml", &config);
    let mut slowpath = folder.slowpath();
    assert!(!slowpath.0.wait().unwrap().success());
    let log = folder.log();
    assert!(
        log.contains(r#"control.read_group = \"weir-absent\""#) && log.contains("groupadd"),
        "{log}"
    );
}

#[test]
fn created_token_works_until_it_is_revoked_with_its_watches() {
    let first = format!("# of the team\n{}", line("first", Role::Read, None));
    let appliance = Appliance::new("revoke", &first);
    let folder = &appliance.folder;
    let create = |args: &[&str]| folder.weir(&[&["token", "create"], args].concat());
    let made = create(&["ci", "--role", "read"]);
    assert!(made.status.success(), "{made:?}");
    let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert!(token.starts_with("weir_") && token.len() > 60, "{token}");
    assert_eq!(appliance.list(&token).status, 200, "in force when the command ends");
    let again = create(&["ci", "--role", "read"]);
    let error = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(2) && error.contains("the token ci exists"), "{error}");
    assert!(create(&["other", "--role", "admin"]).status.success());
    let file = std::fs::read_to_string(folder.path.join("tokens")).unwrap();
    assert!(file.starts_with(&first) && !file.contains(&token), "{file}");
    let listed = folder.until(&["token", "list"], |all| all[1]["last_used"].is_string());
    assert_eq!((&listed[1]["name"], &listed[1]["role"]), (&json!("ci"), &json!("read")));
    assert_eq!(listed[2]["name"], "other");

    let mut watch = appliance.watch(&token);
    assert!(folder.weir(&["token", "revoke", "ci"]).status.success());
    let last = read_until(&mut watch, "\"error\"");
    assert!(last.contains("revoked"), "{last}");
    let mut rest = String::new();
    watch.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.trim_matches(['\r', '\n', '0']), "", "the stream has ended");
    let answer = appliance.list(&token);
    assert!(answer.status == 401 && answer.body.contains("`ci` was revoked"), "{answer:?}");
    let missing = folder.weir(&["token", "revoke", "ci"]);
    let error = String::from_utf8_lossy(&missing.stderr);
    assert!(error.contains("there is no token ci"), "{error}");
    // A token given instead of a name: one of Weir's, and one of another program's.
    let foreign = "0123456789abcdefABCDEF";
    for wrong in [token.as_str(), foreign] {
        assert_eq!(folder.weir(&["token", "revoke", wrong]).status.code(), Some(2));
    }
    let all = serde_json::to_string(&appliance.audit(&[])).unwrap();
    assert!(!all.contains(&token) && !all.contains(foreign), "{all}");
    // Each change of the file is in the audit log, without token and hash.
    let entries = appliance.audit(&["--object", "tokens/ci"]);
    let calls: Vec<_> = entries.iter().map(|one| (&one["call"], &one["outcome"])).collect();
    let (done, failed) = (json!("done"), json!("failed"));
    let (create, revoke) = (json!("createToken"), json!("revokeToken"));
    let expected = [(&create, &done), (&create, &failed), (&revoke, &done)];
    assert_eq!(calls, expected, "{entries:?}");
    assert_eq!(entries[0]["changes"][0]["after"], json!({ "role": "read" }));
    assert!(entries[0]["who"].as_str().unwrap().contains("uid=0(root)"), "{entries:?}");
    let text = serde_json::to_string(&entries).unwrap();
    let hash = file.lines().nth(2).and_then(|line| line.split(' ').nth(2)).unwrap();
    assert!(hash.len() == 64 && !text.contains("weir_") && !text.contains(hash), "{text}");
}

#[test]
fn expired_token_ends_with_its_watches() {
    let appliance = Appliance::new("expire", &lines());
    let expires = Some(SystemTime::now() + Duration::from_secs(12));
    appliance.folder.write("tokens", &line("brief", Role::Read, expires));
    appliance.folder.until(&["status"], |_| {
        let answer = appliance.folder.request("GET", "/v1/tokens", &[], "");
        answer.json()[0]["name"] == "brief"
    });
    let mut watch = appliance.watch("brief-token");
    let last = read_until(&mut watch, "\"error\"");
    assert!(last.contains("expired"), "{last}");
    let answer = appliance.list("brief-token");
    assert!(answer.status == 401 && answer.body.contains("`brief` has expired"), "{answer:?}");
    let denied = appliance.audit(&["--who", "brief"]);
    assert_eq!((denied.len(), &denied[0]["outcome"]), (1, &json!("denied")), "{denied:?}");
    let log = appliance.folder.log();
    assert!(log.contains("token no longer accepted") && !log.contains("replaced token"), "{log}");
    let shown = appliance.folder.weir(&["token", "list"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("(expired)"), "{shown:?}");
}

#[test]
fn malformed_tokens_file_is_reported_and_leaves_the_tokens_in_force() {
    let appliance = Appliance::new("malformed", &lines());
    let folder = &appliance.folder;
    folder.write("tokens", &(line("new", Role::Admin, None) + "ops write 0123456789abcdef\n"));
    let rejected = |status: &Value| status["secrets"][0]["error"].is_string();
    let status = folder.until(&["status"], rejected);
    let secret = &status["secrets"][0];
    let error = secret["error"].as_str().unwrap();
    assert_eq!(secret["key"], "api.tokens_file");
    let parts = ["tokens", "line 2", "`write` is not a role", "operate"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    assert!(!error.contains("0123456789abcdef"), "{error}");
    assert_eq!(appliance.list("read-token").status, 200, "the previous content stays");
    assert_eq!(appliance.list("new-token").status, 401);
    let failed = folder.weir(&["token", "create", "more", "--role", "read"]);
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(2) && text.contains("line 2"), "{text}");
    folder.write("tokens", &line("new", Role::Admin, None));
    folder.until(&["status"], |status| !rejected(status));
    assert_eq!(appliance.list("new-token").status, 200);
    assert_eq!(appliance.list("read-token").status, 401);
}

#[test]
fn metrics_have_tls_and_tokens_and_a_busy_port_stops_nothing_else() {
    let folder = Folder::new("metrics-tls");
    let (port, taken) = (free_port(), TcpListener::bind(("127.0.0.1", free_port())).unwrap());
    let (busy, path) = (taken.local_addr().unwrap(), folder.path.display().to_string());
    write_certificate(&folder, port);
    folder.write("tokens", &lines());
    let metrics = format!(
        "[metrics]\nlisten = [\"127.0.0.1:{port}\", \"{busy}\"]\ntoken = true\n\
         tls_cert = \"{path}/cert.pem\"\ntls_key = \"{path}/key.pem\"\n\
         [api]\ntokens_file = \"{path}/tokens\"\n"
    );
    let listen = format!("[metrics]\n            listen = \"127.0.0.1:{}\"", folder.ports[2]);
    assert!(folder.config().contains(&listen), "{}", folder.config());
    folder.write("weir.toml", &(folder.config().replace(&listen, "") + &metrics));
    let _slowpath = folder.slowpath();
    let status = folder.until(&["status"], |s| generation(s) > 0 && s["listeners"][0].is_object());
    let error = status["listeners"][0]["error"].as_str().unwrap();
    assert!(error.contains("metrics.listen") && error.contains(&busy.to_string()), "{error}");
    assert!(folder.get(folder.ports[0], "/", "*/*").contains(" 503 "), "probes are answered");
    let client = Client::new(&folder, port);
    let scrape = |token: &str| {
        let mut stream = client.connect(Ipv4Addr::LOCALHOST).unwrap();
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::read(&text).unwrap_or_else(|| panic!("{text}"))
    };
    eventually("the metrics", || {
        check(client.connect(Ipv4Addr::LOCALHOST).is_ok(), || folder.log())
    });
    for role in ROLES {
        let answer = scrape(&format!("{role}-token"));
        assert!(answer.status == 200 && answer.body.contains("weir_able"), "{role}: {answer:?}");
    }
    assert_eq!(scrape("wrong-token").status, 401);
    drop(taken);
    folder.until(&["status"], |s| s["listeners"] == json!([]));
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Returns the body of a request that writes a service.
fn service(mss: u16) -> String {
    json!({ "spec": { "mss": mss } }).to_string()
}

#[test]
fn each_change_is_recorded_with_caller_object_and_values() {
    let appliance = Appliance::new("audit", &lines());
    let folder = &appliance.folder;
    let path = "/v1/objects/services/shop/web";
    let put = |mss: u16| folder.request("PUT", path, &[JSON], &service(mss)).status;
    assert_eq!((put(1400), put(1300)), (201, 200));
    let dry = folder.request("PUT", &format!("{path}?dry_run=true"), &[JSON], &service(1200));
    assert_eq!(dry.status, 200);
    let dry = folder.request("PUT", &format!("{path}?dry_run=true"), &[JSON], &service(9998));
    assert_eq!((dry.status, put(9999)), (422, 422));
    assert!(folder.weir(&["drain"]).status.success());
    assert!(folder.weir(&["drain", "--undo"]).status.success());
    assert_eq!(appliance.ask(("DELETE", path), "read-token").status, 403);
    assert_eq!(appliance.ask(("DELETE", path), "wrong-token").status, 401);
    assert_eq!(appliance.ask(("DELETE", path), "admin-token").status, 204);
    let entries = appliance.audit(&["--object", "service/shop/web"]);
    let short = |one: &Value| {
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        let status = &one["status"];
        let (call, who, from) = (text("call"), text("who"), text("transport"));
        format!("{call} {who} {} {from} {} {status}", text("role"), text("outcome"))
    };
    let all: Vec<String> = entries.iter().map(short).collect();
    assert_eq!(
        all,
        [
            "putService uid=0(root) admin socket done 201",
            "putService uid=0(root) admin socket done 200",
            "putService uid=0(root) admin socket rejected 422",
            "putService uid=0(root) admin socket rejected 422",
            "deleteService read read api denied 403",
            "authenticate unknown  api denied 401",
            "deleteService admin admin api done 204",
        ],
        "an accepted dry run changes nothing"
    );
    let change = |at: usize| &entries[at]["changes"][0];
    assert_eq!(change(0)["before"], Value::Null);
    assert_eq!(change(1)["before"]["spec"]["mss"], 1400);
    assert_eq!(change(1)["after"]["spec"]["mss"], 1300);
    assert!(change(6)["after"].is_null() && change(6)["before"]["spec"]["mss"] == 1300);
    assert!(entries[1]["revision"].as_u64() > entries[0]["revision"].as_u64());
    assert!(entries[2]["reason"].as_str().unwrap().contains("mss"), "{}", entries[2]);
    assert_eq!(entries[4]["source"], "127.0.0.1");
    let drain = appliance.audit(&["--object", "drain"]);
    assert_eq!(drain[0]["changes"][0]["after"], json!({ "draining": true }));
    assert_eq!(drain[1]["changes"][0]["before"], json!({ "draining": true }));
    assert!(folder.log().contains("uid=0(root)"), "also in the journal: {}", folder.log());
    let shown = folder.weir(&["audit", "--since", "1h", "--who", "read"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.lines().count() == 2 && shown.contains("denied: "), "{shown}");
    assert_eq!(appliance.audit(&["--since", "2999-01-01T00:00:00Z"]), [] as [Value; 0]);
    // A stream continues where a page ended.
    let page = appliance.ask(("GET", "/v1/audit?limit=2"), "admin-token").json();
    let next = page["continue"].as_str().unwrap();
    let watch = format!("/v1/audit?watch=true&continue={next}");
    let mut lines = BufReader::new(appliance.open(("GET", &watch), "admin-token"));
    let third = read_until(&mut lines, "\"call\"");
    assert!(third.contains("\"status\":422"), "{third}");
    let limited = appliance.ask(("GET", "/v1/audit?watch=true&limit=2"), "admin-token");
    assert!(limited.status == 400 && limited.body.contains("limit: "), "{limited:?}");
    assert_eq!(metric(folder, "weir_audit_lost_total"), 0);
    let mode = |path: &str| {
        std::fs::metadata(folder.path.join(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("state/audit"), mode("state/audit/00000001.jsonl")), (0o700, 0o600));
}

#[test]
fn every_call_that_changes_is_recorded() {
    let appliance = Appliance::new("audit-all", &lines());
    let of_api = operations(&appliance);
    // Chunks and renewals change no object, and a source repeats them; `explain` reads.
    let unrecorded = ["chunk", "renew", "explain"];
    let changes = |call: &&Declared| {
        (call.method != "GET" || call.operation == "trace")
            && !unrecorded.contains(&&*call.operation)
    };
    let calls: Vec<Declared> = of_api.into_iter().chain(socket_calls()).collect();
    let mut expected = BTreeMap::new();
    for call in calls.iter().filter(changes) {
        *expected.entry(call.operation.clone()).or_insert(0) += 1;
    }
    assert!(expected.len() > 15, "{expected:?}");
    for call in &calls {
        appliance.folder.request(&call.method, &call.path, &[], "");
    }
    let mut found = BTreeMap::new();
    for entry in appliance.audit(&[]) {
        assert_eq!(entry["who"], "uid=0(root)", "{entry}");
        *found.entry(entry["call"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(found, expected);
}

#[test]
fn acknowledged_changes_are_recorded_despite_kills_and_a_torn_line() {
    let mut appliance = Appliance::new("audit-kill", &lines());
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let socket = appliance.folder.socket();
        let writer = std::thread::spawn(move || {
            let mut done = Vec::new();
            for number in 0.. {
                let name = format!("r{round}/n{number}");
                let path = format!("/v1/objects/services/{name}");
                let body = service(1400);
                let headers = &[JSON];
                let request = control_client::Request {
                    headers,
                    body: &body,
                    ..control_client::Request::new("PUT", &path)
                };
                match control_client::send(Path::new(&socket), &request) {
                    Ok(answer) if answer.status == 201 => done.push(name),
                    _ => return done,
                }
            }
            done
        });
        let path = appliance.folder.path.join("state/audit/00000001.jsonl");
        let enough = (round + 1) * 20_000;
        eventually("entries", || {
            let length = std::fs::metadata(&path).map_or(0, |about| about.len());
            check(length > enough, || appliance.folder.log())
        });
        appliance.slowpath.kill();
        acknowledged.extend(writer.join().unwrap());
        // What a kill in the middle of a write leaves.
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"time\":\"2026-11-").unwrap();
        appliance.slowpath = appliance.folder.slowpath();
        appliance.folder.until(&["status"], |s| generation(s) > 0);
    }
    appliance.folder.weir(&["drain"]);
    let entries = appliance.audit(&[]);
    let recorded: BTreeSet<&str> =
        entries.iter().map(|entry| entry["object"].as_str().unwrap()).collect();
    assert!(acknowledged.len() > 60, "{}", acknowledged.len());
    for name in &acknowledged {
        assert!(recorded.contains(format!("services/{name}").as_str()), "{name} is missing");
    }
    assert!(recorded.contains("drain"));
    let shown = appliance.folder.weir(&["audit"]);
    assert!(String::from_utf8_lossy(&shown.stderr).contains("3 lines"), "{:?}", shown.stderr);
    // Without slowpath, the same is read from the files.
    appliance.slowpath.kill();
    assert_eq!(appliance.audit(&[]), entries);
}

#[test]
fn unwritable_audit_log_stops_no_change_and_is_shown() {
    let folder = Folder::new("audit-lost");
    std::fs::create_dir_all(folder.path.join("state")).unwrap();
    // A file in the place of the directory: each write fails.
    std::fs::write(folder.path.join("state/audit"), "").unwrap();
    folder.write("weir.toml", &config_without_services(&folder));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let path = "/v1/objects/services/shop/web";
    assert_eq!(folder.request("PUT", path, &[JSON], &service(1400)).status, 201);
    assert_eq!(metric(&folder, "weir_audit_lost_total"), 1);
    let shown = folder.weir(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("audit log (1 entries lost)"), "{shown}");
    std::fs::remove_file(folder.path.join("state/audit")).unwrap();
    assert_eq!(folder.request("PUT", path, &[JSON], &service(1300)).status, 200);
    folder.until(&["status"], |s| s["audit"]["error"].is_null());
}

#[test]
fn audit_log_is_followed_and_its_size_bounded() {
    let folder = Folder::new("audit-follow");
    folder.write("weir.toml", &(config_without_services(&folder) + "[audit]\nmax_mib = 1\n"));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let mut follow = Command::new(weir());
    follow.arg("--socket").arg(folder.socket()).args(["audit", "--follow", "--json"]);
    let mut follow = Running(follow.stdout(std::process::Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let body = |number: u32| {
        let note = format!("{number} {}", "x".repeat(12_000));
        json!({ "annotations": { "note": note }, "spec": {} }).to_string()
    };
    // The stream has begun once it shows an entry.
    let put = |number: u32| {
        let path = "/v1/objects/services/shop/web";
        folder.request("PUT", path, &[JSON], &body(number)).status
    };
    let first = std::thread::scope(|scope| {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let mut number = 0;
            let pause = Duration::from_millis(50);
            while wait.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                put(number);
                number += 1;
            }
        });
        let first = lines.next().unwrap();
        drop(stop);
        first
    });
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["call"], "putService");
    for number in 1000..1100 {
        assert_eq!(put(number), 200);
    }
    let audit = folder.path.join("state/audit");
    let files: Vec<_> = std::fs::read_dir(&audit)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap())
        .collect();
    assert!(files.len() > 2, "{}", files.len());
    let total: u64 = files.iter().map(std::fs::Metadata::len).sum();
    assert!(total <= 1 << 20, "{total}");
    let is_last = |line: &String| line.contains("\"note\":\"1099 ");
    assert!(lines.any(|line| is_last(&line)), "the stream goes on over the rotation");
    let out = folder.weir(&["audit", "--json"]);
    let entries: Vec<Value> = serde_json::from_slice(&out.stdout).unwrap();
    let last = &entries.last().unwrap()["changes"][0]["after"]["annotations"]["note"];
    assert!(last.as_str().unwrap().starts_with("1099 "), "{last}");
    assert!(entries.len() < 100, "the oldest are gone: {}", entries.len());
}
