//! Binding of listeners with retries; failures are published for status, log and metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Length of the accept queue; the kernel limits it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// Delay after the first failure; doubled after each further one.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Maximum delay: a port that becomes free is opened within this time.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(4);

/// Error of binding an address.
#[derive(Debug)]
pub struct BindError {
    key: String,
    addr: SocketAddr,
    source: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BindError { key, addr, source } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "{key}: {addr} is in use by another process; find it with `ss -ltnp 'sport = \
                 :{}'`, or set {key} to another port",
                addr.port()
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "{key}: this machine does not have {} (yet); add it, or set {key} to another \
                 address",
                addr.ip()
            ),
            _ => write!(f, "{key}: cannot listen on {addr}: {source}"),
        }
    }
}

impl BindError {
    /// Returns the kind of the underlying I/O error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Binds `addr` once and listens. `key` is the setting named in the error. Must be called within a
/// tokio runtime.
///
/// # Errors
/// Returns an error if the address cannot be bound.
pub fn bind(key: &str, addr: SocketAddr) -> Result<TcpListener, BindError> {
    open(addr).map_err(|source| BindError { key: key.to_owned(), addr, source })
}

fn open(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Result of the last attempt to listen, for `weir status` and metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerStatus {
    /// Setting that configures the listener.
    pub key: String,
    /// Address of the listener.
    pub address: SocketAddr,
    /// Error of the last attempt to listen; `None` if it succeeded. A port that is closed on
    /// purpose (`health.tcp` while the appliance is not able) has no error.
    pub error: Option<String>,
    /// Time since the first of the failed attempts; zero without an error.
    pub failing_for: Duration,
}

/// Status of all listeners of the process.
#[derive(Default)]
pub struct Conditions(Mutex<BTreeMap<(String, SocketAddr), Option<Failing>>>);

struct Failing {
    error: String,
    since: Instant,
}

impl Conditions {
    /// Returns the status of all listeners.
    pub fn all(&self) -> Vec<ListenerStatus> {
        let all = self.0.lock();
        let status = |((key, address), failing): (&(String, SocketAddr), &Option<Failing>)| {
            let failing_for = failing.as_ref().map(|failing| failing.since.elapsed());
            ListenerStatus {
                key: key.clone(),
                address: *address,
                error: failing.as_ref().map(|failing| failing.error.clone()),
                failing_for: failing_for.unwrap_or_default(),
            }
        };
        all.iter().map(status).collect()
    }

    /// Sets the status of a listener, and logs its failures and its recovery.
    pub fn set(&self, key: &str, address: SocketAddr, error: Option<String>) {
        let mut all = self.0.lock();
        let before = all.entry((key.to_owned(), address)).or_default();
        match (&mut *before, error) {
            (None, None) => {}
            (Some(failing), Some(error)) if failing.error == error => {}
            (Some(_), None) => {
                *before = None;
                tracing::info!(event = "listening_again", key, %address, "listening again");
            }
            (_, Some(error)) => {
                tracing::error!(
                    event = "not_listening",
                    key,
                    %address,
                    %error,
                    "not listening, retrying"
                );
                let since = before.as_ref().map_or_else(Instant::now, |failing| failing.since);
                *before = Some(Failing { error, since });
            }
        }
    }

    /// Removes the status of a listener that is no longer needed.
    pub fn remove(&self, key: &str, address: SocketAddr) {
        self.0.lock().remove(&(key.to_owned(), address));
    }

    /// Binds `addr`, with as many attempts as necessary. `key` is the setting named in errors.
    pub async fn listen(&self, key: &str, addr: SocketAddr) -> TcpListener {
        self.retry(key, addr, || bind(key, addr)).await
    }

    /// Calls `open` until it succeeds, with increasing delays. Each result sets the status of the
    /// listener of `key` and `addr`.
    pub async fn retry<T, E: fmt::Display>(
        &self,
        key: &str,
        addr: SocketAddr,
        mut open: impl FnMut() -> Result<T, E>,
    ) -> T {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            match open() {
                Ok(opened) => {
                    self.set(key, addr, None);
                    return opened;
                }
                Err(error) => self.set(key, addr, Some(error.to_string())),
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn port_in_use_is_reported_until_free() {
        let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = busy.local_addr().unwrap();
        let conditions = std::sync::Arc::new(Conditions::default());
        let task = tokio::spawn({
            let conditions = std::sync::Arc::clone(&conditions);
            async move { conditions.listen("health.listen", addr).await }
        });
        while conditions.all().is_empty() {
            tokio::task::yield_now().await;
        }
        let error = conditions.all()[0].error.clone().unwrap();
        assert!(error.contains("health.listen") && error.contains("ss -ltnp"), "{error}");
        drop(busy);
        let listener = task.await.unwrap();
        assert_eq!(listener.local_addr().unwrap(), addr);
        assert_eq!(conditions.all()[0].error, None);
        conditions.remove("health.listen", addr);
        assert_eq!(conditions.all(), []);
    }

    #[tokio::test]
    async fn a_missing_address_names_the_setting() {
        let error = bind("metrics.listen", "192.0.2.1:9".parse().unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("metrics.listen") && text.contains("192.0.2.1 (yet)"), "{text}");
    }
}
