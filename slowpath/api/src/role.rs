//! Roles: what a caller may do. Each role includes those before it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a word that an error shows, in characters: a longer one may be a token in the
/// wrong place.
const MAX_SHOWN: usize = 12;

/// What a caller may do.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads the metrics.
    Metrics,
    /// Reads everything but tokens and the audit log.
    Read,
    /// Changes what is not configuration: drain, traces, captures, the log level, decisions on
    /// private endpoint connections, confirmed removals.
    Operate,
    /// Changes configuration; reads tokens and the audit log.
    Admin,
}

impl Role {
    /// All roles, lowest first.
    pub const ALL: [Role; 4] = [Role::Metrics, Role::Read, Role::Operate, Role::Admin];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Metrics => "metrics",
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error of parsing a role.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is not a role; allowed: metrics, read, operate, admin")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Role, UnknownRole> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            let length = text.chars().count();
            UnknownRole(match length {
                0..=MAX_SHOWN => format!("`{text}`"),
                _ => format!("a word of {length} characters"),
            })
        })
    }
}
