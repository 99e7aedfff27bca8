//! Merging of repeated events, so that a flapping peer does not fill the history.
//!
//! Events with the same name and subject are a group. Within a [`WINDOW`], an event that differs
//! from the one recorded last is recorded at once, up to [`DISTINCT`] events. All others of the
//! group are merged into one record with their count, which is written before the next event that
//! is recorded at once, or at the end of the window. A group whose events continue is recorded once
//! in each further window.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use crate::kind::EventKind;

/// Length of the window in which repeated events are merged.
pub const WINDOW: Duration = Duration::from_secs(10);
/// Number of different events of a group that are recorded at once within a window.
pub const DISTINCT: u32 = 4;
/// Maximum number of groups. Events of further groups are recorded without merging.
const MAX_GROUPS: usize = 16_384;

/// A single event, before merging.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// Its declaration.
    pub kind: &'static EventKind,
    /// Its fields.
    pub fields: Map<String, Value>,
    /// Its subject ([`crate::fields::Fields::subject`]).
    pub subject: String,
    /// Time (RFC 3339).
    pub time: String,
}

/// Events to be recorded as one.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The last of the events.
    pub last: Occurrence,
    /// Number of events.
    pub count: u64,
    /// Time of the first event, if there are several.
    pub first: Option<String>,
}

/// A group within its window.
struct Group {
    ends: Instant,
    recorded: u32,
    last: Map<String, Value>,
    pending: Option<Merged>,
}

/// The groups of repeated events.
#[derive(Default)]
pub struct Merger {
    groups: HashMap<(&'static str, String), Group>,
}

impl Merger {
    /// Adds an event. Returns the records to write now, in this order.
    pub fn add(&mut self, event: Occurrence, now: Instant) -> Vec<Merged> {
        let key = (event.kind.name, event.subject.clone());
        let Some(group) = self.groups.get_mut(&key) else {
            if self.groups.len() < MAX_GROUPS {
                let last = event.fields.clone();
                let group = Group { ends: now + WINDOW, recorded: 1, last, pending: None };
                self.groups.insert(key, group);
            }
            return vec![Merged { last: event, count: 1, first: None }];
        };
        if group.last != event.fields && group.recorded < DISTINCT {
            group.recorded += 1;
            group.last.clone_from(&event.fields);
            let repeated = group.pending.take();
            let event = Merged { last: event, count: 1, first: None };
            return repeated.into_iter().chain([event]).collect();
        }
        match &mut group.pending {
            Some(pending) => {
                pending.first.get_or_insert_with(|| pending.last.time.clone());
                pending.count += 1;
                pending.last = event;
            }
            None => group.pending = Some(Merged { last: event, count: 1, first: None }),
        }
        Vec::new()
    }

    /// Returns the records to write because their window has ended.
    pub fn expire(&mut self, now: Instant) -> Vec<Merged> {
        let mut due = Vec::new();
        self.groups.retain(|_, group| {
            if now < group.ends {
                return true;
            }
            // A group that continues is recorded once in each window.
            group.ends = now + WINDOW;
            group.recorded = DISTINCT;
            match group.pending.take() {
                Some(pending) => {
                    due.push(pending);
                    true
                }
                None => false,
            }
        });
        due.sort_by(|a, b| a.last.time.cmp(&b.last.time));
        due
    }

    /// Returns all pending records, and forgets the groups; for a flush.
    pub fn drain(&mut self) -> Vec<Merged> {
        let mut due: Vec<Merged> =
            self.groups.drain().filter_map(|(_, group)| group.pending).collect();
        due.sort_by(|a, b| a.last.time.cmp(&b.last.time));
        due
    }

    /// Returns when the next window ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.groups.values().map(|group| group.ends).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list;

    fn event(name: &str, subject: &str, reason: &str, at: u32) -> Occurrence {
        let kind = list::find(name).unwrap();
        let fields = Map::from_iter([
            (kind.fields[0].to_owned(), subject.into()),
            ("reason".to_owned(), reason.into()),
        ]);
        Occurrence { kind, fields, subject: subject.into(), time: format!("{at:04}") }
    }

    #[test]
    fn a_flapping_peer_is_recorded_a_few_times_and_then_once_in_each_window_with_its_count() {
        let (mut merger, start) = (Merger::default(), Instant::now());
        let mut recorded = Vec::new();
        for n in 0..1000 {
            let now = start + Duration::from_millis(100) * n;
            let reason = format!("reason {n}");
            recorded.extend(merger.add(event("bgp_session_closed", "peer", &reason, n), now));
            recorded.extend(merger.expire(now));
        }
        recorded.extend(merger.drain());
        let counts: Vec<u64> = recorded.iter().map(|merged| merged.count).collect();
        assert_eq!(counts.iter().sum::<u64>(), 1000, "each event is counted");
        assert_eq!(counts[..4], [1; 4]);
        assert_eq!(counts.len(), 4 + 10, "{counts:?}");
        let last = recorded.last().unwrap();
        assert_eq!(last.last.fields["reason"], "reason 999");
        assert!(last.first.as_ref().is_some_and(|first| *first < last.last.time));
    }

    #[test]
    fn equal_events_are_merged_at_once_and_other_subjects_are_not() {
        let (mut merger, now) = (Merger::default(), Instant::now());
        let mut take = |subject: &str, at| {
            !merger.add(event("bgp_session_closed", subject, "x", at), now).is_empty()
        };
        assert_eq!(
            [take("a", 0), take("a", 1), take("b", 2), take("a", 3)],
            [true, false, true, false]
        );
        assert!(merger.expire(now).is_empty());
        let [merged] = merger.expire(now + WINDOW).try_into().unwrap();
        assert_eq!((merged.count, merged.first.as_deref()), (2, Some("0001")));
        assert!(merger.expire(now + WINDOW * 2).is_empty());
        assert_eq!(merger.next_end(), None, "quiet groups are forgotten");
    }

    #[test]
    fn repeated_events_are_recorded_before_a_different_one() {
        let (mut merger, now) = (Merger::default(), Instant::now());
        let mut recorded = Vec::new();
        for (at, reason) in ["a", "a", "a", "c", "c"].into_iter().enumerate() {
            let event = event("bgp_session_closed", "peer", reason, at as u32);
            recorded.extend(merger.add(event, now));
        }
        recorded.extend(merger.drain());
        let found: Vec<(&str, &str, u64)> = recorded
            .iter()
            .map(|merged| {
                let reason = merged.last.fields["reason"].as_str().unwrap();
                (merged.last.time.as_str(), reason, merged.count)
            })
            .collect();
        assert_eq!(found, [("0000", "a", 1), ("0002", "a", 2), ("0003", "c", 1), ("0004", "c", 1)]);
        assert_eq!(recorded[1].first.as_deref(), Some("0001"));
    }
}
