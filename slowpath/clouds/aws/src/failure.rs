//! What becomes of an answer that is none: AWS's many codes, sorted by what can be done about them.

use std::error::Error;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_elasticloadbalancingv2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::error::display::DisplayErrorContext;

use clouds::failure::{Failure, Operation, Setback};

/// Ask more slowly: what AWS's SDKs take for throttling.
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
/// Ask again: what AWS's SDKs take for a mishap, by code and by status.
pub const TRANSIENT: [&str; 2] = ["RequestTimeout", "RequestTimeoutException"];
/// The same by status.
pub const TRANSIENT_STATUS: [u16; 4] = [500, 502, 503, 504];

/// AWS knows us, and the policy doesn't let us.
const FORBIDDEN: [&str; 6] = [
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "UnauthorizedAccess",
    "NotAuthorized",
    "Client.UnauthorizedOperation",
];
/// AWS does not know us.
const STRANGERS: [&str; 12] = [
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
/// Absent by another word than `NotFound`.
const ABSENT: [&str; 2] = ["InvocationDoesNotExist", "InvalidInstanceId"];

/// Header in which AWS says how long to wait, in milliseconds.
pub const RETRY_AFTER: &str = "x-amz-retry-after";

/// An operation whose answer is AWS's refusal, or none.
pub trait Refused {
    /// AWS says no.
    fn refused(self, status: u16, code: &str, said: &str) -> Setback;
    /// The same of an SDK's error.
    fn sdk<E>(self, error: SdkError<E, HttpResponse>) -> Setback
    where
        E: ProvideErrorMetadata + Error + 'static;
    /// No credentials, no question.
    fn without_credentials(self, why: &CredentialsError) -> Setback;
}

impl Refused for Operation {
    fn refused(self, status: u16, code: &str, said: &str) -> Setback {
        let kind = sort(status, code);
        let Operation { service, name } = self;
        let said = if said.is_empty() { "no more than that" } else { said };
        let message = match kind {
            Failure::Denied if STRANGERS.contains(&code) => format!(
                "AWS does not accept this machine's credentials ({code}): look at the role of the \
                 instance, and at its clock; AWS says: {said}"
            ),
            Failure::Denied => format!(
                "not permitted ({code}): allow {service}:{name} in the policy of the instance's \
                 role; AWS says: {said}"
            ),
            Failure::Throttled => format!("asked too often ({code}): {said}"),
            _ if code.is_empty() => format!("HTTP status {status}: {said}"),
            _ => format!("{code}: {said}"),
        };
        self.failed(kind, code, message)
    }

    fn sdk<E>(self, error: SdkError<E, HttpResponse>) -> Setback
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        if let Some(why) = credentials_of(&error) {
            return self.without_credentials(why);
        }
        let response = error.raw_response();
        let status = response.map_or(0, |r| r.status().as_u16());
        let after = response.and_then(|r| retry_after(r.headers().get(RETRY_AFTER)));
        let whole = DisplayErrorContext(&error).to_string();
        let setback = match &error {
            SdkError::ServiceError(answer) => {
                let said = answer.err().message().unwrap_or_default();
                self.refused(status, answer.err().code().unwrap_or_default(), said)
            }
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) => {
                self.failed(Failure::Transient, "NoAnswer", whole)
            }
            // Read to the end and not understood is garbled; not read to the end is a broken
            // connection, which the SDK tells as an answer too.
            SdkError::ResponseError(_) if TRANSIENT_STATUS.contains(&status) => {
                self.failed(Failure::Transient, "NoAnswer", whole)
            }
            SdkError::ResponseError(answer) if answer.raw().body().bytes().is_none() => {
                self.failed(Failure::Transient, "NoAnswer", whole)
            }
            SdkError::ResponseError(_) => self.garbled(whole),
            _ => self.failed(Failure::Invalid, "Unasked", whole),
        };
        Setback { after, ..setback }
    }

    fn without_credentials(self, why: &CredentialsError) -> Setback {
        let whole = DisplayErrorContext(why).to_string();
        match why {
            CredentialsError::CredentialsNotLoaded(_)
            | CredentialsError::InvalidConfiguration(_) => self.failed(
                Failure::Denied,
                "NoCredentials",
                format!(
                    "this machine has no credentials: give the instance a role, or set \
                     AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; {whole}"
                ),
            ),
            _ => self.failed(Failure::Transient, "NoCredentials", whole),
        }
    }
}

/// Whether a code says that AWS does not know us.
pub fn is_stranger(code: &str) -> bool {
    STRANGERS.contains(&code)
}

/// The pause that a header asks for. A header of any other form is as good as none.
pub fn retry_after(header: Option<&str>) -> Option<Duration> {
    header?.trim().parse().ok().map(Duration::from_millis)
}

/// What can be done about a code that came with a status.
pub fn sort(status: u16, code: &str) -> Failure {
    // Old services of the query protocol say on which side the fault lies.
    let code = code.trim_start_matches("Client.").trim_start_matches("Server.");
    if THROTTLING.contains(&code) || status == 429 {
        Failure::Throttled
    } else if TRANSIENT.contains(&code) || TRANSIENT_STATUS.contains(&status) {
        Failure::Transient
    } else if FORBIDDEN.contains(&code) || STRANGERS.contains(&code) || matches!(status, 401 | 403)
    {
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

/// The credentials' trouble in a chain of errors, if that is what it is about.
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
