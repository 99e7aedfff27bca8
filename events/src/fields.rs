//! The fields of a log call, collected.

use std::fmt::Debug;

use serde_json::Value;
use tracing::field::{Field, Visit};

/// Fields that are no subject: their text may differ each time, which would make each event a
/// subject of its own.
pub const FREE_TEXT: [&str; 6] = ["changes", "cut", "damage", "error", "reason", "reasons"];

/// The event's name, the message and the other fields of a log call.
#[derive(Debug, Default)]
pub struct Fields {
    /// The field `event`; `None` for the lines of libraries.
    pub event: Option<String>,
    /// The message.
    pub message: String,
    /// Target in place of the call's own, for lines that came through the crate `log`.
    pub target: Option<String>,
    /// The other fields in the order of the call.
    pub values: Vec<(&'static str, Value)>,
}

impl Fields {
    /// Collects the fields of a log call.
    pub fn of(event: &tracing::Event<'_>) -> Fields {
        let mut fields = Fields::default();
        event.record(&mut fields);
        fields
    }

    /// Returns the subject: the value of the first field, as text, unless it is free text.
    pub fn subject(&self) -> String {
        let first = self.values.first().filter(|(name, _)| !FREE_TEXT.contains(name));
        first.map(|(_, value)| text(value)).unwrap_or_default()
    }

    fn push(&mut self, field: &Field, value: Value) {
        match field.name() {
            "event" => self.event = Some(text(&value)),
            "message" => self.message = text(&value),
            "log.target" => self.target = Some(text(&value)),
            name if name.starts_with("log.") => {}
            name => self.values.push((name, value)),
        }
    }
}

/// Returns a value as text, strings without quotes.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.push(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value.into());
    }
}
