//! Errors of cloud calls, with one classification for all clouds.

use std::future::Future;
use std::time::Duration;

/// Error of a cloud call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{operation}: {message}")]
pub struct CallError {
    /// Name of the operation in the cloud's API.
    pub operation: &'static str,
    /// Classification of the error, by what can be done about it.
    pub kind: Failure,
    /// Error code of the cloud, or one of Weir's own if the cloud gave none.
    pub code: String,
    /// Description of the error, with a remedy if there is one.
    pub message: String,
}

/// Classification of an error by what can be done about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Rate limit exceeded: retry more slowly.
    Throttled,
    /// Temporary error: retry.
    Transient,
    /// Concurrent modification: read the resource again, then retry.
    Conflict,
    /// Permission missing: grant it.
    Denied,
    /// The resource does not exist.
    Absent,
    /// Invalid request or malformed response: the same request is not retried.
    Invalid,
}

impl Failure {
    /// Returns true if the error may go away without intervention.
    pub fn is_temporary(self) -> bool {
        matches!(self, Failure::Throttled | Failure::Transient | Failure::Conflict)
    }

    /// Returns the name of the class in metrics.
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

/// A cloud API operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// AWS: name of the service in permissions and endpoints (`ec2`). Azure: the permission that
    /// the operation needs. Not used for operations without a permission, such as reads of
    /// metadata.
    pub service: &'static str,
    /// Name of the operation in the cloud's API.
    pub name: &'static str,
}

/// An error of one attempt, with the delay that the cloud requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptError {
    /// The error that the caller gets when no further attempt is made.
    pub error: CallError,
    /// Minimum delay before the next attempt, as requested by the cloud in a header such as
    /// `Retry-After`.
    pub after: Option<Duration>,
}

impl Operation {
    /// Returns the operation `name` of `service`.
    pub const fn new(service: &'static str, name: &'static str) -> Operation {
        Operation { service, name }
    }

    /// Returns an error produced by Weir itself, without a requested delay.
    pub fn failed(self, kind: Failure, code: &str, message: impl Into<String>) -> AttemptError {
        let (code, message) = (code.to_owned(), message.into());
        AttemptError { error: CallError { operation: self.name, kind, code, message }, after: None }
    }

    /// Returns an `Invalid` error for a response that cannot be parsed, for instance because it
    /// came from a proxy between the cloud and Weir.
    pub fn malformed(self, cause: impl std::fmt::Display) -> AttemptError {
        self.failed(Failure::Invalid, "MalformedResponse", format!("malformed response: {cause}"))
    }

    /// Awaits `request` for at most `timeout`, and returns a timeout error after that.
    pub async fn with_timeout<T>(
        self,
        timeout: Duration,
        request: impl Future<Output = Result<T, AttemptError>>,
    ) -> Result<T, AttemptError> {
        let result = tokio::time::timeout(timeout, request).await;
        result.unwrap_or_else(|_| Err(self.timed_out(timeout)))
    }

    /// Returns the timeout error for a call that got no response within `timeout`.
    pub fn timed_out(self, timeout: Duration) -> AttemptError {
        let message = format!("no response within {} s", timeout.as_secs_f32());
        self.failed(Failure::Transient, "Timeout", message)
    }
}
