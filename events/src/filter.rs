//! Which records of the history a reader wants.

use std::time::{Duration, SystemTime};

use crate::kind::Severity;
use crate::list;
use crate::record::{Record, parse_time, unix_ms};

/// Which records a reader wants.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Records of this time or later, in milliseconds since the Unix epoch.
    since_ms: Option<u64>,
    /// Records of this time or earlier.
    until_ms: Option<u64>,
    /// Records with higher numbers.
    after: Option<u64>,
    /// Names of events; empty for all.
    kinds: Vec<String>,
    /// Records of this severity or higher.
    severity: Option<Severity>,
}

impl Filter {
    /// Returns the filter of these options. A time is a duration before `now` (`90s`, `15m`, `2h`,
    /// `7d`) or an RFC 3339 time; `kinds` are names of events, separated by commas.
    ///
    /// # Errors
    /// Fails with what was found and what is allowed.
    pub fn new(
        since: Option<&str>,
        until: Option<&str>,
        after: Option<u64>,
        kinds: Option<&str>,
        severity: Option<&str>,
        now: SystemTime,
    ) -> Result<Filter, String> {
        let time = |name: &str, text: Option<&str>| text.map(|text| moment(name, text, now));
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
            since_ms: time("since", since).transpose()?,
            until_ms: time("until", until).transpose()?,
            after,
            kinds,
            severity: severity.transpose()?,
        })
    }

    /// Returns whether the reader wants a record.
    pub fn admits(&self, record: &Record) -> bool {
        let at = || parse_time(&record.time).map(unix_ms).unwrap_or_default();
        self.after.is_none_or(|after| record.number > after)
            && self.severity.is_none_or(|least| record.severity >= least)
            && (self.kinds.is_empty() || self.kinds.contains(&record.event))
            && self.since_ms.is_none_or(|since| at() >= since)
            && self.until_ms.is_none_or(|until| at() <= until)
    }
}

/// Returns the milliseconds since the Unix epoch of a time, given as RFC 3339 or as a duration
/// before `now`.
fn moment(name: &str, text: &str, now: SystemTime) -> Result<u64, String> {
    if let Some(at) = parse_time(text) {
        return Ok(unix_ms(at));
    }
    let before = duration(text).and_then(|before| now.checked_sub(before));
    before.map(unix_ms).ok_or_else(|| {
        format!(
            "{name}: `{text}` is not a time; write a duration before now (90s, 15m, 2h, 7d) or an \
             RFC 3339 time (2026-11-27T14:00:00Z)"
        )
    })
}

/// Parses a duration: a number with the unit s, m, h or d.
pub fn duration(text: &str) -> Option<Duration> {
    let at = text.len().checked_sub(1)?;
    let (number, unit) = text.split_at_checked(at)?;
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = is_number.then(|| number.parse().ok()).flatten()?;
    Some(Duration::from_secs(number.checked_mul(unit_s)?))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

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
    fn wrong_options_are_named() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let error = |since, kinds, severity| {
            Filter::new(since, None, None, kinds, severity, now).unwrap_err()
        };
        for text in ["", "h", "2", "-2h", "2w", "+1s", "2 h", "99999999999999999999d", "é"] {
            assert!(error(Some(text), None, None).starts_with("since: "), "{text}");
        }
        assert!(error(None, Some("nothing"), None).contains("`nothing`"));
        assert!(error(None, Some("store_unread"), None).contains("`store_unread`"));
        assert!(error(None, None, Some("fatal")).contains("use info, warning or error"));
    }
}
