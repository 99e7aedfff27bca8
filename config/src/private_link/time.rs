//! Moments in seconds since 1970, as objects store them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Seconds since 1970.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// By the machine's clock.
    pub fn now() -> Time {
        SystemTime::now().into()
    }

    /// So much later.
    #[must_use]
    pub fn after(self, more: Duration) -> Time {
        // A part of a second counts as one: nobody is to come too early.
        let seconds = more.as_secs().saturating_add(u64::from(more.subsec_nanos() > 0));
        Time(self.0.saturating_add(seconds))
    }

    /// How long ago `earlier` was; nothing where it is still to come.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_secs(self.0.saturating_sub(earlier.0))
    }

    /// By RFC 3339, with `Z` or an offset: `2026-11-22T08:00:00+02:00`.
    pub fn read(text: &str) -> Option<Time> {
        let (date, rest) = text.split_at_checked(10)?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let rest = rest.strip_prefix(['T', 't', ' '])?;
        let (clock, rest) = rest.split_at_checked(8)?;
        let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
        let offset = offset_of(without_fraction(rest)?)?;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days_of_month = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let right = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_of_month).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !right {
            return None;
        }
        // Days are counted from 1 March of the year 0, in eras of 400 years.
        let year = year - i64::from(month <= 2);
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset;
        u64::try_from(seconds).ok().map(Time)
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

/// Three numbers of so many digits each.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        let right = part.len() == digits && part.bytes().all(|digit| digit.is_ascii_digit());
        *number = part.parse().ok().filter(|_| right)?;
    }
    parts.next().is_none().then_some(found)
}

fn without_fraction(text: &str) -> Option<&str> {
    let Some(fraction) = text.strip_prefix('.') else { return Some(text) };
    let rest = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
    (rest.len() < fraction.len()).then_some(rest)
}

/// Seconds east of Greenwich.
fn offset_of(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, clock) = match text.split_at_checked(1)? {
        ("+", clock) => (1, clock),
        ("-", clock) => (-1, clock),
        _ => return None,
    };
    let [hours, minutes, _] = numbers(&format!("{clock}:00"), ':', [2, 2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar_wherever_they_are_written() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2026-11-18T11:06:40Z", 1_795_000_000),
            ("2026-11-18T13:06:40+02:00", 1_795_000_000),
            ("2026-11-18t05:36:40.25-05:30", 1_795_000_000),
            ("2100-03-01 00:00:00z", 4_107_542_400),
        ] {
            assert_eq!(Time::read(text), Some(Time(seconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none_and_nothing_panics() {
        for text in [
            "",
            "true",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-18T11:06:40",
            "2026-11-18T11:06:40.Z",
            "2026-11-18T24:00:00Z",
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
