//! Timestamps of objects and annotations in the format of RFC 3339.

use std::time::{SystemTime, UNIX_EPOCH};

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, PrimitiveDateTime};

/// Parses a time of 1970 or later, with `Z` or an offset: `2026-11-22T08:00:00+02:00`. Date and
/// time are separated by `T`, `t` or a space.
pub fn parse(text: &str) -> Option<SystemTime> {
    // The library accepts any byte as the separator.
    if !matches!(text.as_bytes().get(10), Some(b'T' | b't' | b' ')) {
        return None;
    }
    let time = SystemTime::from(OffsetDateTime::parse(text, &Rfc3339).ok()?);
    (time >= UNIX_EPOCH).then_some(time)
}

/// Formats a time in UTC, to the nanosecond: `2026-11-22T08:00:00.25Z`. Times before 1970 become
/// the first moment of 1970, times after 9999 the last moment of 9999.
pub fn format(time: SystemTime) -> String {
    utc(time).format(&Rfc3339).expect("RFC 3339 has the years 1970 to 9999")
}

/// Formats a time like [`format`], with three digits of milliseconds, so that texts are in the
/// order of their times.
pub fn format_ms(time: SystemTime) -> String {
    let time = utc(time);
    let (date, time) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    )
}

fn utc(time: SystemTime) -> OffsetDateTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    OffsetDateTime::from_unix_timestamp_nanos(since.as_nanos() as i128)
        .unwrap_or(PrimitiveDateTime::MAX.assume_utc())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_round_trip(
            seconds in 0..253_402_300_799_u64,
            nanos in 0..1_000_000_000_u32,
        ) {
            let time = UNIX_EPOCH + Duration::new(seconds, nanos);
            prop_assert_eq!(parse(&format(time)), Some(time));
        }

        #[test]
        fn never_panics_on_similar_text(text in "[0-9]{0,5}-[0-9]{0,3}-[0-9]{0,3}T[0-9:.]{0,20}Z") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn formats_known_times_and_rejects_impossible_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_000_000, "2026-11-18T11:06:40Z"),
        ] {
            assert_eq!(format(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        let at = UNIX_EPOCH + Duration::from_micros(1_795_000_000_020_900);
        assert_eq!(format_ms(at), "2026-11-18T11:06:40.020Z");
        assert_eq!(parse("2026-13-01T00:00:00Z"), None);
        assert_eq!(parse("2026-02-31T00:00:00Z"), None);
    }

    #[test]
    fn clamps_times_outside_1970_to_9999() {
        let after = UNIX_EPOCH + Duration::from_secs(253_402_300_800);
        assert_eq!(format(after), "9999-12-31T23:59:59.999999999Z");
        assert_eq!(format(UNIX_EPOCH + Duration::from_secs(i64::MAX as u64)), format(after));
        assert_eq!(format(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
    }
}
