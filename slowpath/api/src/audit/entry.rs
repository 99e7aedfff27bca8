//! Entries of the audit log.

use std::time::SystemTime;

use axum::extract::Request;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::principal::{Listener, Origin};
use crate::problem::Problem;
use crate::reason::Reason;
use crate::role::Role;

/// Maximum length of texts that a client chooses, in bytes.
const MAX_TEXT: usize = 512;

/// A change, an attempt at one, or a rejected caller: one line of the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// When the call ended, to the millisecond (RFC 3339).
    pub time: String,
    /// Name of the token, even if it has ended, or user of the process: `uid=1000(name)`. `unknown`
    /// if the request has no token or one that was never in force.
    pub who: String,
    /// Role of the caller; empty without one.
    pub role: String,
    /// How the call arrived: `api`, `metrics`, `socket`, or `offline` for a command that needs no
    /// slowpath.
    pub transport: String,
    /// Address of the client; empty for a process of this machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Identifier of the operation, or of the command.
    pub call: String,
    /// Method and path of the request; empty for a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// What the call is about: `services/shop/web`, `drain`.
    pub object: String,
    /// The changed objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ObjectChange>,
    /// Number of further changed objects that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_objects: u64,
    /// Whether the change was made.
    pub outcome: Outcome,
    /// Status code of the response; 0 for a command.
    #[serde(default, skip_serializing_if = "is_zero_status")]
    pub status: u16,
    /// Why the change was not made, or is not in force.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Revision of the store after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Number of requests that this entry stands for.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub times: u64,
    /// Number of rejected requests before this one that were too many to be recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suppressed: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_one(number: &u64) -> bool {
    *number == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero_status(number: &u16) -> bool {
    *number == 0
}

/// An object before and after a change: labels, annotations and spec. Values that are too large are
/// replaced by `{"omitted_bytes": N}`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ObjectChange {
    /// Kind and name: `services/shop/web`.
    pub object: String,
    /// Before the change; absent if it did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// After the change; absent if it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// What became of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The change was made.
    Done,
    /// The caller was rejected: no valid token, or no sufficient role.
    Denied,
    /// The request was rejected: it is not valid, or the object does not permit it.
    Rejected,
    /// The change failed.
    Failed,
    /// The disk did not answer in time: the change may still be made.
    Unknown,
}

impl Entry {
    /// Creates the entry of a request of the caller `who`, with the preliminary outcome `done`.
    pub fn new(
        (who, role, origin): (&str, Option<Role>, &Origin),
        operation: &str,
        request: &Request,
    ) -> Entry {
        let path = request.uri().path();
        let transport = match origin.listener {
            Listener::Api => "api",
            Listener::Metrics => "metrics",
            Listener::Socket => "socket",
        };
        Entry {
            who: who.to_owned(),
            role: role.map(|role| role.to_string()).unwrap_or_default(),
            transport: transport.to_owned(),
            source: origin.source.to_string(),
            request: bounded(&format!("{} {path}", request.method())),
            ..Entry::offline(operation, &object_of(path))
        }
    }

    /// Creates the entry of a command, with the outcome `done` and without a user.
    pub fn offline(call: &str, object: &str) -> Entry {
        Entry {
            time: now(),
            who: String::new(),
            role: String::new(),
            transport: "offline".to_owned(),
            source: String::new(),
            call: call.to_owned(),
            request: String::new(),
            object: bounded(object),
            changes: Vec::new(),
            more_objects: 0,
            outcome: Outcome::Done,
            status: 0,
            reason: String::new(),
            revision: None,
            times: 1,
            suppressed: 0,
        }
    }

    /// Notes that the caller was rejected.
    pub fn denied(&mut self, problem: &Problem) {
        self.status = problem.status;
        self.not_done(Outcome::Denied, &problem.to_string());
    }

    /// Notes why the change was not made.
    pub fn not_done(&mut self, outcome: Outcome, reason: &str) {
        (self.outcome, self.reason) = (outcome, bounded(reason));
    }

    /// Notes the response.
    pub(crate) fn ended(&mut self, status: StatusCode, reason: Option<&Reason>) {
        let problem = reason.map(|reason| &*reason.problem).unwrap_or_default();
        self.time = now();
        self.status = status.as_u16();
        self.reason = reason.map(|reason| bounded(&reason.text)).unwrap_or_default();
        self.outcome = match problem {
            // The change is stored, but the plane rejected it or an object is shadowed.
            "not-in-force" => Outcome::Done,
            "store-timeout" => Outcome::Unknown,
            _ if status.is_server_error() => Outcome::Failed,
            _ if status.is_client_error() => Outcome::Rejected,
            _ => Outcome::Done,
        };
    }

    /// Returns whether the caller or its request was rejected.
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(self.outcome, Outcome::Denied | Outcome::Rejected)
    }

    /// Returns the line for the log, with its line end.
    pub fn line(&self) -> String {
        let text = serde_json::to_string(self);
        text.map(|text| text + "\n").unwrap_or_default()
    }

    /// Emits the entry as an event of the target `audit`, for the journal.
    pub(crate) fn trace(&self) {
        let outcome = serde_json::to_value(self.outcome).unwrap_or_default();
        let objects = self.changes.iter().map(|change| change.object.as_str()).take(16);
        tracing::info!(
            target: "audit",
            event = "audit",
            who = %self.who,
            role = %self.role,
            transport = %self.transport,
            source = %self.source,
            call = %self.call,
            object = %self.object,
            objects = %objects.collect::<Vec<_>>().join(" "),
            outcome = outcome.as_str().unwrap_or_default(),
            status = self.status,
            reason = %self.reason,
            revision = self.revision,
            "audit"
        );
    }
}

fn now() -> String {
    config::rfc3339::format_ms(SystemTime::now())
}

/// Returns the beginning of a text, at most [`MAX_TEXT`] bytes, cut between two characters.
fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_TEXT);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Returns the object that a path is about, as in [`Entry::object`].
fn object_of(path: &str) -> String {
    let path = path.trim_start_matches('/');
    let path = path.strip_prefix("v1/").unwrap_or(path);
    let words: Vec<&str> = path.split('/').collect();
    match *words.as_slice() {
        ["objects", ref object @ ..] => object.join("/"),
        ["sources", source, ..] => format!("sources/{source}"),
        ["private-links-connections", _, ref name @ ..] => {
            format!("private-link-services/{}", name.join("/"))
        }
        ["drain", _] => "drain".to_owned(),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_objects() {
        for (path, object) in [
            ("/v1/objects/services/shop/web", "services/shop/web"),
            ("/v1/sources/git/sessions/7/commit", "sources/git"),
            ("/private-links-connections/approve/shop/db", "private-link-services/shop/db"),
            ("/drain/on", "drain"),
            ("/v1/restore", "restore"),
            ("/store/format", "store/format"),
        ] {
            assert_eq!(object_of(path), object, "{path}");
        }
    }

    #[test]
    fn times_have_milliseconds_and_texts_are_bounded() {
        let mut entry = Entry::offline("test", &"ä".repeat(MAX_TEXT));
        assert_eq!(entry.time.len(), "2026-11-27T14:50:00.123Z".len(), "{}", entry.time);
        assert!(config::rfc3339::parse(&entry.time).is_some());
        assert_eq!(entry.object.len(), MAX_TEXT);
        assert!(bounded(&format!("a{}", "ä".repeat(MAX_TEXT))).len() == MAX_TEXT - 1);
        entry.not_done(Outcome::Failed, &"x".repeat(2 * MAX_TEXT));
        assert_eq!((entry.outcome, entry.reason.len()), (Outcome::Failed, MAX_TEXT));
        entry.suppressed = 7;
        let line = entry.line();
        assert!(!line.contains("times") && line.contains("\"suppressed\":7"), "{line}");
        assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry);
        assert!(line.ends_with("}\n"));
    }
}
