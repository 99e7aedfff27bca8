//! Tells probes the truth: *able* or not, over HTTP and over TCP.
//!
//! The HTTP listener is there from the first second and answers any path: 200 when able, 503 with
//! the reasons when not. A TCP probe only sees whether a connection comes about, so the TCP ports
//! are listened on while able and closed while not: a probe is then refused (RST) by the kernel.
//! Whether the control loop still goes on is judged here for each HTTP probe, and for TCP where
//! *able* is published (heartbeat.rs).

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

/// Whether traffic may come, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Able {
    /// Lcores poll, links are up, tables are committed and acknowledged, and we are not draining.
    pub able: bool,
    /// Why not; empty when able.
    pub reasons: Vec<String>,
}

/// Serves HTTP probes on `listener` for good, one request a connection; `able` is asked for each.
pub async fn serve_http(
    listener: TcpListener,
    slots: Arc<Slots>,
    able: impl Fn() -> Able + Clone + Send + Sync + 'static,
) {
    let app = Router::new().fallback(async move || answer(able()));
    listeners::accept(listener, slots, move |stream, connection| {
        listeners::http(stream, connection, app.clone(), Http::OneRequest)
    })
    .await;
}

fn answer(able: Able) -> (StatusCode, Json<Able>) {
    let code = if able.able { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(able))
}

/// Serves TCP probes on `addr` for good: open while able, closed while not. `key` is the setting
/// under which an address that can't be listened on is shown.
pub async fn serve_tcp(
    (conditions, key): (&Conditions, &str),
    addr: SocketAddr,
    slots: Arc<Slots>,
    mut able: watch::Receiver<Able>,
) {
    // Found out at once, not when the first probe is due.
    drop(conditions.listen(key, addr).await);
    loop {
        if able.wait_for(|able| able.able).await.is_err() {
            return;
        }
        let listener = conditions.listen(key, addr).await;
        tokio::select! {
            // A probe only wants the handshake; closing is the answer that costs least.
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
    use listeners::{Limits, Reserved};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn slots() -> Arc<Slots> {
        let limits = Limits { connections: 8, per_source: 8, reserved: 0 };
        Slots::new(limits, Reserved::default())
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
    async fn http_says_503_with_the_reason_until_able() {
        let (tell, able) = watch::channel(not_able());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_http(listener, slots(), move || able.borrow().clone()));
        let text = get(addr).await;
        assert!(text.contains("503") && text.contains("no lcore polls"), "{text}");
        tell.send_replace(Able { able: true, reasons: vec![] });
        let text = get(addr).await;
        assert!(text.contains("200 OK") && text.contains("\"able\":true"), "{text}");
    }

    #[tokio::test]
    async fn tcp_connects_while_able_and_is_refused_while_not() {
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (tell, able) = watch::channel(not_able());
        tokio::spawn(async move {
            serve_tcp((&Conditions::default(), "health.tcp"), free, slots(), able).await;
        });
        for round in 0..3 {
            for state in [false, true] {
                tell.send_replace(Able { able: state, reasons: vec![] });
                let mut agrees = false;
                for _ in 0..200 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    agrees = TcpStream::connect(free).await.is_ok() == state;
                    if agrees {
                        break;
                    }
                }
                assert!(agrees, "round {round}, able {state}");
            }
        }
    }
}
