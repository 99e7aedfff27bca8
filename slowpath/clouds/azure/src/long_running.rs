//! Long-running operations of Resource Manager, which continue after the response to their request:
//! parsing of that response and of polls, and waiting for the end.

use std::time::{Duration, SystemTime};

use azure_core::http::headers::{ETAG, HeaderName};
use azure_core::http::{Method, RawResponse, Url};
use clouds::failure::{AttemptError, Failure, Operation};
use clouds::retry::Pause;
use serde_json::Value;

use crate::arm::{Arm, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use crate::failure::{ClassifyError, ErrorBody, retry_after};
use crate::operations::POLLS;

/// Pause between polls if Azure requests none.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Operation for polling a handle.
pub(crate) const POLL: Operation = Operation::new(POLLS[0], "Poll");

/// Parses a JSON body; an empty one is null.
pub(crate) fn parse_json(
    operation: Operation,
    response: &RawResponse,
) -> Result<Value, AttemptError> {
    let body: &[u8] = response.body();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|cause| {
        let error_body = ErrorBody::read(body).message;
        operation
            .malformed(format!("{cause}: `{}`", error_body.chars().take(80).collect::<String>()))
    })
}

/// Parses a resource with its ETag.
pub(crate) fn parse_resource(
    operation: Operation,
    response: &RawResponse,
) -> Result<Resource, AttemptError> {
    let body = parse_json(operation, response)?;
    if !body.is_object() {
        return Err(operation.malformed("not an object"));
    }
    let header = response.headers().get_optional_string(&ETAG);
    let etag = header.or_else(|| body["etag"].as_str().map(str::to_owned));
    Ok(Resource { body, etag })
}

/// Parses a URL; returns `None` unless it leads to the same service by TLS, so that the token may
/// be sent there.
pub(crate) fn same_service_url(base: &Url, url: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    let same = url.scheme() == "https"
        && url.host_str() == base.host_str()
        && url.port_or_known_default() == base.port_or_known_default()
        && url.username().is_empty()
        && url.password().is_none();
    same.then_some(url)
}

/// Returns `properties.provisioningState` unless it is `Succeeded`.
fn unfinished(body: &Value) -> Option<&str> {
    let state = body["properties"]["provisioningState"].as_str()?;
    (!state.eq_ignore_ascii_case("Succeeded")).then_some(state)
}

/// Parses the response to a write of `url`.
pub(crate) fn parse_write(
    (base, url): (&Url, &Url),
    request: &ArmRequest,
    method: Method,
    response: &RawResponse,
) -> Result<WriteOutcome, AttemptError> {
    let status = u16::from(response.status());
    let operation = request.operation;
    match (method, status) {
        (Method::Delete, 404 | 204) => return Ok(WriteOutcome::Done(None)),
        (_, 200..=202 | 204) => {}
        _ => return Err(operation.error_response(response)),
    }
    let body = parse_json(operation, response)?;
    let header = |name| response.headers().get_optional_string(&HeaderName::from_static(name));
    let mut handle = OperationHandle {
        operation: header("azure-asyncoperation")
            .filter(|_| method != Method::Delete || status == 202),
        // With 201, `Location` is the URL of the new resource instead.
        location: header("location").filter(|_| status == 202),
        resource: request.path.clone(),
        name: operation.name.to_owned(),
    };
    let in_progress = match (method, unfinished(&body)) {
        _ if handle.operation.is_some() || status == 202 => true,
        (Method::Put, Some(state)) if final_result(state).is_none() => true,
        (Method::Put, Some(state)) => return Err(failed(operation, state, &body)),
        _ => false,
    };
    if !in_progress {
        let resource = body.is_object().then(|| parse_resource(operation, response)).transpose()?;
        return Ok(WriteOutcome::Done(resource.filter(|_| method != Method::Delete)));
    }
    if handle.operation.is_none() && handle.location.is_none() {
        // No URL was returned for polling, so the resource's own state is polled.
        handle.location = Some(url.to_string());
    }
    poll_url(base, &handle)
        .map_err(|cause| operation.failed(Failure::Invalid, "ForeignPoll", cause))?;
    Ok(WriteOutcome::InProgress {
        handle,
        after: retry_after(response.headers(), SystemTime::now()),
    })
}

/// Returns the URL to poll for a handle.
///
/// # Errors
/// Fails if there is no URL, or if the token may not be sent there.
pub(crate) fn poll_url(base: &Url, handle: &OperationHandle) -> Result<Url, String> {
    let url = handle.operation.as_ref().or(handle.location.as_ref());
    let url = url.ok_or_else(|| format!("no URL to poll the state of {}", handle.name))?;
    same_service_url(base, url).ok_or_else(|| {
        let host = base.host_str().unwrap_or_default();
        format!(
            "the poll URL of {}, `{}`, is not https at {host}: the token is not sent there",
            handle.name,
            url.chars().take(160).collect::<String>()
        )
    })
}

/// Parses the response to a poll.
pub(crate) fn parse_progress(
    handle: &OperationHandle,
    response: &RawResponse,
) -> Result<Progress, AttemptError> {
    let status = u16::from(response.status());
    if !response.status().is_success() {
        let error = POLL.error_response(response);
        if status == 404 && is_deletion(handle) {
            return Ok(Progress::Done);
        }
        // At the URL of `Location`, most client errors are the operation's own result. The others,
        // such as 401, 404 and 429, concern the poll itself.
        let own = handle.operation.is_none() && matches!(status, 400 | 405..=407 | 409..=428);
        return if own { Ok(Progress::Failed(error)) } else { Err(error) };
    }
    let body = parse_json(POLL, response)?;
    let in_progress =
        Progress::InProgress { after: retry_after(response.headers(), SystemTime::now()) };
    // Some URLs of `Azure-AsyncOperation` answer like those of `Location`, without a `status`.
    let state = handle.operation.as_ref().and_then(|_| body["status"].as_str());
    match (status, state.or_else(|| unfinished(&body))) {
        (_, Some(state)) => match final_result(state) {
            Some(true) => Ok(Progress::Done),
            Some(false) => Ok(Progress::Failed(failed(POLL, state, &body))),
            None => Ok(in_progress),
        },
        (202, None) => Ok(in_progress),
        (204, None) => Ok(Progress::Done),
        (_, None) if handle.operation.is_some() && !body.is_null() => {
            Err(POLL.malformed("no `status`"))
        }
        _ => Ok(Progress::Done),
    }
}

/// Returns true if the handle polls a resource that is being deleted, so that 404 means success.
/// The names of all deletions contain `_Delete` ([`operations`](crate::operations)).
fn is_deletion(handle: &OperationHandle) -> bool {
    let url = handle.location.as_deref().filter(|_| handle.operation.is_none());
    let url = url.and_then(|url| Url::parse(url).ok());
    handle.name.contains("_Delete") && url.is_some_and(|url| url.path().ends_with(&handle.resource))
}

/// Returns true for a state that means success, false for one that means failure; `None` for all
/// others, which are not final.
fn final_result(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "succeeded" => Some(true),
        "failed" | "canceled" | "cancelled" => Some(false),
        _ => None,
    }
}

/// Returns the error of an operation that was accepted and then failed.
fn failed(operation: Operation, state: &str, body: &Value) -> AttemptError {
    let mut error_body = ErrorBody::of(&body["error"]);
    if error_body.code.is_empty() {
        error_body.code = state.to_owned();
    }
    if error_body.message.is_empty() {
        error_body.message = format!("Azure reports {state} without a reason");
    }
    operation.classified(0, &error_body)
}

/// Waits until a write is complete, for `timeout` at most; returns the resource if the response to
/// the write contained it. The last poll may end after `timeout`, because its attempts have their
/// own time limits; with [`Policy::ONCE`](clouds::retry::Policy::ONCE) it makes a single attempt.
///
/// # Errors
/// Fails if the operation failed, a poll fails permanently, or the timeout is exceeded.
pub async fn finish(
    arm: &dyn Arm,
    outcome: WriteOutcome,
    pause: &dyn Pause,
    timeout: Duration,
) -> Result<Option<Resource>, AttemptError> {
    let (handle, mut after) = match outcome {
        WriteOutcome::Done(resource) => return Ok(resource),
        WriteOutcome::InProgress { handle, after } => (handle, after),
    };
    let first = pause.now();
    loop {
        let left = timeout.saturating_sub(pause.now().saturating_sub(first));
        let next = after.unwrap_or(POLL_INTERVAL);
        if left.is_zero() {
            let (name, seconds) = (&handle.name, timeout.as_secs());
            let cause = format!("{name} is still running at Azure after {seconds} s");
            return Err(POLL.failed(Failure::Transient, "StillRunning", cause));
        }
        pause.wait(next.min(left)).await;
        after = match arm.poll(&handle).await {
            Ok(Progress::Done) => return Ok(None),
            Ok(Progress::Failed(failed)) => return Err(failed),
            Ok(Progress::InProgress { after }) => after,
            Err(failed) if failed.error.code == "Canceled" => return Err(failed),
            Err(failed) if failed.error.kind.is_temporary() => failed.after,
            Err(failed) => return Err(failed),
        };
    }
}

#[cfg(test)]
mod tests;
