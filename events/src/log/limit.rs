//! Rate limit of log lines, by event and subject.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::format::Line;
use crate::fields::Fields;
use crate::kind::Severity;

/// Period of the limit.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of pairs of event and subject with a limit of their own; the further subjects of
/// an event share one limit.
const MAX_GROUPS: usize = 4096;
/// Event name in the counters for lines without an event, which come from libraries.
pub const UNNAMED: &str = "none";

struct Group {
    ends: Instant,
    passed: u32,
    suppressed: u64,
}

#[derive(Default)]
struct State {
    groups: HashMap<(String, String), Group>,
    suppressed: BTreeMap<String, u64>,
}

/// Rate limiter of log lines.
pub struct Limiter {
    /// Lines of an event and subject in a window; 0 for no limit.
    limit: AtomicU32,
    state: Mutex<State>,
}

impl Limiter {
    /// Creates a limiter of this many lines per window; 0 for no limit.
    pub fn new(limit: u32) -> Limiter {
        Limiter { limit: AtomicU32::new(limit), state: Mutex::default() }
    }

    /// Sets the number of lines per window.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a line, and returns whether it is within the limit.
    pub fn admits(&self, event: &str, subject: &str, now: Instant) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return true;
        }
        let mut state = self.state.lock();
        let mut key = (event.to_owned(), subject.to_owned());
        if state.groups.len() >= MAX_GROUPS && !state.groups.contains_key(&key) {
            key.1 = String::new();
        }
        let new = || Group { ends: now + WINDOW, passed: 0, suppressed: 0 };
        let group = state.groups.entry(key).or_insert_with(new);
        if group.passed < limit {
            group.passed += 1;
            return true;
        }
        group.suppressed += 1;
        *state.suppressed.entry(event.to_owned()).or_default() += 1;
        false
    }

    /// Ends the windows that are over. Returns a line for each that had lines suppressed.
    pub fn expire(&self, now: Instant) -> Vec<Line> {
        let mut suppressed = Vec::new();
        self.state.lock().groups.retain(|(event, subject), group| {
            if now >= group.ends && group.suppressed > 0 {
                suppressed.push(suppressed_line(event, subject, group.suppressed));
            }
            now < group.ends
        });
        suppressed
    }

    /// Returns the number of lines suppressed since the start, by event.
    pub fn suppressed(&self) -> Vec<(String, u64)> {
        let state = self.state.lock();
        state.suppressed.iter().map(|(event, count)| (event.clone(), *count)).collect()
    }
}

fn suppressed_line(event: &str, subject: &str, lines: u64) -> Line {
    let values = vec![
        ("suppressed_event", event.into()),
        ("subject", subject.into()),
        ("lines", lines.into()),
    ];
    let fields = Fields {
        event: Some("log_lines_suppressed".into()),
        message: "log lines suppressed".into(),
        target: None,
        values,
    };
    let target = "events::log::limit".to_owned();
    Line { at: SystemTime::now(), severity: Severity::Warning, target, fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_above_the_limit_are_counted_and_reported_once_per_window() {
        let (limiter, now) = (Limiter::new(3), Instant::now());
        let admitted = |subject, now| (0..10).filter(|_| limiter.admits("x", subject, now)).count();
        assert_eq!([admitted("a", now), admitted("b", now)], [3, 3], "each subject has its limit");
        assert!(limiter.expire(now).is_empty(), "the window has not ended");
        let lines = limiter.expire(now + WINDOW);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].fields.values[2], ("lines", 7.into()));
        assert_eq!(limiter.suppressed(), [("x".to_owned(), 14)]);
        assert_eq!(admitted("a", now + WINDOW), 3, "the next window");
        limiter.set_limit(0);
        assert_eq!(admitted("a", now + WINDOW), 10, "no limit");
    }

    #[test]
    fn memory_is_bounded_when_subjects_are_many() {
        let (limiter, now) = (Limiter::new(1), Instant::now());
        for n in 0..MAX_GROUPS * 2 {
            limiter.admits("x", &n.to_string(), now);
        }
        assert_eq!(limiter.state.lock().groups.len(), MAX_GROUPS + 1);
        assert_eq!(limiter.suppressed(), [("x".to_owned(), MAX_GROUPS as u64 - 1)]);
        limiter.expire(now + WINDOW);
        assert_eq!(limiter.state.lock().groups.len(), 0);
    }
}
