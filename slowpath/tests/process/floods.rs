//! Tests with clients that hold connections or guess tokens: probes, the API and `weir` still work.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};

use crate::api::{config_without_services, write_certificate};
use crate::appliance::{Answer, Folder, Running};
use crate::generation;
use patience::ports::free_port;

/// The loopback address from which the tests send health probes.
const PROBER: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);

/// Connects to a local port from this loopback address.
pub fn connect_from(source: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddrV4::new(source, 0).into())?;
    socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
    let stream: TcpStream = socket.into();
    // Turns a hang into a test failure.
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

/// Sends one probe; returns the response, or an error if it is incomplete.
fn probe_from(source: Ipv4Addr, port: u16) -> io::Result<String> {
    let mut stream = connect_from(source, port)?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match Answer::read(&text) {
        Some(answer) if [200, 503].contains(&answer.status) => Ok(text),
        _ => Err(io::Error::other(format!("cut short: {text}"))),
    }
}

/// Opens connections from 200 addresses without completing a request. After every 50 connections a
/// probe must be answered.
fn flood(port: u16, connections: usize) -> Vec<TcpStream> {
    let mut streams = Vec::with_capacity(connections);
    for i in 0..connections {
        let source = Ipv4Addr::new(127, 1, (i % 200) as u8, 1);
        let mut stream = connect_from(source, port).unwrap();
        // Half of them begin a request. The connection may have been evicted.
        if i % 2 == 0 {
            let _ = stream.write_all(b"GET / HT");
        }
        streams.push(stream);
        if i % 50 == 49 {
            probe_from(PROBER, port).unwrap_or_else(|e| panic!("after {i} connections: {e}"));
        }
    }
    streams
}

/// Returns the value of a metric, given with its labels.
pub fn metric(folder: &Folder, name: &str) -> u64 {
    let text = folder.get(folder.ports[2], "/metrics", "text/plain");
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let found = found.unwrap_or_else(|| panic!("no {name} in {text}"));
    found.parse::<f64>().unwrap() as u64
}

/// Starts slowpath with a soft limit of 1,024 file descriptors, systemd's default, which a thousand
/// connections exhaust.
fn slowpath_with_few_descriptors(folder: &Folder) -> Running {
    let log = std::fs::File::create(folder.path.join("log")).unwrap();
    let limited = "ulimit -Sn 1024 && ulimit -Hn 6000 && exec \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_slowpath"), "--config"]);
    Running(shell.arg(folder.path.join("weir.toml")).stderr(log).spawn().unwrap())
}

/// Raises this process's soft limit of file descriptors.
fn allow_descriptors(needed: u64) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit })
        .unwrap_or_else(|e| panic!("{needed} descriptors are needed (`ulimit -Hn`): {e}"));
}

#[test]
fn probes_are_answered_despite_10_000_half_open_connections() {
    allow_descriptors(12_000);
    let folder = Folder::new("flood-health");
    let node_port = free_port();
    let config = folder.config();
    let config = config.replace("[health]", "[health]\nreserved_sources = \"127.9.0.0/24\"");
    folder.write("weir.toml", &config);
    let service = format!(
        "[[service]]\nname = \"default/web\"\nmode = \"nat\"\nexternal_policy = \"local\"\n\
         health_check_port = {node_port}\n\
         frontends = [{{address = \"203.0.113.1\", port = 80, protocol = \"tcp\"}}]\n\
         backends = [{{address = \"10.97.2.11\", port = 80}}]\n"
    );
    folder.write("services.toml", &service);
    let _slowpath = slowpath_with_few_descriptors(&folder);
    folder.until(&["status"], |s| generation(s) > 0);

    let streams = flood(folder.ports[0], 10_000);
    for _ in 0..50 {
        probe_from(PROBER, folder.ports[0]).unwrap();
    }
    // A probe from an address without reserved slots is answered too: another connection is evicted
    // for it, and no other client connects at that time.
    probe_from(Ipv4Addr::LOCALHOST, folder.ports[0]).unwrap();
    let listener = |name: &str| metric(&folder, &format!("{name}{{listener=\"health.listen\"}}"));
    assert!(listener("weir_listener_connections") <= 800);
    assert!(listener("weir_listener_evicted_total") >= 9_000);
    let of_ports = flood(node_port, 1_000);
    let text = probe_from(PROBER, node_port).unwrap();
    assert!(text.contains("\"name\":\"web\""), "{text}");
    assert!(metric(&folder, "weir_listener_evicted_total{listener=\"health_check_port\"}") > 0);
    // The rest of the process still has descriptors.
    folder.services(&["10.97.2.12"]);
    folder.until(&["services"], |s| s[0]["backends"][0]["address"] == "10.97.2.12");
    drop((streams, of_ports));
}

/// A client of the API: HTTP/1.1 over TLS. It trusts only the certificate in `cert.pem`.
pub struct Client {
    tls: Arc<ClientConfig>,
    pub port: u16,
}

impl Client {
    pub fn new(folder: &Folder, port: u16) -> Client {
        let mut roots = RootCertStore::empty();
        let pem = std::fs::read(folder.path.join("cert.pem")).unwrap();
        roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let tls = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        Client { tls, port }
    }

    pub fn connect(
        &self,
        source: Ipv4Addr,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let tls = ClientConnection::new(Arc::clone(&self.tls), name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, connect_from(source, self.port)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        Ok(stream)
    }

    /// Sends one request; returns its status code.
    pub fn list(&self, source: Ipv4Addr, token: &str) -> io::Result<u16> {
        let mut stream = self.connect(source)?;
        let head = format!(
            "GET /v1/objects/services HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let answer = Answer::read(&text).ok_or_else(|| io::Error::other(text))?;
        if answer.status == 429 {
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
        }
        Ok(answer.status)
    }
}

const TOKEN: &str = "0123456789abcdefXYZ";

/// Returns the folder of an appliance whose API has TLS and a token, and a client of it.
fn served_over_tls(name: &str) -> (Folder, Client) {
    let (folder, port) = (Folder::new(name), free_port());
    folder.write("token", TOKEN);
    let api = write_certificate(&folder, port);
    folder.write("weir.toml", &(config_without_services(&folder) + &api));
    let client = Client::new(&folder, port);
    (folder, client)
}

#[test]
fn a_client_is_served_despite_connections_that_pipeline_and_never_read() {
    let (folder, client) = served_over_tls("flood-api");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let request = "GET /v1/objects/services HTTP/1.1\r\nHost: weir\r\n\r\n".repeat(4_000);
    let mut attackers = Vec::new();
    for i in 0..320_u16 {
        let source = Ipv4Addr::new(127, 2, (i / 40) as u8, 1);
        let mut attacker = client.connect(source).unwrap();
        attacker.sock.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        // The server may close the connection while it is written to.
        let _ = attacker.write_all(request.as_bytes());
        attackers.push(attacker);
        if i % 40 == 39 {
            let honest = client.list(Ipv4Addr::LOCALHOST, TOKEN);
            assert_eq!(honest.ok(), Some(200), "beside {} connections", attackers.len());
        }
    }
    // Each connection got at most one response.
    assert!(metric(&folder, "weir_api_auth_failures_total") <= 320);
    drop(attackers);
}

#[test]
fn failed_authentications_are_limited_by_source_counted_and_logged() {
    let (folder, client) = served_over_tls("auth");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let (guesser, honest) = (Ipv4Addr::new(127, 3, 0, 1), Ipv4Addr::LOCALHOST);
    let wrong = TOKEN.replace('X', "Y");
    for _ in 0..10 {
        assert_eq!(client.list(guesser, &wrong).unwrap(), 401);
    }
    assert_eq!(client.list(guesser, &wrong).unwrap(), 429);
    assert_eq!(client.list(guesser, TOKEN).unwrap(), 429, "also with the valid token");
    assert_eq!(client.list(honest, TOKEN).unwrap(), 200, "another source");
    assert_eq!(metric(&folder, "weir_api_auth_failures_total"), 10);
    assert_eq!(metric(&folder, "weir_api_auth_limited_total"), 2);
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("wrong or missing token")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("127.3.0.1") && !log.contains(&wrong), "{log}");
}

#[test]
fn failed_listeners_are_reported_and_retried_while_the_control_socket_serves() {
    let folder = Folder::new("busy");
    let (port, [http, tcp, metrics]) = (free_port(), folder.ports);
    let api = write_certificate(&folder, port);
    folder.write("weir.toml", &(folder.config() + &api));
    let taken = [http, tcp, metrics].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    let mut slowpath = folder.slowpath();
    let failing = |s: &serde_json::Value| -> Vec<String> {
        let all = s["listeners"].as_array().unwrap().iter();
        all.map(|one| one["key"].as_str().unwrap().to_owned()).collect()
    };
    // The listener of the API fails because there is no token file.
    let all = ["api.listen", "health.listen", "health.tcp", "metrics.listen"];
    let status = folder.until(&["status"], |s| failing(s) == all);
    let errors = status["listeners"].to_string();
    assert!(errors.contains("ss -ltnp") && errors.contains("api.token_file"), "{errors}");
    folder.until(&["status"], |s| generation(s) > 0);
    let shown = folder.weir(&["--socket", &folder.socket(), "status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("not listening") && shown.contains("metrics.listen"), "{shown}");
    let up =
        format!("weir_listener_up{{listener=\"metrics.listen\",address=\"127.0.0.1:{metrics}\"}}");
    let answer = folder.request("GET", "/metrics", &[], "");
    assert!(answer.body.contains(&format!("{up} 0")), "{answer:?}");
    let log = std::fs::read_to_string(folder.path.join("log")).unwrap();
    assert!(log.contains("not listening") && log.contains("health.tcp"), "{log}");

    drop(taken);
    folder.write("token", TOKEN);
    folder.until(&["status"], |s| failing(s).is_empty());
    assert!(folder.get(http, "/", "*/*").contains("503"));
    assert!(folder.get(metrics, "/metrics", "*/*").contains(&format!("{up} 1")));
    let client = Client::new(&folder, port);
    assert_eq!(client.list(Ipv4Addr::LOCALHOST, TOKEN).unwrap(), 200);
    assert!(slowpath.0.try_wait().unwrap().is_none(), "slowpath still runs");
}
