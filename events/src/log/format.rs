//! Lines of the log as text and as JSON.

use std::fmt::Write;
use std::time::SystemTime;

use serde_json::{Map, Value, json};

use config::rfc3339::format_ms;

use crate::fields::{Fields, text};
use crate::kind::Severity;

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

/// Returns a value as it is written after `name=`: in quotes if it has blanks, quotes, `=` or
/// control characters.
pub fn value_text(value: &Value) -> String {
    let text = text(value);
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '"' && c != '=';
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("{text:?}"),
    }
}

/// Returns the message followed by the fields. Control characters are escaped, because a terminal
/// would interpret them.
pub fn message(line: &Line) -> String {
    let mut text = String::new();
    for c in line.fields.message.chars() {
        match c.is_control() {
            true => text.extend(c.escape_debug()),
            false => text.push(c),
        }
    }
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
    let (at, target, text) = (format_ms(line.at), &line.target, message(line));
    match &line.fields.event {
        Some(event) => format!("{at} {level} {target}: {text} event={event}\n"),
        None => format!("{at} {level} {target}: {text}\n"),
    }
}

/// Returns a line as one JSON object.
pub fn as_json(line: &Line, program: &str) -> String {
    let values = line.fields.values.iter();
    let fields: Map<String, Value> =
        values.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let object = json!({
        "time": format_ms(line.at),
        "severity": line.severity.as_str(),
        "program": program,
        "target": line.target,
        "event": line.fields.event,
        "message": line.fields.message,
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
    fn control_characters_are_escaped() {
        let mut line = example();
        line.fields.message = "a\x1b[31m\nb\u{9b}".into();
        line.fields.values = vec![("reason", "\x1b[2J".into())];
        assert_eq!(message(&line), r#"a\u{1b}[31m\nb\u{9b} reason="\u{1b}[2J""#);
    }
}
