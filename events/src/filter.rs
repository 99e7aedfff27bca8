//! Filter of history records, from the options of `weir events` and of the API.

use std::time::SystemTime;

use config::{duration, rfc3339};

use crate::kind::Severity;
use crate::list;
use crate::record::Record;

/// Conditions that a record must all satisfy; unset ones admit every record.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Records of this time or later.
    since: Option<SystemTime>,
    /// Records of this time or earlier.
    until: Option<SystemTime>,
    /// Records with higher numbers.
    after: Option<u64>,
    /// Names of events; empty for all.
    kinds: Vec<String>,
    /// Records of this severity or higher.
    severity: Option<Severity>,
}

impl Filter {
    /// Returns the filter of these options. A time is a duration before `now` or an RFC 3339 time
    /// ([`duration::parse_time`]); `kinds` are names of events, separated by commas.
    ///
    /// # Errors
    /// Returns a message with the option, what was found and what is allowed.
    pub fn new(
        since: Option<&str>,
        until: Option<&str>,
        after: Option<u64>,
        kinds: Option<&str>,
        severity: Option<&str>,
        now: SystemTime,
    ) -> Result<Filter, String> {
        let time = |name: &str, text: Option<&str>| {
            let time = text.map(|text| duration::parse_time(text, now)).transpose();
            time.map_err(|error| format!("{name}: {error}"))
        };
        let kinds: Vec<String> = kinds.map_or(Vec::new(), |kinds| {
            kinds.split(',').map(|kind| kind.trim().to_owned()).collect()
        });
        for kind in &kinds {
            if !list::find(kind).is_some_and(|kind| kind.is_recorded) {
                return Err(format!(
                    "kind: `{kind}` is not an event of the history; `weir events --kinds` lists \
                     them"
                ));
            }
        }
        let severity = severity.map(|name| {
            Severity::parse(name)
                .ok_or_else(|| format!("severity: `{name}` is unknown; use info, warning or error"))
        });
        Ok(Filter {
            since: time("since", since)?,
            until: time("until", until)?,
            after,
            kinds,
            severity: severity.transpose()?,
        })
    }

    /// Returns whether a record satisfies all conditions.
    pub fn admits(&self, record: &Record) -> bool {
        let at = || rfc3339::parse(&record.time).unwrap_or(SystemTime::UNIX_EPOCH);
        self.after.is_none_or(|after| record.number > after)
            && self.severity.is_none_or(|minimum| record.severity >= minimum)
            && (self.kinds.is_empty() || self.kinds.contains(&record.event))
            && self.since.is_none_or(|since| at() >= since)
            && self.until.is_none_or(|until| at() <= until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::record::example;

    #[test]
    fn records_are_selected_by_time_number_kind_and_severity() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let new = |since, until, after, kinds, severity| {
            Filter::new(since, until, after, kinds, severity, now).unwrap()
        };
        let record = example(60, "not_able", "x");
        assert!(Filter::default().admits(&record));
        assert!(new(Some("40s"), None, None, None, None).admits(&record));
        assert!(!new(Some("39s"), None, None, None, None).admits(&record));
        assert!(new(None, Some("1970-01-01T00:01:01Z"), None, None, None).admits(&record));
        assert!(!new(None, Some("1970-01-01T00:01:00Z"), None, None, None).admits(&record));
        assert!(new(None, None, Some(59), None, None).admits(&record));
        assert!(!new(None, None, Some(60), None, None).admits(&record));
        assert!(new(None, None, None, Some("able, not_able"), None).admits(&record));
        assert!(!new(None, None, None, Some("able"), None).admits(&record));
        assert!(new(None, None, None, None, Some("warning")).admits(&record));
        assert!(!new(None, None, None, None, Some("error")).admits(&record));
    }

    #[test]
    fn invalid_options_are_reported_with_name_and_value() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let error = |since, kinds, severity| {
            Filter::new(since, None, None, kinds, severity, now).unwrap_err()
        };
        assert!(error(Some("soon"), None, None).starts_with("since: `soon` is not a time"));
        assert!(error(None, Some("nothing"), None).contains("`nothing`"));
        assert!(error(None, Some("store_unread"), None).contains("`store_unread`"));
        assert!(error(None, None, Some("fatal")).contains("use info, warning or error"));
    }
}
