//! Answers the cloud's health probes of the appliance over HTTP and TCP: able or not.
//!
//! The HTTP listener is up from the start and answers every path: 200 if able, 503 with the reasons
//! if not. A TCP probe only observes whether a connection is established, so the TCP ports are
//! listened on while able and closed otherwise: the kernel then refuses the probe with RST. A
//! stall of the control loop is detected for each HTTP probe when it arrives, and for the TCP ports
//! by a thread that checks the heartbeat ten times a second (heartbeat.rs).

pub mod checks;
pub mod heartbeat;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::{Json, Router};
use listeners::{Conditions, Http, Slots};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Whether the appliance can take traffic and, if not, why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Able {
    /// Whether all lcores poll, all links are up, tables are committed and acknowledged, the
    /// appliance is not draining, and the control loop is not stalled. Probes also fail while the
    /// cloud's lifecycle has a reason against new traffic.
    pub able: bool,
    /// Reasons for not being able; empty if able.
    pub reasons: Vec<String>,
}

/// Serves HTTP probes, one request per connection, and calls `able` for each. Never returns.
pub async fn serve_http(
    listener: TcpListener,
    slots: Arc<Slots>,
    able: impl Fn() -> Able + Clone + Send + Sync + 'static,
) {
    let app = Router::new().fallback(async move || respond(able()));
    listeners::accept(listener, slots, move |stream, connection| {
        listeners::http(stream, connection, app.clone(), Http::OneRequest)
    })
    .await;
}

fn respond(able: Able) -> (StatusCode, Json<Able>) {
    let code = if able.able { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(able))
}

/// Serves TCP probes on `addr`: listening while able, closed otherwise. Returns only when the
/// sender of `able` is gone. `key` is the configuration key under which a failure to listen is
/// reported.
pub async fn serve_tcp(
    (conditions, key): (&Conditions, &str),
    addr: SocketAddr,
    slots: Arc<Slots>,
    mut able: watch::Receiver<Able>,
) {
    // Listen once at startup: an address that can't be bound is reported now rather than when the
    // appliance is able.
    drop(conditions.listen(key, addr).await);
    loop {
        if able.wait_for(|able| able.able).await.is_err() {
            return;
        }
        let listener = conditions.listen(key, addr).await;
        tokio::select! {
            // A probe needs the handshake only, so connections are closed as soon as they are
            // accepted.
            () = listeners::accept_and_close(listener, Arc::clone(&slots)) => {}
            changed = able.wait_for(|able| !able.able) => if changed.is_err() {
                return;
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use listeners::{Limits, ReservedNetworks};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn slots() -> Arc<Slots> {
        let limits = Limits { connections: 8, per_source: 8, reserved: 0 };
        Slots::new(limits, ReservedNetworks::default())
    }

    async fn get(addr: SocketAddr) -> String {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"GET /anything HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    fn not_able() -> Able {
        Able { able: false, reasons: vec!["no lcore polls".into()] }
    }

    #[tokio::test]
    async fn http_returns_503_with_the_reason_until_able() {
        let (sender, able) = watch::channel(not_able());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_http(listener, slots(), move || able.borrow().clone()));
        let text = get(addr).await;
        assert!(text.contains("503") && text.contains("no lcore polls"), "{text}");
        sender.send_replace(Able { able: true, reasons: vec![] });
        let text = get(addr).await;
        assert!(text.contains("200 OK") && text.contains("\"able\":true"), "{text}");
    }

    #[tokio::test]
    async fn tcp_accepts_only_while_able() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (sender, able) = watch::channel(not_able());
        tokio::spawn(async move {
            serve_tcp((&Conditions::default(), "health.tcp"), free, slots(), able).await;
        });
        for round in 0..3 {
            for state in [false, true] {
                sender.send_replace(Able { able: state, reasons: vec![] });
                let mut matches = false;
                for _ in 0..200 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    matches = TcpStream::connect(free).await.is_ok() == state;
                    if matches {
                        break;
                    }
                }
                assert!(matches, "round {round}, able {state}");
            }
        }
    }
}
