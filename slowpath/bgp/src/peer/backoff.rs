//! When to connect: at once, then with exponential backoff while attempts fail, and with a separate
//! backoff while sessions fail.

use std::time::{Duration, Instant};

use super::{Action, Peer};

/// Maximum pause after a failed session.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

impl Peer {
    /// Connects unless there is a connection, an attempt or a retry timer.
    pub(super) fn connect_if_idle(&mut self, now: Instant) {
        let idle = self.sessions.is_empty() && !self.attempt && self.retry.is_none();
        if self.enabled && idle {
            self.connect(now);
        }
    }

    /// Starts an attempt, unless the peer is passive or waits for BFD. The next attempt is due
    /// after 1 s, 2 s, 4 s and so on, up to the connect retry time, each shortened by jitter. The
    /// first waits are short so that a router that has just restarted is reached soon.
    pub(super) fn connect(&mut self, now: Instant) {
        if !self.settings.passive && !self.waits_for_bfd() {
            self.attempt = true;
            let wait = Duration::from_secs(1 << self.attempts.min(16));
            let wait = wait.min(self.settings.connect_retry);
            self.attempts = self.attempts.saturating_add(1);
            self.retry = Some(now + self.jitter.shorten(wait));
            self.actions.push(Action::Connect);
        }
    }

    /// Schedules the next attempt after a failed session: at once the first time, then after 1 s,
    /// 2 s, 4 s and so on, up to [`MAX_BACKOFF`], each shortened by jitter.
    pub(super) fn back_off(&mut self, now: Instant) {
        if std::mem::take(&mut self.attempt) {
            self.actions.push(Action::Abandon);
        }
        self.retry = None;
        let wait = match self.failures {
            0 => Duration::ZERO,
            n => MAX_BACKOFF.min(Duration::from_secs(1 << (n - 1).min(6))),
        };
        self.failures = self.failures.saturating_add(1);
        if self.enabled && !self.waits_for_bfd() && !wait.is_zero() {
            self.retry = Some(now + self.jitter.shorten(wait));
        }
        self.connect_if_idle(now);
    }
}
