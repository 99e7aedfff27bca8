//! Text format of times in objects.

/// Serde functions for times: RFC 3339 in UTC, to the nanosecond.
pub(super) mod time {
    use std::time::SystemTime;

    use config::rfc3339;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&rfc3339::format(*time))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SystemTime, D::Error> {
        let text = String::deserialize(from)?;
        rfc3339::parse(&text).ok_or_else(|| {
            D::Error::custom(format!("`{text}` is not a time, expected \"2026-11-22T08:00:00Z\""))
        })
    }
}

/// Serde functions for times that may be absent.
pub(super) mod optional_time {
    use std::time::SystemTime;

    use config::rfc3339;
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
        rfc3339::parse(&text).map(Some).ok_or_else(|| {
            D::Error::custom(format!("`{text}` is not a time, expected \"2026-11-22T08:00:00Z\""))
        })
    }
}
