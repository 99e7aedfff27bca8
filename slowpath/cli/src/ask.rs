//! Requests to the running slowpath over its control socket, and their errors.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Problem;
use control_client::{Error, Response};
pub use control_client::{PATIENCE, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use slowpath::control::report::Failure;

/// Error of a request.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens on the socket.
    #[error(
        "no slowpath listens on {path} ({source}); start it with `slowpath --config FILE`, \
         or name its socket with --socket (setting control.socket)", path = path.display()
    )]
    Absent {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The permissions of the socket deny access.
    #[error("{path} belongs to root: run weir with sudo", path = path.display())]
    NotRoot {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The connection broke before the response was complete.
    #[error("slowpath's answer was cut short: {0}")]
    Cut(#[from] io::Error),
    /// slowpath returned an error.
    #[error("{0}")]
    Refused(String),
    /// The API returned an error.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The response cannot be parsed.
    #[error("slowpath's answer is not understood ({0}): are weir and slowpath of one version?")]
    Strange(String),
}

/// Sends a GET request and returns a reader of the response's lines as they arrive.
pub fn lines(
    socket: &Path,
    path: &str,
    patience: Duration,
) -> Result<impl BufRead + use<>, AskError> {
    let request = Request { patience, ..Request::new("GET", path) };
    send(socket, &request).map(|answer| BufReader::new(answer.body))
}

/// Sends a request and deserializes the response.
pub fn document_of<T: DeserializeOwned>(
    socket: &Path,
    request: &Request<'_>,
) -> Result<T, AskError> {
    let text = send(socket, request)?.text()?;
    serde_json::from_str(&text).map_err(|e| AskError::Strange(e.to_string()))
}

/// Sends a PUT request, and returns the message of the response.
pub fn order(socket: &Path, path: &str) -> Result<String, AskError> {
    document_of(socket, &Request::new("PUT", path))
}

/// Sends a POST request with a JSON body, and deserializes the response.
pub fn question<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    question: &impl Serialize,
) -> Result<T, AskError> {
    let body = &serde_json::to_string(question).map_err(|e| AskError::Strange(e.to_string()))?;
    let headers = &[("Content-Type", "application/json")];
    document_of(socket, &Request { headers, body, ..Request::new("POST", path) })
}

/// Sends a GET request and deserializes the response.
pub fn document<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, AskError> {
    document_of(socket, &Request::new("GET", path))
}

/// Sends a request and returns the response if its status is 200 to 299.
pub fn send(socket: &Path, request: &Request<'_>) -> Result<Response, AskError> {
    let response = control_client::send(socket, request).map_err(|error| match error {
        Error::Connect(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            AskError::NotRoot { path: socket.to_owned() }
        }
        Error::Connect(source) => AskError::Absent { path: socket.to_owned(), source },
        Error::Broken(error) => AskError::Cut(error),
    })?;
    let status = response.status;
    if status.is_success() {
        return Ok(response);
    }
    let body = response.text()?;
    if let Ok(problem) = serde_json::from_str::<Problem>(&body) {
        return Err(AskError::Problem(Box::new(problem)));
    }
    match serde_json::from_str::<Failure>(&body) {
        Ok(failure) => Err(AskError::Refused(failure.error)),
        Err(_) => Err(AskError::Strange(format!("HTTP/1.0 {status} {body}"))),
    }
}

/// Sends a GET request and deserializes the response; errors are returned as text.
pub fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, String> {
    document(socket, path).map_err(|e| e.to_string())
}

/// All characters but the unreserved ones (RFC 3986 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes all characters but the unreserved ones (RFC 3986 2.3).
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
