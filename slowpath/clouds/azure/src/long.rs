//! Long operations: parsing of the first response and of polls, and waiting for the end.

use std::time::{Duration, SystemTime};

use azure_core::http::headers::{ETAG, HeaderName};
use azure_core::http::{Method, RawResponse, Url};
use clouds::failure::{Failure, Operation, Setback};
use clouds::retry::Pause;
use serde_json::Value;

use crate::arm::{Arm, Ask, Begun, Handle, Progress, Resource};
use crate::failure::{Refused, Said, retry_after};
use crate::names::POLLS;

/// Pause between polls if Azure requests none.
const POLL_PAUSE: Duration = Duration::from_secs(2);

/// Operation for polling a handle.
pub(crate) const POLL: Operation = Operation::new(POLLS[0], "Poll");

/// Parses a JSON body; an empty one is null.
pub(crate) fn json(operation: Operation, answer: &RawResponse) -> Result<Value, Setback> {
    let body: &[u8] = answer.body();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body).map_err(|why| {
        let said = Said::read(body).message;
        operation
            .garbled(format!("{why}; it begins `{}`", said.chars().take(80).collect::<String>()))
    })
}

/// Parses a resource with its ETag.
pub(crate) fn resource(operation: Operation, answer: &RawResponse) -> Result<Resource, Setback> {
    let body = json(operation, answer)?;
    if !body.is_object() {
        return Err(operation.garbled("it is no object"));
    }
    let header = answer.headers().get_optional_string(&ETAG);
    let etag = header.or_else(|| body["etag"].as_str().map(str::to_owned));
    Ok(Resource { body, etag })
}

/// Parses a URL; returns `None` unless it is safe to send the token there: the same service, by
/// TLS.
pub(crate) fn ours(base: &Url, url: &str) -> Option<Url> {
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
pub(crate) fn begun(
    (base, url): (&Url, &Url),
    ask: &Ask,
    method: Method,
    answer: &RawResponse,
) -> Result<Begun, Setback> {
    let status = u16::from(answer.status());
    let operation = ask.operation;
    match (method, status) {
        (Method::Delete, 404 | 204) => return Ok(Begun::Done(None)),
        (_, 200..=202 | 204) => {}
        _ => return Err(operation.refused(answer)),
    }
    let body = json(operation, answer)?;
    let header = |name| answer.headers().get_optional_string(&HeaderName::from_static(name));
    let mut handle = Handle {
        operation: header("azure-asyncoperation")
            .filter(|_| method != Method::Delete || status == 202),
        // With 201, `Location` is the URL of the new resource instead.
        location: header("location").filter(|_| status == 202),
        resource: ask.path.clone(),
        name: operation.name.to_owned(),
    };
    let under_way = match (method, unfinished(&body)) {
        _ if handle.operation.is_some() || status == 202 => true,
        (Method::Put, Some(state)) if over(state).is_none() => true,
        (Method::Put, Some(state)) => return Err(failed(operation, state, &body)),
        _ => false,
    };
    if !under_way {
        let resource = body.is_object().then(|| resource(operation, answer)).transpose()?;
        return Ok(Begun::Done(resource.filter(|_| method != Method::Delete)));
    }
    if handle.operation.is_none() && handle.location.is_none() {
        // No URL was returned for polling, so the resource's own state is polled.
        handle.location = Some(url.to_string());
    }
    address(base, &handle).map_err(|why| operation.failed(Failure::Invalid, "ForeignPoll", why))?;
    Ok(Begun::UnderWay { handle, after: retry_after(answer.headers(), SystemTime::now()) })
}

/// Returns the URL to poll for a handle.
///
/// # Errors
/// Fails if there is no URL, or if the token may not be sent there.
pub(crate) fn address(base: &Url, handle: &Handle) -> Result<Url, String> {
    let told = handle.operation.as_ref().or(handle.location.as_ref());
    let told = told.ok_or_else(|| format!("nothing says how {} stands", handle.name))?;
    ours(base, told).ok_or_else(|| {
        let host = base.host_str().unwrap_or_default();
        format!(
            "{} is to be polled at `{}`, which is not https at {host}: no token is sent there",
            handle.name,
            told.chars().take(160).collect::<String>()
        )
    })
}

/// Parses the response to a poll.
pub(crate) fn progress(handle: &Handle, answer: &RawResponse) -> Result<Progress, Setback> {
    let status = u16::from(answer.status());
    if !answer.status().is_success() {
        let refused = POLL.refused(answer);
        if status == 404 && goes(handle) {
            return Ok(Progress::Done);
        }
        // At `Location` a client error is the operation's own result, unless it concerns the poll
        // itself.
        let own = handle.operation.is_none() && matches!(status, 400 | 405..=407 | 409..=428);
        return if own { Ok(Progress::Failed(refused)) } else { Err(refused) };
    }
    let body = json(POLL, answer)?;
    let under_way = Progress::UnderWay { after: retry_after(answer.headers(), SystemTime::now()) };
    // Some URLs of `Azure-AsyncOperation` answer in the form of `Location`.
    let told = handle.operation.as_ref().and_then(|_| body["status"].as_str());
    match (status, told.or_else(|| unfinished(&body))) {
        (_, Some(state)) => match over(state) {
            Some(true) => Ok(Progress::Done),
            Some(false) => Ok(Progress::Failed(failed(POLL, state, &body))),
            None => Ok(under_way),
        },
        (202, None) => Ok(under_way),
        (204, None) => Ok(Progress::Done),
        (_, None) if handle.operation.is_some() && !body.is_null() => {
            Err(POLL.garbled("it has no `status`"))
        }
        _ => Ok(Progress::Done),
    }
}

/// Returns true if the handle polls a resource that is being deleted, so that 404 means success.
/// All deletions have such names ([`names`](crate::names)).
fn goes(handle: &Handle) -> bool {
    let place = handle.location.as_deref().filter(|_| handle.operation.is_none());
    let place = place.and_then(|url| Url::parse(url).ok());
    handle.name.contains("_Delete")
        && place.is_some_and(|url| url.path().ends_with(&handle.resource))
}

/// Returns whether a state means success or failure; `None` for all others, which are not final.
fn over(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "succeeded" => Some(true),
        "failed" | "canceled" | "cancelled" => Some(false),
        _ => None,
    }
}

/// Returns the error of an operation that was accepted and then failed.
fn failed(operation: Operation, state: &str, body: &Value) -> Setback {
    let mut said = Said::of(&body["error"]);
    if said.code.is_empty() {
        said.code = state.to_owned();
    }
    if said.message.is_empty() {
        said.message = format!("Azure says that it is {state}, and not why");
    }
    operation.sorted(0, &said)
}

/// Waits until a write is complete, at most for `bound`; returns the resource if the first response
/// contained it. The retries of a poll can exceed the bound; with
/// [`Policy::ONCE`](clouds::retry::Policy::ONCE) they do not.
///
/// # Errors
/// Fails if the operation failed, the handle is unknown, or the bound is exceeded.
pub async fn finish(
    arm: &dyn Arm,
    begun: Begun,
    pause: &dyn Pause,
    bound: Duration,
) -> Result<Option<Resource>, Setback> {
    let (handle, mut after) = match begun {
        Begun::Done(resource) => return Ok(resource),
        Begun::UnderWay { handle, after } => (handle, after),
    };
    let first = pause.now();
    loop {
        let left = bound.saturating_sub(pause.now().saturating_sub(first));
        let next = after.unwrap_or(POLL_PAUSE);
        if left.is_zero() {
            let why = format!("{} still goes on at Azure after {} s", handle.name, bound.as_secs());
            return Err(POLL.failed(Failure::Transient, "StillUnderWay", why));
        }
        pause.wait(next.min(left)).await;
        after = match arm.poll(&handle).await {
            Ok(Progress::Done) => return Ok(None),
            Ok(Progress::Failed(setback)) => return Err(setback),
            Ok(Progress::UnderWay { after }) => after,
            Err(setback) if setback.error.code == "Cancelled" => return Err(setback),
            Err(setback) if setback.error.kind.passes() => setback.after,
            Err(setback) => return Err(setback),
        };
    }
}

#[cfg(test)]
mod tests;
