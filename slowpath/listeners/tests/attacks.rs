//! Tests of clients that send nothing, send slowly or never read, over real sockets and with short
//! timeouts.
#![expect(clippy::unwrap_used, reason = "a test may panic on a failed expectation")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, post};
use listeners::{Http, Limits, ReservedNetworks, Slots, Timeouts};
use patience::{check, eventually_async};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Size of a response in bytes that exceeds all socket buffers.
const LARGE: usize = 32 << 20;

fn app() -> Router {
    let large = || async { Bytes::from(vec![b'x'; LARGE]) };
    let body = |body: Result<Bytes, axum::extract::rejection::BytesRejection>| async {
        match body {
            Ok(body) => (StatusCode::OK, body.len().to_string()),
            Err(error) => (StatusCode::BAD_REQUEST, error.body_text()),
        }
    };
    Router::new()
        .route("/", get(|| async { "good" }))
        .route("/large", get(large))
        .route("/body", post(body))
        .layer(DefaultBodyLimit::disable())
}

async fn serve(limits: Limits, mode: Http) -> (SocketAddr, Arc<Slots>) {
    let slots = Slots::with_timeouts(limits, ReservedNetworks::default(), SHORT);
    let listener = listeners::bind("test", "127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let (app, of_listener) = (app(), Arc::clone(&slots));
    tokio::spawn(listeners::accept(listener, of_listener, move |stream, connection| {
        listeners::http(stream, connection, app.clone(), mode)
    }));
    (addr, slots)
}

/// Timeouts that suffice for a loaded machine to respond to immediate requests.
const SHORT: Timeouts = Timeouts {
    handshake: Duration::from_secs(2),
    head: Duration::from_secs(2),
    body: Duration::from_secs(2),
    body_rate: 32 << 10,
    write: Duration::from_secs(2),
};
const FEW: Limits = Limits { connections: 4, per_source: 4, reserved: 0 };

async fn send(addr: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Reads until the connection ends, possibly by RST.
async fn read_rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    all
}

/// Returns whether a request to `/` gets its complete response.
async fn responds(addr: SocketAddr) -> bool {
    let mut stream = send(addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    String::from_utf8(read_rest(&mut stream).await).unwrap().ends_with("good")
}

/// Waits until all connections have ended.
async fn wait_until_closed(slots: &Slots) {
    eventually_async("no open connection", async || {
        let counts = slots.counts();
        check(counts.accepted > 0 && counts.open == 0, || format!("{counts:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_never_reads_is_closed_after_the_write_timeout() {
    let (addr, slots) = serve(FEW, Http::KeepAlive).await;
    let mut stuck = send(addr, &"GET /large HTTP/1.1\r\nHost: a\r\n\r\n".repeat(8)).await;
    wait_until_closed(&slots).await;
    assert_eq!(slots.counts().timeouts, [0, 0, 0, 1]);
    assert!(read_rest(&mut stuck).await.len() < LARGE, "the rest was discarded");
    assert!(responds(addr).await);
}

#[tokio::test]
async fn peers_with_half_a_request_or_none_are_closed_after_the_head_timeout() {
    let (addr, slots) = serve(FEW, Http::KeepAlive).await;
    let mut half = send(addr, "GET / HTTP/1.1\r\nHo").await;
    let mut idle = send(addr, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(read_rest(&mut half).await.is_empty());
    assert!(
        read_rest(&mut idle).await.ends_with(b"good"),
        "it got its response, and was closed while idle"
    );
    wait_until_closed(&slots).await;
    assert_eq!(slots.counts().timeouts, [0, 2, 0, 0]);
}

#[tokio::test]
async fn body_below_the_minimum_rate_is_aborted() {
    let (addr, slots) = serve(FEW, Http::KeepAlive).await;
    let head =
        |len: usize| format!("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
    let (mut drips, pause) = (send(addr, &head(1000)).await, Duration::from_millis(100));
    let dripping = tokio::spawn(async move {
        // Until the server closes the connection.
        while drips.write_all(b"x").await.is_ok() {
            let mut some = [0; 1024];
            if let Ok(Ok(n)) = tokio::time::timeout(pause, drips.read(&mut some)).await {
                return String::from_utf8(some[..n].to_vec()).unwrap();
            }
        }
        String::new()
    });
    // 40 KiB/s, above the minimum rate of 32 KiB/s, for 2.5 s: longer than the timeout of a body
    // without data.
    let chunk = vec![b'x'; 4 << 10];
    let mut steady = send(addr, &head(25 * chunk.len())).await;
    for _ in 0..25 {
        steady.write_all(&chunk).await.unwrap();
        tokio::time::sleep(pause).await;
    }
    steady.shutdown().await.unwrap();
    let response = String::from_utf8(read_rest(&mut steady).await).unwrap();
    assert!(response.ends_with(&(25 * chunk.len()).to_string()), "{response}");
    let response = dripping.await.unwrap();
    assert!(response.contains(" 400 ") && response.contains("connection: close"), "{response}");
    assert_eq!(slots.counts().timeouts, [0, 0, 1, 0]);
}

#[tokio::test]
async fn incomplete_connections_are_evicted_for_a_request() {
    let (addr, slots) = serve(FEW, Http::OneRequest).await;
    let mut incomplete = Vec::new();
    for round in 0..20 {
        incomplete.push(send(addr, "GET /").await);
        assert!(responds(addr).await, "round {round}");
    }
    let counts = slots.counts();
    assert!(counts.evicted > 0 && counts.open <= FEW.descriptors(), "{counts:?}");
    assert_eq!((counts.refused_full, counts.refused_source), (0, 0));
}

#[tokio::test]
async fn one_request_mode_ignores_pipelined_requests() {
    let (addr, _) = serve(FEW, Http::OneRequest).await;
    let mut many = send(addr, &"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)).await;
    let responses = String::from_utf8(read_rest(&mut many).await).unwrap();
    assert_eq!(responses.matches("good").count(), 1, "{responses}");
}
