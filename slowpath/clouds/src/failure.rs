//! What becomes of a question that has no answer, in the same words for every cloud.

use std::future::Future;
use std::time::Duration;

/// Why a call came to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct CallError {
    /// The operation by the cloud's name.
    pub operation: &'static str,
    /// What can be done about it.
    pub kind: Failure,
    /// The cloud's code, or ours where the call did not get so far.
    pub code: String,
    /// What happened, and what to do.
    pub message: String,
}

/// What can be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Ask more slowly.
    Throttled,
    /// Ask again.
    Transient,
    /// Somebody else is changing it: read it anew, then ask again.
    Conflict,
    /// Get the permission.
    Denied,
    /// What was asked about is not there.
    Absent,
    /// The question is wrong, or the answer can't be read: asking again is no use.
    Invalid,
}

impl Failure {
    /// Whether it may pass by itself.
    pub fn passes(self) -> bool {
        matches!(self, Failure::Throttled | Failure::Transient | Failure::Conflict)
    }

    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Failure::Throttled => "throttled",
            Failure::Transient => "transient",
            Failure::Conflict => "conflict",
            Failure::Denied => "denied",
            Failure::Absent => "absent",
            Failure::Invalid => "invalid",
        }
    }
}

/// An operation by its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// As the cloud's permissions call its service.
    pub service: &'static str,
    /// As the cloud calls it.
    pub name: &'static str,
}

/// An error, and the pause that the cloud asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setback {
    /// What the caller gets when we give up.
    pub error: CallError,
    /// Not before.
    pub after: Option<Duration>,
}

impl Operation {
    /// Of a service by the name that permissions use.
    pub const fn new(service: &'static str, name: &'static str) -> Operation {
        Operation { service, name }
    }

    /// An error of our own making.
    pub fn failed(self, kind: Failure, code: &str, message: impl Into<String>) -> Setback {
        let (code, message) = (code.to_owned(), message.into());
        Setback { error: CallError { operation: self.name, kind, code, message }, after: None }
    }

    /// An answer that can't be read. Asking again may bring a better one: something between the
    /// cloud and us may have spoken in its name.
    pub fn garbled(self, why: impl std::fmt::Display) -> Setback {
        self.failed(Failure::Invalid, "Garbled", format!("the answer can't be read: {why}"))
    }

    /// The answer, if it comes in time.
    pub async fn within<T>(
        self,
        bound: Duration,
        asked: impl Future<Output = Result<T, Setback>>,
    ) -> Result<T, Setback> {
        let told = tokio::time::timeout(bound, asked).await;
        told.unwrap_or_else(|_| Err(self.late(bound)))
    }

    /// No answer in time.
    pub fn late(self, bound: Duration) -> Setback {
        let message = format!("no answer within {} s", bound.as_secs_f32());
        self.failed(Failure::Transient, "Timeout", message)
    }
}
