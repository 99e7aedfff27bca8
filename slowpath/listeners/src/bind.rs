//! Binding: retried with backoff, its failure a condition for status, log and metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Connections that may wait to be accepted; the kernel takes `net.core.somaxconn` if that is less.
const BACKLOG: i32 = 4096;
/// The pause after the first failure. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause: a port that is free again is listened on within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Why an address can't be listened on.
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
            _ => write!(f, "{key}: can't listen on {addr}: {source}"),
        }
    }
}

impl BindError {
    /// What the kernel said.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Listens on `addr`, once; `key` is the setting to name in an error. Within a tokio runtime.
///
/// # Errors
/// The address can't be listened on.
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

/// A listener as status and metrics show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerStatus {
    /// Its setting.
    pub key: String,
    /// Its address.
    pub address: SocketAddr,
    /// Why it does not listen; none where it does.
    pub error: Option<String>,
    /// How long it has not listened.
    pub failing_for: Duration,
}

/// The condition of every listener of the process.
#[derive(Default)]
pub struct Conditions(Mutex<BTreeMap<(String, SocketAddr), Option<Failing>>>);

struct Failing {
    error: String,
    since: Instant,
}

impl Conditions {
    /// All of them.
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

    /// Sets the condition of one, and logs it where it changed.
    pub fn set(&self, key: &str, address: SocketAddr, error: Option<String>) {
        let mut all = self.0.lock();
        let before = all.entry((key.to_owned(), address)).or_default();
        match (&mut *before, error) {
            (None, None) => {}
            (Some(failing), Some(error)) if failing.error == error => {}
            (Some(_), None) => {
                *before = None;
                tracing::info!(key, %address, "listening again");
            }
            (_, Some(error)) => {
                tracing::error!(key, %address, "not listening, trying again: {error}");
                let since = before.as_ref().map_or_else(Instant::now, |failing| failing.since);
                *before = Some(Failing { error, since });
            }
        }
    }

    /// Forgets one that is not wanted any more.
    pub fn remove(&self, key: &str, address: SocketAddr) {
        self.0.lock().remove(&(key.to_owned(), address));
    }

    /// Listens on `addr`, however often that has to be tried.
    pub async fn listen(&self, key: &str, addr: SocketAddr) -> TcpListener {
        self.retry(key, addr, || bind(key, addr)).await
    }

    /// Tries `open` until it succeeds, with growing pauses; a failure is the condition of `key`.
    pub async fn retry<T, E: fmt::Display>(
        &self,
        key: &str,
        addr: SocketAddr,
        mut open: impl FnMut() -> Result<T, E>,
    ) -> T {
        let mut pause = FIRST_PAUSE;
        loop {
            match open() {
                Ok(opened) => {
                    self.set(key, addr, None);
                    return opened;
                }
                Err(error) => self.set(key, addr, Some(error.to_string())),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_busy_port_is_a_condition_until_it_is_free() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = taken.local_addr().unwrap();
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
        drop(taken);
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
