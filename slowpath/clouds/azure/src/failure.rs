//! Classification of the errors of Resource Manager, the metadata service and the login service, by
//! what can be done about them.

use std::error::Error;
use std::time::{Duration, SystemTime};

use azure_core::error::ErrorKind;
use azure_core::http::RawResponse;
use azure_core::http::headers::{HeaderName, Headers, RETRY_AFTER};
use clouds::failure::{AttemptError, Failure, Operation};
use serde_json::Value;

/// Error codes for throttling.
const THROTTLING: [&str; 4] = [
    "TooManyRequests",
    "SubscriptionRequestsThrottled",
    "ResourceCollectionRequestsThrottled",
    "too_many_requests",
];
/// Error codes for temporary errors.
const TRANSIENT: [&str; 6] = [
    "GatewayTimeout",
    "InternalServerError",
    "RetryableError",
    "ServerTimeout",
    "ServiceUnavailable",
    "temporarily_unavailable",
];
/// Error codes for a conflict with another operation, in progress or recent.
const CONFLICT: [&str; 6] = [
    "AnotherOperationInProgress",
    "CanceledAndSupersededDueToAnotherOperation",
    "Conflict",
    "OperationPreempted",
    "PreconditionFailed",
    "ReferencedResourceNotProvisioned",
];
/// Error codes for a missing permission: Azure accepts the credentials, but a role, a lock or a
/// policy does not permit the operation.
const FORBIDDEN: [&str; 5] = [
    "AuthorizationFailed",
    "LinkedAccessCheckFailed",
    "LinkedAuthorizationFailed",
    "RequestDisallowedByPolicy",
    "ScopeLocked",
];
/// Error codes for credentials that Azure does not accept.
const UNAUTHENTICATED: [&str; 10] = [
    "AuthenticationFailed",
    "ExpiredAuthenticationToken",
    "InvalidAuthenticationToken",
    "InvalidAuthenticationTokenAudience",
    "InvalidAuthenticationTokenTenant",
    "MissingAuthenticationToken",
    // Azure returns this code for a subscription of another tenant, and after access was revoked.
    // It does not mean that a resource is absent, because no resource there is visible.
    "SubscriptionNotFound",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
];
/// Error codes for an absent resource.
const ABSENT: [&str; 4] =
    ["NotFound", "ParentResourceNotFound", "ResourceGroupNotFound", "ResourceNotFound"];
/// Error codes that come with status 409 (conflict), although no retry can succeed.
const PERMANENT: [&str; 2] = ["MissingSubscriptionRegistration", "ReadOnlyDisabledSubscription"];

/// Maximum of a requested delay. A longer one is probably a mistake, and is shortened to this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// Maximum length, in characters, of a message passed on from Azure.
const MAX_MESSAGE_LENGTH: usize = 1000;

/// Classifies an error by HTTP status and code. The status is 0 for the error of a long-running
/// operation, which has none.
pub fn classify(status: u16, code: &str) -> Failure {
    let is = |codes: &[&str]| codes.contains(&code);
    if status == 429 || is(&THROTTLING) {
        Failure::Throttled
    } else if is(&FORBIDDEN) || is(&UNAUTHENTICATED) || matches!(status, 401 | 403) {
        Failure::Denied
    } else if is(&PERMANENT) {
        Failure::Invalid
    } else if matches!(status, 409 | 412) || is(&CONFLICT) {
        Failure::Conflict
    } else if status == 408 || status >= 500 || is(&TRANSIENT) {
        Failure::Transient
    } else if status == 404 || is(&ABSENT) {
        Failure::Absent
    } else {
        Failure::Invalid
    }
}

/// Error information in a response body.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ErrorBody {
    /// Error code; empty if there is none.
    pub code: String,
    /// Error message.
    pub message: String,
}

impl ErrorBody {
    /// Parses any of the following formats. For any other body, a proxy's page for instance, the
    /// message is the beginning of the body.
    ///
    /// - Resource Manager: `{"error": {"code", "message", "details"}}`, or the same without the
    ///   outer key.
    /// - Metadata service: `{"error": "..."}`.
    /// - Login service: `{"error", "error_description"}`.
    pub fn read(body: &[u8]) -> ErrorBody {
        let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(body) else {
            let text = String::from_utf8_lossy(&body[..body.len().min(400)]);
            return ErrorBody { code: String::new(), message: excerpt(&text, 160) };
        };
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        match object.get("error") {
            Some(Value::String(word)) => match text("error_description") {
                Some(why) => {
                    ErrorBody { code: word.clone(), message: excerpt(why, MAX_MESSAGE_LENGTH) }
                }
                None => {
                    ErrorBody { code: String::new(), message: excerpt(word, MAX_MESSAGE_LENGTH) }
                }
            },
            Some(error) => ErrorBody::of(error),
            None => ErrorBody::of(&Value::Object(object)),
        }
    }

    /// Parses `{"code", "message", "details"}`.
    pub fn of(error: &Value) -> ErrorBody {
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let mut message = text(error, "message");
        for detail in error["details"].as_array().into_iter().flatten() {
            let (code, more) = (text(detail, "code"), text(detail, "message"));
            if !more.is_empty() && !message.contains(&more) {
                message = format!("{message}; {code}: {more}");
            }
        }
        ErrorBody {
            code: excerpt(&text(error, "code"), 100),
            message: excerpt(&message, MAX_MESSAGE_LENGTH),
        }
    }
}

/// Returns at most `max_length` characters of a text, with white space and control characters
/// replaced by single spaces.
fn excerpt(text: &str, max_length: usize) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(max_length).collect()
}

/// Returns the missing action and its scope from an authorization error: `... does not have
/// authorization to perform action 'A' over scope 'S' ...`, in newer versions `action(s)`. An error
/// about access to a linked resource has two pairs: the first one is permitted, the second one,
/// which is returned, is missing.
fn missing_permission(message: &str) -> Option<(&str, &str)> {
    let quoted = |text: &'_ str, from: usize| {
        let begin = from + text[from..].find('\'')? + 1;
        Some((begin, begin + text[begin..].find('\'')?))
    };
    let start = message.find("does not have")?;
    let action = start + message[start..].find("action")?;
    let (begin, end) = quoted(message, action)?;
    let scope = end + message[end..].find("scope")?;
    let (from, to) = quoted(message, scope)?;
    Some((&message[begin..end], &message[from..to]))
}

/// Returns the delay requested by the `Retry-After` header, which has seconds or a time. A time is
/// compared with the `Date` of the same response, because both are by Azure's clock; without `Date`
/// it is compared with `now`.
pub fn retry_after(headers: &Headers, now: SystemTime) -> Option<Duration> {
    let text = |name: &HeaderName| headers.get_optional_str(name).map(str::trim);
    let requested = text(&RETRY_AFTER)?;
    let pause = match requested.parse().map(Duration::from_secs) {
        Ok(pause) => pause,
        Err(_) => {
            let then = httpdate::parse_http_date(requested).ok()?;
            let server_time = text(&HeaderName::from_static("date"))
                .and_then(|date| httpdate::parse_http_date(date).ok());
            then.duration_since(server_time.unwrap_or(now)).unwrap_or_default()
        }
    };
    Some(pause.min(MAX_RETRY_AFTER))
}

/// Conversion of failed operations into [`AttemptError`]s.
pub trait ClassifyError {
    /// Returns the error for an error response.
    fn error_response(self, answer: &RawResponse) -> AttemptError;
    /// Returns the error for a status with error information.
    fn classified(self, status: u16, error: &ErrorBody) -> AttemptError;
    /// Returns the error for a request that was not sent or got no response.
    fn transport_error(self, error: &azure_core::Error) -> AttemptError;
}

impl ClassifyError for Operation {
    fn error_response(self, answer: &RawResponse) -> AttemptError {
        let status = u16::from(answer.status());
        let mut error = ErrorBody::read(answer.body());
        if (300..400).contains(&status) {
            let header = HeaderName::from_static("location");
            let target = answer.headers().get_optional_str(&header).unwrap_or("an unknown target");
            error.message = format!("redirect to {}, which is not followed", excerpt(target, 160));
        }
        let after = retry_after(answer.headers(), SystemTime::now());
        AttemptError { after, ..self.classified(status, &error) }
    }

    fn classified(self, status: u16, error: &ErrorBody) -> AttemptError {
        let kind = classify(status, &error.code);
        let code = match error.code.as_str() {
            "" => status.to_string(),
            code => code.to_owned(),
        };
        let words = if error.message.is_empty() { "(no message)" } else { &error.message };
        let message = match kind {
            Failure::Denied => self.denied(status, &code, words),
            Failure::Throttled => format!("rate limit exceeded ({code}): {words}"),
            _ if error.code.is_empty() => format!("HTTP status {status}: {words}"),
            _ => format!("{code}: {words}"),
        };
        self.failed(kind, &code, message)
    }

    fn transport_error(self, error: &azure_core::Error) -> AttemptError {
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(WrappedError(failed)) = error.downcast_ref() {
                return failed.clone();
            }
            next = error.source();
        }
        let message = excerpt(&chain(error), MAX_MESSAGE_LENGTH);
        match error.kind() {
            ErrorKind::DataConversion => self.malformed(message),
            ErrorKind::Other => self.failed(Failure::Invalid, "NotSent", message),
            _ => self.failed(Failure::Transient, "NoAnswer", message),
        }
    }
}

/// Error messages for rejected credentials and missing permissions.
trait Denied {
    fn denied(self, status: u16, code: &str, error: &str) -> String;
}

impl Denied for Operation {
    fn denied(self, status: u16, code: &str, error: &str) -> String {
        if UNAUTHENTICATED.contains(&code) || status == 401 {
            return format!(
                "Azure rejected this machine's credentials ({code}): check the machine's identity, \
                 and its clock; Azure reports: {error}"
            );
        }
        match (code, missing_permission(error)) {
            ("ScopeLocked", _) => {
                format!("a lock forbids it ({code}): see `az lock list`; Azure reports: {error}")
            }
            ("RequestDisallowedByPolicy", _) => {
                format!("a policy of the subscription forbids it ({code}); Azure reports: {error}")
            }
            (_, Some((action, scope))) => format!(
                "not permitted ({code}): allow {action} on {scope} in a role of the machine's \
                 identity; Azure reports: {error}"
            ),
            _ => format!(
                "not permitted ({code}): allow {} in a role of the machine's identity; Azure \
                 reports: {error}",
                self.service
            ),
        }
    }
}

/// An [`AttemptError`] wrapped so that it passes through the SDK, which has its own error type.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.error)]
struct WrappedError(AttemptError);

/// Wraps an attempt error for the SDK; [`ClassifyError::transport_error`] unwraps it.
pub(crate) fn wrapped(failed: AttemptError) -> azure_core::Error {
    azure_core::Error::new(ErrorKind::Credential, WrappedError(failed))
}

/// Returns the message of an error together with those of its sources.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
