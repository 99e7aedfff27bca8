//! Messages to the service manager: readiness, status, reload, shutdown, and the watchdog.
//!
//! The protocol is that of sd_notify(3): lines of assignments in one datagram to the socket that
//! the environment variable `NOTIFY_SOCKET` names. Without that variable, as in a start by hand,
//! all functions do nothing. A message that the service manager does not take in time is dropped,
//! since a process that forwards packets must not wait for it.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time after which a message that the service manager does not take is dropped.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);
/// Keep-alive messages per watchdog timeout: the watchdog expires only if several in a row are
/// late.
const BEATS_PER_TIMEOUT: u32 = 4;

/// The connection to the service manager.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// Interval of keep-alive messages; `None` if the service manager expects none.
    beat_interval: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The status that was sent last.
    status: String,
    last_beat: Option<Instant>,
    /// Whether the shutdown has begun. Its status is not replaced.
    is_stopping: bool,
}

impl ServiceManager {
    /// Connects to the service manager that the environment names, if it names one.
    pub fn from_environment() -> ServiceManager {
        let variable = |name| std::env::var(name).ok();
        let own = std::process::id().to_string();
        let is_watched = variable("WATCHDOG_PID").is_none_or(|pid| pid == own);
        let timeout = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok());
        let timeout = timeout.map(Duration::from_micros).filter(|_| is_watched);
        ServiceManager::new(std::env::var_os("NOTIFY_SOCKET").as_deref(), timeout)
    }

    /// Connects to the socket at a path, or at an abstract name after `@`. `watchdog_timeout` is
    /// the time within which the service manager expects a keep-alive message.
    pub fn new(socket: Option<&OsStr>, watchdog_timeout: Option<Duration>) -> ServiceManager {
        let socket = socket.and_then(|name| connect(name).ok());
        let beat_interval = watchdog_timeout.map(|timeout| timeout / BEATS_PER_TIMEOUT);
        ServiceManager { socket, beat_interval, state: Mutex::default() }
    }

    /// Reports that the process does its work: it forwards or serves. Also ends a reload. Ignored
    /// during shutdown.
    pub fn ready(&self, status: &str) {
        let mut state = self.state();
        if !state.is_stopping {
            status.clone_into(&mut state.status);
            self.send(&format!("READY=1\n{}", status_assignment(status)));
        }
    }

    /// Reports a status if it differs from the last one. Ignored during shutdown.
    pub fn status(&self, status: &str) {
        let mut state = self.state();
        if !state.is_stopping && state.status != status {
            status.clone_into(&mut state.status);
            self.send(&status_assignment(status));
        }
    }

    /// Reports the beginning of a reload of the configuration. [`ServiceManager::ready`] ends the
    /// reload.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Reports the beginning of the shutdown.
    pub fn stopping(&self, status: &str) {
        self.state().is_stopping = true;
        self.send(&format!("STOPPING=1\n{}", status_assignment(status)));
    }

    /// Extends the service manager's timeout of the shutdown to `time` from now.
    pub fn extend_timeout(&self, time: Duration) {
        self.send(&format!("EXTEND_TIMEOUT_USEC={}", time.as_micros()));
    }

    /// Sends the keep-alive message of the watchdog if one is due at `now` and `has_progressed`
    /// returns true. `has_progressed` is called only if a message is due. After false, the message
    /// stays due, so that the next call calls it again.
    pub fn beat_if(&self, now: Instant, has_progressed: impl FnOnce() -> bool) {
        let Some(interval) = self.beat_interval else { return };
        let mut state = self.state();
        let is_due = state.last_beat.is_none_or(|last| now >= last + interval);
        if is_due && has_progressed() {
            state.last_beat = Some(now);
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // The service manager notices a missing message by its timeouts.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the assignment of a status, without line breaks: each would begin another assignment.
fn status_assignment(status: &str) -> String {
    format!("STATUS={}", status.replace('\n', " "))
}

fn connect(name: &OsStr) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(name: &str) -> (UnixDatagram, String) {
        let name = format!("weir-notify-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_nonblocking(true).unwrap();
        (socket, format!("@{name}"))
    }

    fn next(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 256];
        let received = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..received]).into_owned())
    }

    #[test]
    fn messages_have_the_format_of_sd_notify() {
        let (socket, name) = receiver("format");
        let manager = ServiceManager::new(Some(OsStr::new(&name)), None);
        let sent = || next(&socket).unwrap();
        manager.ready("serving");
        assert_eq!(sent(), "READY=1\nSTATUS=serving");
        manager.status("serving");
        assert_eq!(next(&socket), None, "an unchanged status is not sent");
        manager.status("not able:\nWATCHDOG=1");
        assert_eq!(sent(), "STATUS=not able: WATCHDOG=1");
        manager.reloading();
        let text = sent();
        let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.parse::<u64>().unwrap() > 0, "{text}");
        manager.extend_timeout(Duration::from_secs(30));
        assert_eq!(sent(), "EXTEND_TIMEOUT_USEC=30000000");
        manager.stopping("deregistering");
        assert_eq!(sent(), "STOPPING=1\nSTATUS=deregistering");
        manager.status("able");
        manager.ready("able");
        assert_eq!(next(&socket), None, "the status of the shutdown stays");
    }

    #[test]
    fn beats_come_at_a_quarter_of_the_timeout_and_only_with_progress() {
        let (socket, name) = receiver("beats");
        let timeout = Some(Duration::from_secs(40));
        let manager = ServiceManager::new(Some(OsStr::new(&name)), timeout);
        let start = Instant::now();
        let beat = |s, progress| {
            manager.beat_if(start + Duration::from_secs(s), || progress);
            next(&socket)
        };
        let sent = Some("WATCHDOG=1".to_owned());
        assert_eq!(beat(0, true), sent);
        assert_eq!(beat(9, true), None, "not due");
        assert_eq!(beat(10, false), None);
        assert_eq!(beat(11, true), sent, "as soon as there is progress");
        assert_eq!(beat(20, true), None, "the interval begins at the last beat");
        assert_eq!(beat(21, true), sent);
    }

    #[test]
    fn without_a_watchdog_or_a_service_manager_nothing_is_sent() {
        let (socket, name) = receiver("none");
        let progress = || unreachable!("no beat is due");
        ServiceManager::new(Some(OsStr::new(&name)), None).beat_if(Instant::now(), progress);
        assert_eq!(next(&socket), None);
        for name in [None, Some("/nonexistent/socket"), Some("@weir-no-listener"), Some("")] {
            let manager = ServiceManager::new(name.map(OsStr::new), Some(Duration::ZERO));
            manager.ready("serving");
            manager.beat_if(Instant::now(), || true);
            manager.stopping("ending");
        }
    }
}
