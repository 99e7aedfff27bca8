//! Classification of AWS's error codes by what can be done about them.

use std::error::Error;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_elasticloadbalancingv2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::error::display::DisplayErrorContext;

use clouds::failure::{AttemptError, Failure, Operation};

/// Error codes that AWS's SDKs treat as throttling.
pub const THROTTLING: [&str; 14] = [
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottledException",
    "RequestThrottled",
    "TooManyRequestsException",
    "ProvisionedThroughputExceededException",
    "TransactionInProgressException",
    "RequestLimitExceeded",
    "BandwidthLimitExceeded",
    "LimitExceededException",
    "SlowDown",
    "PriorRequestNotComplete",
    "EC2ThrottledException",
];
/// Error codes that AWS's SDKs treat as temporary errors.
pub const TRANSIENT: [&str; 2] = ["RequestTimeout", "RequestTimeoutException"];
/// HTTP status codes that AWS's SDKs treat as temporary errors.
pub const TRANSIENT_STATUS: [u16; 4] = [500, 502, 503, 504];

/// Error codes for a missing permission: AWS accepts the credentials, but a policy denies the
/// operation.
const FORBIDDEN: [&str; 5] = [
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "UnauthorizedAccess",
    "NotAuthorized",
];
/// Error codes for credentials or signatures that AWS does not accept.
const UNAUTHENTICATED: [&str; 12] = [
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "OptInRequired",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
];
/// Error codes for an absent resource that do not end in `NotFound`.
const ABSENT: [&str; 2] = ["InvocationDoesNotExist", "InvalidInstanceId"];

/// Response header with the requested delay, in milliseconds.
pub const RETRY_AFTER: &str = "x-amz-retry-after";

/// Conversion of failed AWS operations into [`AttemptError`]s.
pub trait ErrorMapping {
    /// Returns the error for an error response of AWS.
    fn service_error(self, status: u16, code: &str, text: &str) -> AttemptError;
    /// Returns the error for an error of the SDK.
    fn sdk<E>(self, error: SdkError<E, HttpResponse>) -> AttemptError
    where
        E: ProvideErrorMetadata + Error + 'static;
    /// Returns the error for credentials that are missing or cannot be loaded.
    fn without_credentials(self, why: &CredentialsError) -> AttemptError;
}

impl ErrorMapping for Operation {
    fn service_error(self, status: u16, code: &str, text: &str) -> AttemptError {
        let kind = classify(status, code);
        let Operation { service, name } = self;
        let text = if text.is_empty() { "(no message)" } else { text };
        let message = match kind {
            Failure::Denied if is_unauthenticated(code) => format!(
                "AWS rejected this machine's credentials ({code}): check the role of the instance, \
                 and its clock; AWS reports: {text}"
            ),
            Failure::Denied => format!(
                "not permitted ({code}): allow {service}:{name} in the policy of the instance's \
                 role; AWS reports: {text}"
            ),
            Failure::Throttled => format!("rate limit exceeded ({code}): {text}"),
            _ if code.is_empty() => format!("HTTP status {status}: {text}"),
            _ => format!("{code}: {text}"),
        };
        self.failed(kind, code, message)
    }

    fn sdk<E>(self, error: SdkError<E, HttpResponse>) -> AttemptError
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        if let Some(why) = credentials_of(&error) {
            return self.without_credentials(why);
        }
        let response = error.raw_response();
        let status = response.map_or(0, |r| r.status().as_u16());
        let after = response.and_then(|r| retry_after(r.headers().get(RETRY_AFTER)));
        let context = DisplayErrorContext(&error).to_string();
        let failed = match &error {
            SdkError::ServiceError(response) => {
                let text = response.err().message().unwrap_or_default();
                self.service_error(status, response.err().code().unwrap_or_default(), text)
            }
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) => {
                self.failed(Failure::Transient, "NoAnswer", context)
            }
            // The SDK reports a response error in two cases: the connection broke before the body
            // was read completely, or the complete response is malformed.
            SdkError::ResponseError(_) if TRANSIENT_STATUS.contains(&status) => {
                self.failed(Failure::Transient, "NoAnswer", context)
            }
            SdkError::ResponseError(answer) if answer.raw().body().bytes().is_none() => {
                self.failed(Failure::Transient, "NoAnswer", context)
            }
            SdkError::ResponseError(_) => self.malformed(context),
            _ => self.failed(Failure::Invalid, "NotSent", context),
        };
        AttemptError { after, ..failed }
    }

    fn without_credentials(self, why: &CredentialsError) -> AttemptError {
        let context = DisplayErrorContext(why).to_string();
        match why {
            CredentialsError::CredentialsNotLoaded(_)
            | CredentialsError::InvalidConfiguration(_) => self.failed(
                Failure::Denied,
                "NoCredentials",
                format!(
                    "this machine has no credentials: give the instance a role, or set \
                     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; {context}"
                ),
            ),
            _ => self.failed(Failure::Transient, "NoCredentials", context),
        }
    }
}

/// Returns true if the code means that AWS does not accept the credentials.
pub fn is_unauthenticated(code: &str) -> bool {
    UNAUTHENTICATED.contains(&without_side(code))
}

/// Returns the code without the prefix `Client.` or `Server.`, by which services with the query
/// protocol may state the side that caused the error.
fn without_side(code: &str) -> &str {
    let stripped = code.strip_prefix("Client.").or_else(|| code.strip_prefix("Server."));
    stripped.unwrap_or(code)
}

/// Parses the delay from a [`RETRY_AFTER`] header; a malformed header is ignored.
pub fn retry_after(header: Option<&str>) -> Option<Duration> {
    header?.trim().parse().ok().map(Duration::from_millis)
}

/// Classifies an error by HTTP status and code.
pub fn classify(status: u16, code: &str) -> Failure {
    let code = without_side(code);
    if THROTTLING.contains(&code) || status == 429 {
        Failure::Throttled
    } else if TRANSIENT.contains(&code) || TRANSIENT_STATUS.contains(&status) {
        Failure::Transient
    } else if FORBIDDEN.contains(&code) || is_unauthenticated(code) || matches!(status, 401 | 403) {
        Failure::Denied
    } else if ABSENT.contains(&code)
        || status == 404
        || code.ends_with("NotFound")
        || code.ends_with("NotFoundException")
    {
        Failure::Absent
    } else {
        Failure::Invalid
    }
}

/// Returns the credentials error in a chain of errors, if there is one.
fn credentials_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a CredentialsError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
