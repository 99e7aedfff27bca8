//! Tests of replacing the API's token and certificate while clients send requests.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use patience::{check, eventually, ports::free_port};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::api::{config_without_services, write_certificate};
use crate::appliance::{Folder, Running};
use crate::floods::{Client, metric};
use crate::generation;

const FIRST: &str = "first-0123456789abcdef";
/// Source address of the client that follows the credentials.
const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Starts an appliance with an API over TLS, with more lines in its section.
fn start(name: &str, more: &str) -> (Folder, Running, Client) {
    let (folder, port) = (Folder::new(name), free_port());
    folder.write("token", FIRST);
    let api = write_certificate(&folder, port);
    folder.write("weir.toml", &(config_without_services(&folder) + &api + more));
    let slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let client = Client::new(&folder, port);
    eventually("the API", || check(client.list(HOME, FIRST).is_ok(), || folder.log()));
    (folder, slowpath, client)
}

/// Replaces the certificate and its key by a pair that expires at the start of a year.
fn write_pair(folder: &Folder, expiry_year: i32) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(expiry_year, 1, 1);
    folder.write("cert.pem", &params.self_signed(&key).unwrap().pem());
    folder.write("key.pem", &key.serialize_pem());
}

/// Waits until a token is accepted. Each attempt has another source address, because an unknown
/// token uses up the budget of its source.
fn wait_until_accepted(client: &Client, token: &str) {
    static SOURCES: AtomicU32 = AtomicU32::new(u32::from_be_bytes([127, 4, 0, 1]));
    eventually("the new token", || {
        let source = Ipv4Addr::from(SOURCES.fetch_add(1, Ordering::Relaxed));
        let status = client.list(source, token);
        check(status.as_ref().is_ok_and(|status| *status == 200), || format!("{status:?}"))
    });
}

#[test]
fn clients_follow_a_replaced_token_without_a_rejected_request() {
    let (folder, _slowpath, client) = start("rotate-token", "");
    let at = |name: &str| folder.path.join(name);
    let replacements: [(&str, &dyn Fn()); 4] = [
        ("renamed-0123456789", &|| folder.write("token", "renamed-0123456789")),
        ("in-place-0123456789", &|| std::fs::write(at("token"), "in-place-0123456789\n").unwrap()),
        // The layout of a Kubernetes secret mount, which then changes the link `..data` alone.
        ("mounted-0123456789", &|| {
            std::fs::create_dir(at("..1")).unwrap();
            std::fs::write(at("..1/token"), "mounted-0123456789").unwrap();
            symlink("..1", at("..data")).unwrap();
            symlink("..data/token", at("link")).unwrap();
            std::fs::rename(at("link"), at("token")).unwrap();
        }),
        ("swapped-0123456789", &|| {
            std::fs::create_dir(at("..2")).unwrap();
            std::fs::write(at("..2/token"), "swapped-0123456789").unwrap();
            symlink("..2", at("..new")).unwrap();
            std::fs::rename(at("..new"), at("..data")).unwrap();
        }),
    ];
    let (current, stop) = (Mutex::new(FIRST), AtomicBool::new(false));
    let answers = std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            let mut answers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let token = *current.lock();
                answers.push((token, client.list(HOME, token).map_err(|e| e.to_string())));
            }
            answers
        });
        for (token, replace) in &replacements {
            replace();
            wait_until_accepted(&client, token);
            // The client still sends the previous token, and follows now.
            *current.lock() = token;
        }
        let rejected =
            metric(&folder, "weir_api_replaced_token_requests_total{result=\"rejected\"}");
        assert_eq!(rejected, 0);
        stop.store(true, Ordering::Relaxed);
        requests.join().unwrap()
    });
    // The client may have had no time for a request with the last token.
    let sent: BTreeSet<_> = answers.iter().map(|(token, _)| *token).collect();
    assert!(sent.len() >= replacements.len(), "{sent:?}");
    let wrong: Vec<_> = answers.iter().filter(|(_, status)| *status != Ok(200)).collect();
    assert!(wrong.is_empty(), "{wrong:?} of {}\n{}", answers.len(), folder.log());
    assert_eq!(client.list(HOME, FIRST).unwrap(), 200, "the overlap has not ended");
    let secrets = folder.until(&["status"], |s| s["secrets"][0]["overlap_left_s"].is_u64());
    assert_eq!(secrets["secrets"][0]["key"], "api.token_file");
    let log = folder.log();
    assert_eq!(log.matches("API token replaced").count(), replacements.len(), "{log}");
    assert!(!log.contains("0123456789"), "{log}");
}

/// A connection of the API.
type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Opens a watch of services, and reads its first lines.
fn watch(client: &Client, token: &str) -> Tls {
    let mut stream = client.connect(HOME).unwrap();
    let head = format!(
        "GET /v1/objects/services?watch=true HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    read_until(&mut stream, "bookmark");
    stream
}

/// Reads from a stream until its text contains `part`.
fn read_until(stream: &mut Tls, part: &str) {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "the connection ended after {text}");
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        if text.contains(part) {
            return;
        }
    }
}

#[test]
fn replaced_token_and_its_watches_end_after_the_overlap() {
    let (folder, _slowpath, client) = start("rotate-end", "token_overlap_s = 1\n");
    let mut watch = watch(&client, FIRST);
    let second = "second-0123456789abcdef";
    folder.write("token", second);
    wait_until_accepted(&client, second);
    // A request with the previous token does not use up the budget of the source.
    eventually("the end of the overlap", || {
        let status = client.list(HOME, FIRST).unwrap();
        assert!([200, 401].contains(&status), "{status}");
        check(status == 401, || format!("{status}"))
    });
    for _ in 0..20 {
        assert_eq!(client.list(HOME, FIRST).unwrap(), 401);
    }
    assert_eq!(client.list(HOME, second).unwrap(), 200);
    assert!(metric(&folder, "weir_api_replaced_token_requests_total{result=\"rejected\"}") >= 20);
    let mut rest = String::new();
    watch.read_to_string(&mut rest).unwrap();
    let last = rest.lines().rfind(|line| line.starts_with('{')).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["type"], &last["problem"]["status"]), (&"error".into(), &401.into()));
    assert!(last["problem"]["detail"].as_str().unwrap().contains("replaced"), "{last}");
    // A file that cannot be used leaves the token in force.
    folder.write("token", "short");
    let status = folder.until(&["status"], |s| s["secrets"][0]["error"].is_string());
    let error = status["secrets"][0]["error"].as_str().unwrap();
    assert!(error.contains("api.token_file") && error.contains("at least 16"), "{error}");
    assert_eq!(client.list(HOME, second).unwrap(), 200);
    let text = String::from_utf8(folder.weir(&["status"]).stdout).unwrap();
    let rejected = "secret rejected; if one was in force, it stays: api.token_file";
    assert!(text.contains(rejected), "{text}");
    let log = folder.log();
    assert!(!log.contains("0123456789abcdef"), "{log}");
}

#[test]
fn new_connections_see_a_new_certificate_and_established_ones_go_on() {
    let (folder, _slowpath, client) = start("rotate-tls", "");
    // A watch, which shows each object that is written over the unix socket.
    let mut established = watch(&client, FIRST);
    let mut hosts = 11..;
    let mut assert_established = || {
        let host = hosts.next().unwrap();
        let path = format!("/v1/objects/services/object-{host}");
        let address = format!("203.0.113.{host}");
        let frontend = json!({ "address": address, "port": 80, "protocol": "tcp" });
        let body = json!({ "spec": { "frontends": [frontend] } }).to_string();
        let json = [("Content-Type", "application/json")];
        assert_eq!(folder.request("PUT", &path, &json, &body).status, 201);
        read_until(&mut established, &format!("object-{host}"));
    };
    assert_established();
    // Each client trusts one certificate only.
    write_pair(&folder, 2090);
    let second = Client::new(&folder, client.port);
    eventually("the second certificate", || {
        let status = second.list(HOME, FIRST).map_err(|error| error.to_string())?;
        check(status == 200, || format!("{status}"))
    });
    assert!(client.connect(HOME).is_err(), "the first certificate is still presented");
    assert_established();

    folder.write("key.pem", "-----BEGIN PRIVATE KEY-----\nno key\n");
    let status = folder.until(&["status"], |s| s["secrets"][1]["error"].is_string());
    let error = status["secrets"][1]["error"].as_str().unwrap();
    assert!(error.contains("api.tls_key") && !error.contains("no key"), "{error}");
    assert_eq!(second.list(HOME, FIRST).unwrap(), 200);
    assert_established();
    for name in ["weir_secret_reload_failures_total", "weir_secret_rejected"] {
        assert_eq!(metric(&folder, &format!("{name}{{secret=\"api.tls_cert\"}}")), 1, "{name}");
    }

    // An expired certificate is used, as at the start, and is a warning.
    write_pair(&folder, 2020);
    let status = folder.until(&["status"], |s| {
        let warnings = s["secrets"][1]["warnings"].as_array().into_iter().flatten();
        let mut warnings = warnings.filter_map(Value::as_str);
        warnings.any(|warning| warning.contains("expired at 2020"))
    });
    let secret = &status["secrets"][1];
    assert_eq!(
        (&secret["error"], &secret["valid_until"]),
        (&Value::Null, &"2020-01-01T00:00:00Z".into())
    );
    let until = "weir_secret_expiry_timestamp_seconds{secret=\"api.tls_cert\"}";
    assert_eq!(metric(&folder, until), 1_577_836_800);
    let rows = String::from_utf8(folder.weir(&["db", "show", "health"]).stdout).unwrap();
    let row = rows.lines().find(|line| line.contains("secret api.tls_cert"));
    assert!(row.is_some_and(|row| row.contains("Degraded")), "{rows}");
    assert_established();
    let log = folder.log();
    assert!(log.contains("TLS certificate replaced") && !log.contains("PRIVATE"), "{log}");
}
