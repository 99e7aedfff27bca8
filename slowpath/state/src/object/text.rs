//! How times are written in objects.

/// Times for serde: RFC 3339 in UTC, to the nanosecond.
pub(super) mod time {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&written(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(from)?;
        read(&text).ok_or_else(|| {
            D::Error::custom(format!("`{text}` is no time, expected \"2026-11-22T08:00:00Z\""))
        })
    }

    /// A moment since 1970, as `2026-11-22T08:00:00.25Z`; earlier ones are 1970.
    pub fn written(time: SystemTime) -> String {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
        // Days are counted from 1 March of the year 0, in eras of 400 years.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (day, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        let fraction = format!(".{:09}", since.subsec_nanos());
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
    }

    /// The reverse.
    pub fn read(text: &str) -> Option<SystemTime> {
        let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
        let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (date.next()??, date.next()??, date.next()??);
        let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let mut clock = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
        let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
        let ranges = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 61
            && fraction.len() <= 9
            && fraction.bytes().all(|digit| digit.is_ascii_digit());
        if !ranges {
            return None;
        }
        let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
        let year = year - u64::from(month <= 2);
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        let seconds = (days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second;
        UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
    }
}

/// Times that may be absent.
pub(super) mod optional_time {
    use std::time::SystemTime;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::time::serialize(time, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SystemTime>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let read = super::time::read(&text);
        read.map(Some).ok_or_else(|| D::Error::custom(format!("`{text}` is no time")))
    }
}
