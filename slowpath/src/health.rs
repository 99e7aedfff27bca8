//! Tells probes the truth: *able* or not, over HTTP and over TCP.
//!
//! The HTTP listener is there from the first second and answers any path: 200 when able, 503 with
//! the reasons when not. A TCP probe only sees whether a connection comes about, so the TCP ports
//! are listened on while able and closed while not: a probe is then refused (RST) by the kernel.
//! Whether the control loop still goes on is judged here for each HTTP probe, and for TCP by whoever
//! publishes *able* (heartbeat.rs).

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// How long to wait for an address that the machine does not have (yet).
const ADDRESS_RETRY: Duration = Duration::from_secs(1);

/// Whether traffic may come, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Able {
    /// Lcores poll, links are up, tables are committed and acknowledged, and we are not draining.
    pub able: bool,
    /// Why not; empty when able.
    pub reasons: Vec<String>,
}

/// A port that could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has it.
    #[error(
        "{key}: {addr} is in use by another process; \
         find it with `ss -ltnp 'sport = :{}'`, or set {key} to another port", addr.port()
    )]
    InUse {
        /// The setting.
        key: &'static str,
        /// The address.
        addr: SocketAddr,
    },
    /// Anything else.
    #[error("{key}: can't listen on {addr}: {source}")]
    Other {
        /// The setting.
        key: &'static str,
        /// The address.
        addr: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Listens on `addr`, waiting for the address to appear where the exception interfaces will bring
/// it; `key` is the setting to name in an error.
pub async fn listen(key: &'static str, addr: SocketAddr) -> Result<TcpListener, ListenError> {
    let mut said = false;
    loop {
        match TcpListener::bind(addr).await {
            Ok(listener) => return Ok(listener),
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => {
                if !said {
                    tracing::warn!("{key}: this machine does not have {addr} yet, waiting for it");
                    said = true;
                }
                tokio::time::sleep(ADDRESS_RETRY).await;
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                return Err(ListenError::InUse { key, addr });
            }
            Err(source) => return Err(ListenError::Other { key, addr, source }),
        }
    }
}

/// Serves HTTP probes on `listener` for good; `able` is asked for each of them.
pub async fn serve_http(
    listener: TcpListener,
    able: impl Fn() -> Able + Clone + Send + Sync + 'static,
) -> io::Result<()> {
    let app = Router::new().fallback(async move || answer(able()));
    axum::serve(listener, app).await
}

fn answer(able: Able) -> (StatusCode, Json<Able>) {
    let code = if able.able { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(able))
}

/// Serves TCP probes on `addr` for good: open while able, closed while not.
pub async fn serve_tcp(
    key: &'static str,
    addr: SocketAddr,
    mut able: watch::Receiver<Able>,
) -> Result<(), ListenError> {
    // Found out at once, not when the first probe is due.
    drop(listen(key, addr).await?);
    loop {
        if able.wait_for(|able| able.able).await.is_err() {
            return Ok(());
        }
        let listener = listen(key, addr).await?;
        loop {
            tokio::select! {
                // A probe only wants the handshake; closing is the answer that costs least.
                accepted = listener.accept() => drop(accepted),
                changed = able.wait_for(|able| !able.able) => match changed {
                    Ok(_) => break,
                    Err(_) => return Ok(()),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

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
        let listener = listen("health.listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_http(listener, move || able.borrow().clone()));
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
        tokio::spawn(serve_tcp("health.tcp", free, able));
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

    #[tokio::test]
    async fn a_port_in_use_names_the_setting_and_what_to_type() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = taken.local_addr().unwrap();
        let error = listen("health.listen", addr).await.unwrap_err().to_string();
        assert!(error.contains("health.listen") && error.contains("ss -ltnp"), "{error}");
    }
}
