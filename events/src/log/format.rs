//! Lines of the log as text and as JSON.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::fields::{Fields, text};
use crate::kind::Severity;
use crate::record::format_time;

/// Maximum length of a value, in bytes; the rest is cut off.
const MAX_VALUE: usize = 16 * 1024;

/// A line of the log.
#[derive(Debug)]
pub struct Line {
    /// Time of the call.
    pub at: SystemTime,
    /// Severity.
    pub severity: Severity,
    /// Module of the call.
    pub target: String,
    /// Event, message and fields.
    pub fields: Fields,
}

/// Returns a text cut to [`MAX_VALUE`] bytes.
pub fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_VALUE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns a value as it is written after `name=`: in quotes if it has blanks, quotes, `=` or
/// control characters.
pub fn value_text(value: &Value) -> String {
    let text = text(value);
    let text = shortened(&text);
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=';
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("{text:?}"),
    }
}

/// Returns the message followed by the fields.
pub fn message(line: &Line) -> String {
    let mut text = shortened(&line.fields.message).replace('\n', "\\n");
    for (name, value) in &line.fields.values {
        // Writing to a string cannot fail.
        let _ = write!(text, " {name}={}", value_text(value));
    }
    text
}

/// Returns a line as text, with a colored level for terminals.
pub fn as_text(line: &Line, colored: bool) -> String {
    let (level, color) = match line.severity {
        Severity::Error => ("ERROR", 31),
        Severity::Warning => (" WARN", 33),
        Severity::Info => (" INFO", 32),
        Severity::Debug => ("DEBUG", 34),
    };
    let level = match colored {
        true => format!("\x1b[{color}m{level}\x1b[0m"),
        false => level.to_owned(),
    };
    let (at, target, text) = (format_time(line.at), &line.target, message(line));
    match &line.fields.event {
        Some(event) => format!("{at} {level} {target}: {text} event={event}\n"),
        None => format!("{at} {level} {target}: {text}\n"),
    }
}

/// Returns a line as one JSON object.
pub fn as_json(line: &Line, program: &str) -> String {
    let fields: Map<String, Value> = line
        .fields
        .values
        .iter()
        .map(|(name, value)| {
            let value = match value {
                Value::String(text) => Value::String(shortened(text).to_owned()),
                other => other.clone(),
            };
            ((*name).to_owned(), value)
        })
        .collect();
    let object = json!({
        "time": format_time(line.at),
        "severity": line.severity.as_str(),
        "program": program,
        "target": line.target,
        "event": line.fields.event,
        "message": shortened(&line.fields.message),
        "fields": fields,
    });
    format!("{object}\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    pub(crate) fn example() -> Line {
        let values = vec![
            ("peer", "10.0.0.1".into()),
            ("reason", "hold timer\nexpired".into()),
            ("local_asn", 64512.into()),
            ("empty", "".into()),
        ];
        let fields = Fields {
            event: Some("bgp_session_closed".into()),
            message: "BGP session closed".into(),
            target: None,
            values,
        };
        let at = UNIX_EPOCH + Duration::from_millis(1);
        Line { at, severity: Severity::Warning, target: "bgp".into(), fields }
    }

    #[test]
    fn a_line_of_text_has_message_fields_and_event_and_no_line_break() {
        assert_eq!(
            as_text(&example(), false),
            "1970-01-01T00:00:00.001Z  WARN bgp: BGP session closed peer=10.0.0.1 \
             reason=\"hold timer\\nexpired\" local_asn=64512 empty=\"\" event=bgp_session_closed\n"
        );
        assert!(as_text(&example(), true).contains("\x1b[33m WARN\x1b[0m"));
    }

    #[test]
    fn a_line_of_json_keeps_the_types_of_the_fields() {
        let line = as_json(&example(), "slowpath");
        assert_eq!(line.matches('\n').count(), 1);
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["fields"]["local_asn"], 64512);
        assert_eq!(object["fields"]["reason"], "hold timer\nexpired");
        assert_eq!(
            (&object["event"], &object["severity"], &object["program"]),
            (&"bgp_session_closed".into(), &"warning".into(), &"slowpath".into())
        );
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let text = "é".repeat(MAX_VALUE);
        assert_eq!(shortened(&text).len(), MAX_VALUE);
        assert_eq!(shortened(&format!("x{text}")).len(), MAX_VALUE - 1);
    }
}
