//! The fields of a log call, collected.

use std::fmt::Debug;

use serde_json::Value;
use tracing::field::{Field, Visit};

use crate::kind::EventKind;

/// Maximum length of a text, in bytes; the rest is cut off.
pub(crate) const MAX_VALUE: usize = 16 * 1024;

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

    /// Returns the subject of an event of this kind, as text.
    pub fn subject(&self, kind: &EventKind) -> String {
        let value = |name: &&str| self.values.iter().find(|(of, _)| of == name);
        let values = kind.subject_fields().iter().filter_map(value);
        values.map(|(_, value)| text(value)).collect::<Vec<_>>().join(" ")
    }

    fn push(&mut self, field: &Field, mut value: Value) {
        if let Value::String(text) = &mut value {
            text.truncate(text.floor_char_boundary(MAX_VALUE));
        }
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;
    use crate::list;

    /// Keeps the fields of the last event.
    struct Last(Arc<Mutex<Fields>>);

    impl<S: Subscriber> Layer<S> for Last {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            *self.0.lock().unwrap() = Fields::of(event);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let last = Arc::new(Mutex::new(Fields::default()));
        let subscriber = tracing_subscriber::registry().with(Last(Arc::clone(&last)));
        let (neighbor, reason) = ("é".repeat(MAX_VALUE), format!("x{}", "é".repeat(MAX_VALUE)));
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(
                event = "bfd_session_failed",
                %neighbor,
                reason,
                "BFD session failed"
            );
        });
        let fields = last.lock().unwrap();
        let lengths: Vec<usize> =
            fields.values.iter().map(|(_, value)| text(value).len()).collect();
        assert_eq!(lengths, [MAX_VALUE, MAX_VALUE - 1]);
    }

    #[test]
    fn subjects_are_the_declared_fields() {
        let values = vec![("backend", "10.0.0.1".into()), ("service", "a".into())];
        let fields = Fields { values, ..Fields::default() };
        let subject = |name: &str| fields.subject(list::find(name).unwrap());
        assert_eq!(subject("backend_unhealthy"), "10.0.0.1 a");
        assert_eq!(subject("backends_empty"), "a");
        assert_eq!(subject("not_able"), "", "reasons are free text");
    }
}
