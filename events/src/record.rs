//! A record of the history, and its line in a file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kind::Severity;

/// A record of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Number of the record, one higher than that of the record before. It orders the records also
    /// when the clock jumps.
    pub number: u64,
    /// Time of the last of the merged events, in UTC (RFC 3339 with milliseconds).
    pub time: String,
    /// The kernel's boot id.
    pub boot: String,
    /// Name of the event.
    pub event: String,
    /// Severity.
    pub severity: Severity,
    /// The constant message.
    pub message: String,
    /// Fields of the last of the merged events.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
    /// Number of events that were merged into this record.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u64,
    /// Time of the first of the merged events; absent if `count` is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
}

fn one() -> u64 {
    1
}

// The signature is serde's.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_one(count: &u64) -> bool {
    *count == 1
}

impl Record {
    /// Returns the line of a file: the CRC-32 of the JSON in 8 hexadecimal digits, a space, the
    /// JSON and a newline.
    pub fn to_line(&self) -> String {
        // A record has only types that JSON can represent.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()))
    }

    /// Parses a line of a file without its newline. Returns `None` if it is damaged.
    pub fn parse(line: &[u8]) -> Option<Record> {
        let (sum, json) = line.split_at_checked(9)?;
        let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
        let sum = u32::from_str_radix(sum, 16).ok()?;
        (crc32fast::hash(json) == sum).then(|| serde_json::from_slice(json).ok()).flatten()
    }
}

#[cfg(test)]
pub(crate) fn example(number: u64, event: &str, subject: &str) -> Record {
    let kind = crate::list::find(event).unwrap();
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(number * 1000 + 7);
    let fields = kind.fields.first().map(|name| ((*name).to_owned(), subject.into()));
    Record {
        number,
        time: config::rfc3339::format_ms(at),
        boot: "b".into(),
        event: event.into(),
        severity: kind.severity,
        message: kind.message.into(),
        fields: fields.into_iter().collect(),
        count: 1,
        first: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_and_any_changed_byte_is_noticed() {
        let record = example(7, "not_able", "no lcore");
        let line = record.to_line();
        let line = line.strip_suffix('\n').unwrap();
        assert_eq!(Record::parse(line.as_bytes()), Some(record.clone()));
        for at in 0..line.len() {
            let mut torn = line.as_bytes().to_vec();
            torn[at] ^= 1;
            assert_ne!(Record::parse(&torn), Some(record.clone()), "byte {at}");
            assert_eq!(Record::parse(&line.as_bytes()[..at]), None, "cut at {at}");
        }
    }
}
