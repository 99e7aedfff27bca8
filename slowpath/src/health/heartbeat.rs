//! The control loop's heartbeat, and its evaluation by other threads.
//!
//! What the loop has published is valid only while the loop runs, and a stalled loop can't report
//! its own stall. So a reader that answers a probe compares the time of the last beat with the
//! clock, and a separate thread does the same ten times a second for consumers that wait for
//! changes (TCP probes, BGP, the cloud's lifecycle).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time of the control loop's last iteration.
pub struct Heartbeat {
    began: Instant,
    /// Milliseconds from `began` to the last beat.
    last: AtomicU64,
    /// Maximum age of a beat in milliseconds (`health.stall_timeout_ms`).
    timeout_ms: AtomicU64,
}

impl Heartbeat {
    /// Creates a heartbeat whose first beat is at `now`.
    pub fn new(timeout: Duration, now: Instant) -> Heartbeat {
        let heartbeat =
            Heartbeat { began: now, last: AtomicU64::new(0), timeout_ms: AtomicU64::new(0) };
        heartbeat.set_timeout(timeout);
        heartbeat
    }

    /// Sets the maximum age of a beat.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(millis(timeout), Ordering::Relaxed);
    }

    /// Records an iteration of the loop.
    pub fn beat(&self, now: Instant) {
        let since = millis(now.saturating_duration_since(self.began));
        self.last.store(since, Ordering::Relaxed);
    }

    /// Returns the reason for not being able if the last beat is too old at `now`. The text is
    /// constant during a stall, so that consumers see no further changes.
    pub fn stalled(&self, now: Instant) -> Option<String> {
        let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
        let timeout = self.timeout_ms.load(Ordering::Relaxed);
        (now.saturating_duration_since(last) > Duration::from_millis(timeout)).then(|| {
            format!(
                "the control loop is stalled: no heartbeat for more than {timeout} ms \
                 (health.stall_timeout_ms)"
            )
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_stalled_once_its_last_heartbeat_is_too_old() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let heartbeat = Heartbeat::new(Duration::from_secs(5), start);
        assert_eq!(heartbeat.stalled(at(5_000)), None, "a beat is valid for the full timeout");
        assert!(heartbeat.stalled(at(5_001)).unwrap().contains("more than 5000 ms"));
        heartbeat.beat(at(20_000));
        assert_eq!(heartbeat.stalled(at(25_000)), None);
        let reason = heartbeat.stalled(at(25_001));
        assert!(reason.is_some() && reason == heartbeat.stalled(at(99_000)), "a constant text");
        // The time read by another thread may be slightly older than the beat.
        assert_eq!(heartbeat.stalled(at(19_999)), None);
        heartbeat.beat(at(99_001));
        assert_eq!(heartbeat.stalled(at(99_002)), None, "the loop runs again");
        heartbeat.set_timeout(Duration::from_secs(60));
        assert_eq!(heartbeat.stalled(at(159_001)), None);
        assert!(heartbeat.stalled(at(159_002)).is_some());
    }
}
