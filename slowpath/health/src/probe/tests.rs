//! Tests of probes of real servers: good ones, and those that close, hang, respond slowly or send
//! garbage.

use std::net::IpAddr;

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::plan::Authorities;
use crate::tls::TlsConfigs;

const TIMEOUT: Duration = Duration::from_millis(300);

/// Starts a server that handles every connection in the same way.
async fn server<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    addr
}

/// Starts a server that reads a request, sends this response, and closes.
async fn server_sending(answer: &'static str) -> SocketAddr {
    server(move |mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await
}

fn target(to: SocketAddr, probe_type: ProbeType) -> Target {
    Target { to, from: None, tunnel_entry: None, probe_type: Arc::new(probe_type) }
}

fn http() -> Http {
    Http { path: "/live".into(), host: String::new(), expect: vec![200..=399] }
}

async fn run_probe(to: SocketAddr, probe_type: ProbeType) -> (Option<bool>, String) {
    let answer = probe(&target(to, probe_type), None, TIMEOUT).await;
    (answer.good, answer.reason.into_owned())
}

#[tokio::test]
async fn tcp_probe_requires_only_a_connection() {
    let to = server(|_| async {}).await;
    assert_eq!(run_probe(to, ProbeType::Connection).await, (Some(true), "connected".into()));
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert_eq!(
        run_probe(free, ProbeType::Connection).await,
        (Some(false), "connection refused".into())
    );
}

#[tokio::test]
async fn statuses_are_evaluated_and_interim_ones_skipped() {
    for (answer, good, reason) in [
        ("HTTP/1.1 200 OK\r\n\r\n", true, "status 200"),
        ("HTTP/1.0 302 Found\r\nLocation: /\r\n\r\n", true, "status 302"),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", true, "status 204"),
        ("HTTP/1.1 503 Busy\r\n\r\nsorry", false, "status 503, expected 200-399"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", false, "status 404, expected 200-399"),
    ] {
        assert_eq!(
            run_probe(server_sending(answer).await, ProbeType::Http(http())).await,
            (Some(good), reason.into())
        );
    }
}

#[tokio::test]
async fn invalid_and_truncated_responses_fail() {
    for (answer, reason) in [
        ("", "connection closed without a response"),
        ("HTTP/1.1 20", "incomplete response"),
        ("HTTP/1.1 200 OK\r\nA: b\r\n", "incomplete response"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "cannot parse the HTTP response"),
        ("\0\0\0\0", "cannot parse the HTTP response"),
        ("HTTP/1.1 2000 OK\r\n\r\n", "cannot parse the HTTP response"),
    ] {
        let (good, text) = run_probe(server_sending(answer).await, ProbeType::Http(http())).await;
        assert_eq!(good, Some(false), "{answer:?}");
        assert!(text.contains(reason), "{answer:?}: {text}");
    }
    let endless = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(b"A: b\r\n").await.is_ok() {}
    });
    let (good, text) = run_probe(endless.await, ProbeType::Http(http())).await;
    assert_eq!(good, Some(false));
    assert!(text.contains("too many headers") || text.contains("longer than 16384"), "{text}");
    let wide = server(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nA: ").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    let (good, text) = run_probe(wide.await, ProbeType::Http(http())).await;
    assert!(good == Some(false) && text.contains("longer than 16384 bytes"), "{text}");
}

#[tokio::test]
async fn timeout_covers_the_whole_probe() {
    let hangs = server(|stream| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    });
    let hangs = hangs.await;
    assert_eq!(
        run_probe(hangs, ProbeType::Http(http())).await,
        (Some(false), "no response within 300 ms".into())
    );
    assert_eq!(
        run_probe(hangs, ProbeType::Connection).await.0,
        Some(true),
        "the backend's kernel still accepts connections"
    );
    let slow = server(|mut stream| async move {
        for byte in b"HTTP/1.1 200 OK\r\nServer: slow\r\n\r\n" {
            tokio::time::sleep(Duration::from_millis(30)).await;
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    });
    let (good, reason) = run_probe(slow.await, ProbeType::Http(http())).await;
    assert_eq!((good, reason.as_str()), (Some(false), "no response within 300 ms"));
}

#[tokio::test]
async fn request_has_the_configured_path_and_host() {
    let (sender, mut result) = tokio::sync::mpsc::unbounded_channel();
    let to = server(move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut request = vec![0; 1024];
            let read = stream.read(&mut request).await.unwrap();
            let from = stream.peer_addr().unwrap().ip();
            sender.send((from, String::from_utf8_lossy(&request[..read]).into_owned())).unwrap();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        }
    });
    let to = to.await;
    let source: IpAddr = [127, 0, 0, 7].into();
    let sent = Target { from: Some(source), ..target(to, ProbeType::Http(http())) };
    assert_eq!(probe(&sent, None, TIMEOUT).await.good, Some(true));
    let (from, request) = result.recv().await.unwrap();
    assert_eq!(from, source);
    let head = format!("GET /live HTTP/1.1\r\nHost: {to}\r\n");
    assert!(request.starts_with(&head) && request.ends_with("\r\n\r\n"), "{request}");
    let named = Http { host: "web.example".into(), ..http() };
    assert_eq!(run_probe(to, ProbeType::Http(named)).await.0, Some(true));
    assert!(result.recv().await.unwrap().1.contains("\r\nHost: web.example\r\n"));
}

#[tokio::test]
async fn local_failures_are_not_counted_against_the_backend() {
    let to = server(|_| async {}).await;
    let from = Some([203, 0, 113, 9].into());
    let answer = probe(&Target { from, ..target(to, ProbeType::Connection) }, None, TIMEOUT).await;
    assert_eq!(answer.good, None);
    assert!(answer.reason.ends_with("run: ip addr add 203.0.113.9 dev lo"), "{}", answer.reason);
    // slowpath adds the source address of a probe through a tunnel.
    let tunnel_entry = Some(TunnelEntry::Interface("lo".into()));
    let answer =
        probe(&Target { from, tunnel_entry, ..target(to, ProbeType::Connection) }, None, TIMEOUT)
            .await;
    assert!(
        answer.reason.contains("source address yet; if this persists, run: ip addr"),
        "{}",
        answer.reason
    );
    let tunnel_entry = Some(TunnelEntry::Interface("h7-none0".into()));
    let answer =
        probe(&Target { tunnel_entry, ..target(to, ProbeType::Connection) }, None, TIMEOUT).await;
    assert!(answer.good.is_none() && answer.reason.contains("h7-none0"), "{}", answer.reason);
}

#[tokio::test]
async fn sockets_leave_no_time_wait() {
    let to = server_sending("HTTP/1.1 200 OK\r\n\r\n").await;
    for _ in 0..50 {
        assert_eq!(run_probe(to, ProbeType::Http(http())).await.0, Some(true));
        assert_eq!(run_probe(to, ProbeType::Connection).await.0, Some(true));
    }
    // Connections of the probes in /proc/net/tcp; state 06 is TIME_WAIT.
    let sockets = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = format!(":{:04X}", to.port());
    let waits = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns[2].ends_with(&port) && columns[3] == "06"
    };
    assert_eq!(sockets.lines().skip(1).filter(waits).count(), 0, "{sockets}");
}

/// Starts a TLS server, and returns its address and the file with its certificate authority.
async fn tls_server(names: &[&str], answer: &'static str) -> (SocketAddr, std::path::PathBuf) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let to = server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    let to = to.await;
    let process = std::process::id();
    let file = std::env::temp_dir().join(format!("weir-ca-{process}-{}.pem", to.port()));
    std::fs::write(&file, made.cert.pem()).unwrap();
    (to, file)
}

async fn probe_over_tls(to: SocketAddr, tls: Tls) -> (Option<bool>, String) {
    let config = TlsConfigs::default().get(tls.authorities.as_ref(), Instant::now()).unwrap();
    let answer =
        probe(&target(to, ProbeType::Https(http(), tls)), Some(config), TIMEOUT * 10).await;
    (answer.good, answer.reason.into_owned())
}

#[tokio::test]
async fn certificates_are_verified_by_authority_and_name() {
    let (to, own) = tls_server(&["web.example", "127.0.0.1"], "HTTP/1.1 200 OK\r\n\r\n").await;
    let (_, other) = tls_server(&["web.example"], "").await;
    let tls = |file: Option<&std::path::PathBuf>, name: &str| Tls {
        authorities: file.map(|file| Authorities { file: file.clone(), folder: None }),
        name: name.into(),
    };
    for name in ["web.example", ""] {
        assert_eq!(
            probe_over_tls(to, tls(Some(&own), name)).await,
            (Some(true), "status 200".into())
        );
    }
    let (good, reason) = probe_over_tls(to, tls(Some(&own), "shop.example")).await;
    assert!(good == Some(false) && reason.contains("TLS: invalid peer certificate"), "{reason}");
    let (good, reason) = probe_over_tls(to, tls(Some(&other), "web.example")).await;
    assert!(good == Some(false) && reason.contains("invalid peer certificate"), "{reason}");
    assert_eq!(probe_over_tls(to, tls(None, "shop.example")).await.0, Some(true));
    let plain = server_sending("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let (good, reason) = probe_over_tls(plain, tls(None, "")).await;
    assert!(good == Some(false) && reason.starts_with("TLS: "), "{reason}");
    let hangs = server(|stream| async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    });
    let hangs = hangs.await;
    let config = TlsConfigs::default().get(None, Instant::now()).unwrap();
    let sent = target(hangs, ProbeType::Https(http(), tls(None, "web.example")));
    let answer = probe(&sent, Some(config), TIMEOUT).await;
    assert_eq!(answer.reason, "no TLS handshake within 300 ms");
    let unset = target(plain, ProbeType::Https(http(), tls(None, "web.example")));
    let answer = probe(&unset, None, TIMEOUT).await;
    assert_eq!(
        (answer.good, &*answer.reason),
        (None, "no TLS configuration"),
        "no plain-text request"
    );
    let busy = tls_server(&["web.example"], "HTTP/1.1 503 Busy\r\n\r\n").await;
    let (good, reason) = probe_over_tls(busy.0, tls(Some(&busy.1), "web.example")).await;
    assert!(good == Some(false) && reason.contains("status 503"), "{reason}");
    for file in [own, other, busy.1] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn unusable_ca_file_is_reported_and_reread() {
    let file = std::env::temp_dir().join(format!("weir-ca-{}-none.pem", std::process::id()));
    let (mut configs, now) = (TlsConfigs::default(), Instant::now());
    let named = Authorities { file: file.clone(), folder: None };
    let missing = configs.get(Some(&named), now).unwrap_err();
    assert!(missing.contains(&file.display().to_string()), "{missing}");
    let made = rcgen::generate_simple_self_signed(vec!["web.example".into()]).unwrap();
    std::fs::write(&file, "nothing").unwrap();
    assert_eq!(configs.get(Some(&named), now + Duration::from_secs(59)).unwrap_err(), missing);
    let empty = configs.get(Some(&named), now + Duration::from_secs(61)).unwrap_err();
    assert!(empty.contains("the file contains no certificate"), "{empty}");
    std::fs::write(&file, made.cert.pem()).unwrap();
    assert!(configs.get(Some(&named), now + Duration::from_secs(122)).is_ok());
    std::fs::remove_file(file).unwrap();
}

#[test]
fn service_ca_file_is_confined_to_its_folder_with_one_error() {
    let folder = std::env::temp_dir().join(format!("weir-ca-folder-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["web.example".into()]).unwrap();
    std::fs::write(folder.join("ca.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("empty.pem"), "").unwrap();
    std::fs::write(folder.join("long.pem"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let load = |file: &str| {
        let named = Authorities { file: folder.join(file), folder: Some(folder.clone()) };
        TlsConfigs::default().get(Some(&named), Instant::now()).map(drop)
    };
    assert_eq!(load("ca.pem"), Ok(()));
    let failures = ["/dev/zero", "/proc/kmsg", "/etc/passwd", "gone.pem", "empty.pem", "long.pem"];
    let answers: std::collections::BTreeSet<String> =
        failures.into_iter().map(|file| load(file).unwrap_err()).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
