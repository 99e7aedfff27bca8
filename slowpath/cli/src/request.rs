//! Requests to the running slowpath over its control socket, and their errors.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Problem;
use control_client::{Error, Response};
pub use control_client::{IDLE_TIMEOUT, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use slowpath::control::report::Failure;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No process listens on the socket.
    #[error(
        "no slowpath listens on {path} ({source}); start it with `slowpath --config FILE`, \
         or name its socket with --socket (setting control.socket)", path = path.display()
    )]
    NotRunning {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The permissions of the socket deny access.
    #[error(
        "{path}: permission denied; use root, or add the user to the group `control.group` (role \
         admin), `control.operate_group` or `control.read_group`",
        path = path.display()
    )]
    PermissionDenied {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The connection broke before the response was complete.
    #[error("slowpath's response was truncated: {0}")]
    Truncated(#[from] io::Error),
    /// slowpath returned an error.
    #[error("{0}")]
    Rejected(String),
    /// The API returned an error.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The response cannot be parsed.
    #[error("slowpath's response cannot be parsed: {0}; run weir and slowpath of the same version")]
    Malformed(String),
}

/// Sends a GET request and returns a reader of the response's lines as they arrive.
pub fn lines(
    socket: &Path,
    path: &str,
    idle_timeout: Duration,
) -> Result<impl BufRead + use<>, RequestError> {
    let request = Request { idle_timeout, ..Request::new("GET", path) };
    send(socket, &request).map(|answer| BufReader::new(answer.body))
}

/// Sends a request and deserializes the response.
pub fn send_json<T: DeserializeOwned>(
    socket: &Path,
    request: &Request<'_>,
) -> Result<T, RequestError> {
    let text = send(socket, request)?.text()?;
    serde_json::from_str(&text).map_err(|e| RequestError::Malformed(e.to_string()))
}

/// Sends a PUT request, and returns the message of the response.
pub fn put(socket: &Path, path: &str) -> Result<String, RequestError> {
    send_json(socket, &Request::new("PUT", path))
}

/// Sends a POST request with a JSON body, and deserializes the response.
pub fn post<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    body_value: &impl Serialize,
) -> Result<T, RequestError> {
    let body =
        &serde_json::to_string(body_value).map_err(|e| RequestError::Malformed(e.to_string()))?;
    let headers = &[("Content-Type", "application/json")];
    send_json(socket, &Request { headers, body, ..Request::new("POST", path) })
}

/// Sends a GET request and deserializes the response.
pub fn get_json<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, RequestError> {
    send_json(socket, &Request::new("GET", path))
}

/// Sends a request and returns the response if its status is 200 to 299.
pub fn send(socket: &Path, request: &Request<'_>) -> Result<Response, RequestError> {
    let response = control_client::send(socket, request).map_err(|error| match error {
        Error::Connect(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            RequestError::PermissionDenied { path: socket.to_owned() }
        }
        Error::Connect(source) => RequestError::NotRunning { path: socket.to_owned(), source },
        Error::Interrupted(error) => RequestError::Truncated(error),
    })?;
    let status = response.status;
    if status.is_success() {
        return Ok(response);
    }
    let body = response.text()?;
    if let Ok(problem) = serde_json::from_str::<Problem>(&body) {
        return Err(RequestError::Problem(Box::new(problem)));
    }
    match serde_json::from_str::<Failure>(&body) {
        Ok(failure) => Err(RequestError::Rejected(failure.error)),
        Err(_) => Err(RequestError::Malformed(format!("HTTP/1.0 {status} {body}"))),
    }
}

/// Sends a GET request like [`get_json`]; errors are returned as text.
pub fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, String> {
    get_json(socket, path).map_err(|e| e.to_string())
}

/// The characters that are percent-encoded: all but the unreserved ones (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a text for use in a path segment or a query value.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
