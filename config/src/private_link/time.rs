//! Times in seconds since 1970, as stored in objects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::rfc3339;

/// Seconds since 1970.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Returns the current time of the machine's clock.
    pub fn now() -> Time {
        SystemTime::now().into()
    }

    /// Returns the time `more` later.
    #[must_use]
    pub fn after(self, more: Duration) -> Time {
        // Rounded up to whole seconds, so that the time is never reached too early.
        let seconds = more.as_secs().saturating_add(u64::from(more.subsec_nanos() > 0));
        Time(self.0.saturating_add(seconds))
    }

    /// Returns the time that has passed since `earlier`, or zero if it is in the future.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }

    /// Parses a time in RFC 3339 format, with `Z` or an offset: `2026-11-22T08:00:00+02:00`.
    /// Fractions of a second are truncated, and a leap second becomes the second before it.
    pub fn read(text: &str) -> Option<Time> {
        rfc3339::parse(text).map(Time::from)
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        Time(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_secs(time.0)).unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_times() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2026-11-18T11:06:40Z", 1_795_000_000),
            ("2026-11-18T13:06:40+02:00", 1_795_000_000),
            ("2026-11-18t05:36:40.25-05:30", 1_795_000_000),
            ("2100-03-01 00:00:00z", 4_107_542_400),
            ("2026-11-18T11:06:40.1234567899Z", 1_795_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_799),
        ] {
            assert_eq!(Time::read(text), Some(Time(seconds)), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected_and_differences_saturate() {
        for text in [
            "",
            "true",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-18T11:06:40",
            "2026-11-18T11:06:40.Z",
            "2026-11-18T24:00:00Z",
            "2026-11-18T11:06:60Z",
            "2026-11-18_11:06:40Z",
            "2026-11-18T11:06:40Z ",
            "0000-01-01T00:00:00Z",
            "1969-12-31T23:59:59.9Z",
            "2026-11-18T11:06:40+2:00",
            "1970-01-01T00:00:00+01:00",
            "１970-01-01T00:00:00Z",
            "2026-11-1ßT11:06:40Z",
        ] {
            assert_eq!(Time::read(text), None, "{text}");
        }
        assert_eq!(Time(5).after(Duration::from_millis(1)), Time(6));
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
        assert_eq!(Time::from(SystemTime::from(Time(77))), Time(77));
    }
}
