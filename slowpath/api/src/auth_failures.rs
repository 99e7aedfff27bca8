//! Failed authentications: counted, logged and rate-limited by source.
//!
//! A source here is the peer of a connection: an IPv4 address, an IPv6 /64 or a user. Each source
//! has a budget of failures that refills slowly. While the budget is exhausted, requests of the
//! source are rejected whatever token they carry: the budget bounds how fast tokens can be guessed.
//! A request without a token guesses nothing and costs none of it: other sites can make a browser
//! send such requests. Connections that have authenticated before are not affected.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use listeners::{Source, SourceKey};
use parking_lot::Mutex;

/// Failures that a full budget allows before the source is rejected.
const BURST: u32 = 10;
/// Time after which the budget grows by one failure.
const REFILL: Duration = Duration::from_secs(6);
/// Maximum number of sources tracked.
const MAX_SOURCES: usize = 4096;
/// Minimum interval between two log lines about the same source.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of log lines per minute, for all sources together.
const LOG_LINES: u32 = 20;

/// Failed authentications of all sources.
#[derive(Default)]
pub struct AuthFailures {
    sources: Mutex<Table>,
    failures: AtomicU64,
    limited: AtomicU64,
}

#[derive(Default)]
struct Table {
    sources: HashMap<SourceKey, Failures>,
    /// Start of the minute that `lines` counts.
    minute: Option<Instant>,
    /// Log lines written in that minute, for all sources.
    lines: u32,
}

/// Failures of one source.
struct Failures {
    /// When the budget is full again; each failure postpones it by `REFILL`.
    full_at: Instant,
    /// Failures since the last log line about this source.
    unlogged: u64,
    /// Time of the last log line about this source.
    logged: Option<Instant>,
}

impl AuthFailures {
    /// Returns the number of requests with a wrong token, one that has ended, or none.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Returns the number of requests rejected because their source's budget was exhausted.
    pub fn limited(&self) -> u64 {
        self.limited.load(Relaxed)
    }

    /// Returns how long the source has to wait until its requests are accepted again, or `None` if
    /// they are accepted now. A request that has to wait is counted in [`AuthFailures::limited`].
    pub fn wait(&self, source: Source, now: Instant) -> Option<Duration> {
        let table = self.sources.lock();
        let failures = table.sources.get(&source.key())?;
        let accepted_at = failures.full_at.checked_sub(REFILL * (BURST - 1))?;
        let wait = accepted_at.checked_duration_since(now).filter(|wait| !wait.is_zero())?;
        self.limited.fetch_add(1, Relaxed);
        Some(wait)
    }

    /// Counts a failure, and logs it unless the log limits are reached. Returns the number of
    /// failures that the log line is about; `None` without one.
    pub fn failed(&self, source: Source, now: Instant) -> Option<u64> {
        self.count(source, |table| table.failed(source.key(), now))
    }

    /// Counts a request without a token, and logs it like a failure, with the same result. It does
    /// not use up the budget.
    pub fn missing(&self, source: Source, now: Instant) -> Option<u64> {
        self.count(source, |table| table.note(source.key(), now))
    }

    fn count(&self, source: Source, record: impl FnOnce(&mut Table) -> Option<u64>) -> Option<u64> {
        self.failures.fetch_add(1, Relaxed);
        let failures = record(&mut self.sources.lock())?;
        tracing::warn!(
            event = "api_token_wrong",
            %source,
            failures,
            "API requests rejected: wrong or missing token"
        );
        Some(failures)
    }

    /// Counts a request with a token that is no longer accepted, and logs it like a failure, with
    /// the same result. It does not use up the budget: a client that has not followed a replaced
    /// token guesses nothing, and must not lock out other clients of its source.
    pub fn outdated(&self, source: Source, now: Instant) -> Option<u64> {
        self.failures.fetch_add(1, Relaxed);
        let failures = self.sources.lock().note(source.key(), now)?;
        tracing::warn!(
            event = "api_token_outdated",
            %source,
            failures,
            "API requests rejected: token no longer accepted"
        );
        Some(failures)
    }
}

impl Table {
    /// Records a failure, which costs budget. Returns the number of failures that a log line should
    /// report, or `None` if no line should be written now.
    fn failed(&mut self, source: SourceKey, now: Instant) -> Option<u64> {
        let line = self.note(source, now);
        let failures = self.sources.get_mut(&source)?;
        failures.full_at = failures.full_at.max(now) + REFILL;
        line
    }

    /// Records a failure that costs no budget. Returns the same as [`Table::failed`].
    fn note(&mut self, source: SourceKey, now: Instant) -> Option<u64> {
        if self.sources.len() >= MAX_SOURCES && !self.sources.contains_key(&source) {
            self.evict(now);
        }
        let new = || Failures { full_at: now, unlogged: 0, logged: None };
        let failures = self.sources.entry(source).or_insert_with(new);
        failures.unlogged += 1;
        if failures.logged.is_some_and(|at| now < at + LOG_PAUSE) {
            return None;
        }
        if self.minute.is_none_or(|began| now >= began + Duration::from_secs(60)) {
            (self.minute, self.lines) = (Some(now), 0);
        }
        if self.lines >= LOG_LINES {
            return None;
        }
        self.lines += 1;
        failures.logged = Some(now);
        Some(std::mem::take(&mut failures.unlogged))
    }

    /// Removes the sources whose budget is full or, if there is none, the one with the most budget
    /// left.
    fn evict(&mut self, now: Instant) {
        self.sources.retain(|_, failures| failures.full_at > now);
        if self.sources.len() >= MAX_SOURCES {
            let fullest = self.sources.iter().min_by_key(|(_, failures)| failures.full_at);
            if let Some(source) = fullest.map(|(source, _)| *source) {
                self.sources.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(host: u32) -> Source {
        Source::address(std::net::Ipv4Addr::from(host).into())
    }

    #[test]
    fn source_is_blocked_after_ten_failures_and_accepted_after_refill() {
        let (auth_failures, mut now) = (AuthFailures::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(auth_failures.wait(source(1), now), None);
            auth_failures.failed(source(1), now);
        }
        assert_eq!(auth_failures.wait(source(1), now), Some(REFILL));
        assert_eq!(auth_failures.wait(source(2), now), None, "other sources are not limited");
        now += REFILL;
        assert_eq!(auth_failures.wait(source(1), now), None, "the refill allows one");
        auth_failures.failed(source(1), now);
        assert_eq!(auth_failures.wait(source(1), now), Some(REFILL));
        now += REFILL * BURST;
        for _ in 0..BURST {
            assert_eq!(auth_failures.wait(source(1), now), None);
            auth_failures.failed(source(1), now);
        }
        assert_eq!((auth_failures.failures(), auth_failures.limited()), (21, 2));
    }

    #[test]
    fn replaced_tokens_do_not_use_up_the_budget() {
        let (auth_failures, now) = (AuthFailures::default(), Instant::now());
        for _ in 0..5 * BURST {
            auth_failures.outdated(source(1), now);
        }
        assert_eq!(auth_failures.wait(source(1), now), None);
        assert_eq!((auth_failures.failures(), auth_failures.limited()), (50, 0));
        for _ in 0..BURST {
            auth_failures.failed(source(1), now);
        }
        auth_failures.outdated(source(1), now);
        assert_eq!(auth_failures.wait(source(1), now), Some(REFILL), "guesses still count");
    }

    #[test]
    fn requests_without_a_token_do_not_use_up_the_budget() {
        let (auth_failures, now) = (AuthFailures::default(), Instant::now());
        assert_eq!(auth_failures.missing(source(1), now), Some(1), "it is logged");
        for _ in 0..5 * BURST {
            assert_eq!(auth_failures.missing(source(1), now), None);
        }
        assert_eq!(auth_failures.wait(source(1), now), None);
        assert_eq!((auth_failures.failures(), auth_failures.limited()), (51, 0));
    }

    #[test]
    fn log_lines_and_sources_are_bounded() {
        let (mut table, now) = (Table::default(), Instant::now());
        let key = |host| source(host).key();
        assert_eq!(table.failed(key(1), now), Some(1));
        assert_eq!(table.failed(key(1), now), None);
        assert_eq!(table.failed(key(1), now + LOG_PAUSE), Some(2));
        let mut lines = 0;
        for host in 0..3 * MAX_SOURCES as u32 {
            lines += u32::from(table.failed(key(host), now + LOG_PAUSE).is_some());
        }
        assert_eq!(lines, LOG_LINES - 1);
        assert_eq!(table.sources.len(), MAX_SOURCES);
    }
}
