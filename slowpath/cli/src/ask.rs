//! Requests to the running slowpath over its control socket, and why there is no answer.

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

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error(
        "no slowpath listens on {path} ({source}); start it with `slowpath --config FILE`, \
         or name its socket with --socket (setting control.socket)", path = path.display()
    )]
    Absent {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Not allowed to connect.
    #[error("{path} belongs to root: run weir with sudo", path = path.display())]
    NotRoot {
        /// The socket.
        path: PathBuf,
    },
    /// The connection broke.
    #[error("slowpath's answer was cut short: {0}")]
    Cut(#[from] io::Error),
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// The API refused.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// It speaks another language.
    #[error("slowpath's answer is not understood ({0}): are weir and slowpath of one version?")]
    Strange(String),
}

/// Connects, asks for `path`, and returns the body's lines as they come.
pub fn lines(
    socket: &Path,
    path: &str,
    patience: Duration,
) -> Result<impl BufRead + use<>, AskError> {
    let request = Request { patience, ..Request::new("GET", path) };
    send(socket, &request).map(|answer| BufReader::new(answer.body))
}

/// Sends a request and reads the document that answers it.
pub fn document_of<T: DeserializeOwned>(
    socket: &Path,
    request: &Request<'_>,
) -> Result<T, AskError> {
    let text = send(socket, request)?.text()?;
    serde_json::from_str(&text).map_err(|e| AskError::Strange(e.to_string()))
}

/// Asks for something to be done, and returns slowpath's word for it.
pub fn order(socket: &Path, path: &str) -> Result<String, AskError> {
    document_of(socket, &Request::new("PUT", path))
}

/// Asks something that is too long for a path, and reads the document.
pub fn question<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    question: &impl Serialize,
) -> Result<T, AskError> {
    let body = &serde_json::to_string(question).map_err(|e| AskError::Strange(e.to_string()))?;
    let headers = &[("Content-Type", "application/json")];
    document_of(socket, &Request { headers, body, ..Request::new("POST", path) })
}

/// Asks for `path` and reads the document.
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

/// A document, or why there is none.
pub fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, String> {
    document(socket, path).map_err(|e| e.to_string())
}

/// All but the unreserved characters (RFC 3986 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes all but letters, digits and the harmless marks (RFC 3986 2.3).
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}
