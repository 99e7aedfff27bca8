//! The `[log]` and `[events]` sections, validated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `journald` if standard error is journald's stream, otherwise `text`.
    Auto,
    /// Lines of text.
    Text,
    /// One JSON object per line.
    Json,
    /// Fields in journald's protocol.
    Journald,
}

/// The `[log]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// Format of log lines.
    pub format: LogFormat,
    /// Levels, as [`crate::log_level::check`] accepts them; see [`crate::log_level::complete`].
    pub level: String,
    /// Maximum number of lines per event and subject in 10 seconds; 0 for no limit.
    pub limit: u32,
}

/// The `[events]` section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events {
    /// Maximum size of the history in bytes.
    pub max_bytes: u64,
}
