//! The declaration of an event.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::Level;

/// Severity of an event, in ascending order; it is also the level of the log line.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For the diagnosis of Weir itself; not logged by default.
    Debug,
    /// A change that needs no attention.
    Info,
    /// Something is degraded or was rejected; the appliance keeps forwarding.
    Warning,
    /// A part has failed.
    Error,
}

impl Severity {
    /// All severities, in ascending order.
    pub const ALL: [Severity; 4] =
        [Severity::Debug, Severity::Info, Severity::Warning, Severity::Error];

    /// Returns the name in records, on the command line and in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Debug => "debug",
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }

    /// Returns the severity with this name.
    pub fn parse(name: &str) -> Option<Severity> {
        Severity::ALL.into_iter().find(|severity| severity.as_str() == name)
    }

    /// Returns the severity of a log level.
    pub fn of(level: &Level) -> Severity {
        match *level {
            Level::ERROR => Severity::Error,
            Level::WARN => Severity::Warning,
            Level::INFO => Severity::Info,
            Level::DEBUG | Level::TRACE => Severity::Debug,
        }
    }

    /// Returns the priority of syslog and journald (RFC 5424 section 6.2.1).
    pub fn priority(self) -> u8 {
        match self {
            Severity::Error => 3,
            Severity::Warning => 4,
            Severity::Info => 6,
            Severity::Debug => 7,
        }
    }
}

/// The declaration of an event.
#[derive(Debug)]
pub struct EventKind {
    /// Stable name in snake_case. It is never reused for another meaning.
    pub name: &'static str,
    /// Severity, and level of the log line.
    pub severity: Severity,
    /// The constant message.
    pub message: &'static str,
    /// Names of the fields.
    pub fields: &'static [&'static str],
    /// Number of fields, from the first, that are the subject: repeated events are merged, and log
    /// lines are limited, by name and subject. A field of free text is not in it: its value may
    /// differ each time.
    pub subject: usize,
    /// Whether the history records the event.
    pub is_recorded: bool,
    /// Meaning of the event, a sentence for the reference page.
    pub meaning: &'static str,
    /// Action for the operator, a sentence for the reference page.
    pub action: &'static str,
}

impl EventKind {
    /// Returns the names of the fields that are the subject.
    pub fn subject_fields(&self) -> &'static [&'static str] {
        self.fields.get(..self.subject).unwrap_or(self.fields)
    }
}
