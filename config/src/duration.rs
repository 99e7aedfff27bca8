//! Durations and times as operators write them.

use std::time::{Duration, SystemTime};

use crate::rfc3339;

/// Units, each with its length in seconds.
const UNITS: [(char, u64); 5] =
    [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400), ('w', 7 * 86_400)];
/// Maximum duration, about 1,000 years: the year of a time so far in the future still has four
/// digits, as RFC 3339 requires.
const MAX: Duration = Duration::from_secs(1000 * 366 * 86_400);

/// Parses a number with a unit: `90d`, `12h`, `30m`, `45s`, `2w`.
///
/// # Errors
/// Returns a message with the allowed forms.
pub fn parse(text: &str) -> Result<Duration, String> {
    let unit = UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit));
    let duration = unit.and_then(|(unit, seconds)| {
        let digits = text.strip_suffix(unit)?;
        let number: u32 = digits.parse().ok().filter(|number| *number > 0)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Duration::from_secs(u64::from(number) * seconds))
    });
    duration
        .filter(|duration| *duration <= MAX)
        .ok_or_else(|| format!("`{text}` is not a duration; write 90s, 15m, 2h, 7d or 2w"))
}

/// Parses a time, given as RFC 3339 or as a duration before `now`; at the earliest, 1970.
///
/// # Errors
/// Returns a message with the allowed forms.
pub fn parse_time(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    if let Some(time) = rfc3339::parse(text) {
        return Ok(time);
    }
    match parse(text) {
        Ok(before) => {
            let first = SystemTime::UNIX_EPOCH;
            Ok(now.checked_sub(before).unwrap_or(first).max(first))
        }
        Err(_) => Err(format!(
            "`{text}` is not a time; write a duration before now (90s, 15m, 2h, 7d, 2w) or an RFC \
             3339 time (2026-11-27T14:00:00Z)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_a_unit() {
        let day = Duration::from_secs(86_400);
        for (text, duration) in [
            ("45s", Duration::from_secs(45)),
            ("15m", Duration::from_secs(900)),
            ("12h", day / 2),
            ("90d", 90 * day),
            ("2w", 14 * day),
        ] {
            assert_eq!(parse(text), Ok(duration), "{text}");
        }
        for bad in ["", "d", "90", "0d", "-1h", "+1s", "1 h", "99999999d", "1y", "ä"] {
            assert!(parse(bad).unwrap_err().contains("is not a duration"), "{bad}");
        }
    }

    #[test]
    fn times_are_absolute_or_before_now() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let at = |s| Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(parse_time("40s", now), at(60));
        assert_eq!(parse_time("1h", now), at(0), "not before 1970");
        assert_eq!(parse_time("1970-01-01T00:01:01Z", now), at(61));
        assert!(parse_time("yesterday", now).unwrap_err().contains("RFC 3339"));
    }
}
