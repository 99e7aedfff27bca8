//! What the history has of the previous slowpath, and of the data plane when it was last observed.

use std::collections::BTreeMap;
use std::path::Path;

use events::history::folder;
use events::record::Record;
use events::record_files::RecordReader;

/// The state before this process, as far as the history has records of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Previous {
    /// Sequence number of the oldest record; 1 unless older ones were removed.
    oldest: Option<u64>,
    /// Time of the last record, apart from those of starts that failed.
    last_seen: String,
    /// Whether no end was recorded after the last start of slowpath: it was killed, or crashed.
    is_running: bool,
    /// Version of the slowpath that started last.
    version: Option<String>,
    /// Whether older records were removed, so that something may have happened although it is
    /// missing here.
    pub(crate) is_cut: bool,
    /// Epoch and program of the data plane that was attached last.
    pub(crate) attached: Option<(u64, String)>,
    /// Counts of NIC incidents by arm, as recorded last.
    pub(crate) incidents: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Previous {
    /// Reads the history in the folder `control.state`; empty without one. To be called before the
    /// history is started, so that it has no records of this process.
    pub fn read(state: Option<&Path>) -> Previous {
        let mut previous = Previous::default();
        if let Some(state) = state {
            // What cannot be read is reported by the thread that writes.
            let _ = RecordReader::new(&folder(state)).read(&mut |record| {
                previous.add(record);
                true
            });
        }
        previous
    }

    fn add(&mut self, record: Record) {
        let text = |name: &str| record.fields.get(name).and_then(|value| value.as_str());
        let owned = |name: &str| text(name).unwrap_or_default().to_owned();
        self.is_cut = *self.oldest.get_or_insert(record.number) > 1;
        match record.event.as_str() {
            "slowpath_started" => {
                self.version = text("version").map(str::to_owned);
                self.is_running = true;
            }
            "slowpath_stopped" | "slowpath_failed" => self.is_running = false,
            // A failed start says nothing of the slowpath before it.
            "slowpath_start_failed" => return,
            "data_plane_attached" => {
                let epoch = record.fields.get("epoch").and_then(|epoch| epoch.as_u64());
                self.attached = epoch.map(|epoch| (epoch, owned("program")));
            }
            "nic_incidents" => {
                let totals = parse_totals(text("totals").unwrap_or_default());
                self.incidents.insert(owned("arm"), totals);
            }
            _ => {}
        }
        self.last_seen = record.time;
    }

    /// Records an end of the previous slowpath without a shutdown, and a change of the version.
    pub(super) fn report(&self) {
        if self.is_running {
            tracing::warn!(
                event = "slowpath_ended_uncleanly",
                last_seen = %self.last_seen,
                "previous slowpath ended without a shutdown"
            );
        }
        let to = env!("CARGO_PKG_VERSION");
        let from = self.version.as_deref().unwrap_or(to);
        if from != to {
            tracing::info!(
                event = "version_changed",
                program = "slowpath",
                from,
                to,
                "version changed"
            );
        }
    }
}

fn parse_totals(text: &str) -> BTreeMap<String, u64> {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(|(kind, count)| Some((kind.to_owned(), count.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use events::kind::Severity;
    use serde_json::{Value, json};

    use super::*;

    /// Adds records of these events, with increasing numbers from `first` on, which are also their
    /// times.
    fn previous(first: u64, events: &[(&str, Value)]) -> Previous {
        let mut previous = Previous::default();
        for (number, (event, fields)) in (first..).zip(events) {
            previous.add(Record {
                number,
                time: number.to_string(),
                boot: String::new(),
                event: (*event).to_owned(),
                severity: Severity::Info,
                message: String::new(),
                fields: fields.as_object().cloned().unwrap_or_default(),
                count: 1,
                first: None,
            });
        }
        previous
    }

    #[test]
    fn a_failed_start_does_not_hide_that_the_previous_slowpath_was_killed() {
        let (started, other) = (("slowpath_started", json!({ "version": "1.2.3" })), Value::Null);
        let ended = |event| (event, other.clone());
        let after = |events: &[(&str, Value)]| {
            let previous = previous(1, events);
            (previous.is_running, previous.last_seen)
        };
        assert_eq!(after(&[]), (false, String::new()));
        assert_eq!(after(&[started.clone(), ended("able")]), (true, "2".to_owned()));
        assert_eq!(
            after(&[started.clone(), ended("able"), ended("slowpath_start_failed")]),
            (true, "2".to_owned())
        );
        for end in ["slowpath_stopped", "slowpath_failed"] {
            assert_eq!(after(&[started.clone(), ended(end)]), (false, "2".to_owned()));
        }
        assert_eq!(previous(1, &[started]).version.as_deref(), Some("1.2.3"));
    }

    #[test]
    fn the_data_plane_is_as_recorded_last() {
        let attached =
            |epoch: u64| ("data_plane_attached", json!({ "epoch": epoch, "program": "p" }));
        let totals = json!({ "arm": "egress", "totals": "reset=3 removal=1" });
        let incidents = ("nic_incidents", totals);
        let found = previous(1, &[attached(4), incidents.clone(), attached(5)]);
        assert_eq!(found.attached, Some((5, "p".to_owned())));
        let totals = BTreeMap::from([("reset".to_owned(), 3), ("removal".to_owned(), 1)]);
        assert_eq!(found.incidents, BTreeMap::from([("egress".to_owned(), totals)]));
        assert!(!found.is_cut);
        let failed = ("slowpath_start_failed", Value::Null);
        assert!(!previous(1, &[failed, incidents.clone()]).is_cut);
        assert!(previous(7, &[incidents]).is_cut, "the oldest records are gone");
    }
}
