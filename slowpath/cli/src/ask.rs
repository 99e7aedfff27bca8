//! Asks the running slowpath over its unix socket: HTTP/1.0, one request a connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Problem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use slowpath::control::report::Failure;

/// How long an answer may take; a trace says so itself with its own time.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// What is asked.
pub struct Request<'a> {
    /// `GET`, `PUT`, ...
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The body's type, and a condition.
    pub headers: &'a [(&'a str, &'a str)],
    /// Nothing, or JSON.
    pub body: &'a str,
    /// How long the answer may take, beyond what is usual.
    pub more_time: Duration,
}

impl<'a> Request<'a> {
    /// One without headers and body.
    pub fn new(method: &'a str, path: &'a str) -> Request<'a> {
        Request { method, path, headers: &[], body: "", more_time: Duration::ZERO }
    }
}

/// A good answer.
pub struct Answer {
    /// 200 to 299.
    pub status: u16,
    /// What it says.
    pub body: BufReader<UnixStream>,
}

impl Answer {
    /// The body as a document.
    pub fn document<T: DeserializeOwned>(mut self) -> Result<T, AskError> {
        let mut body = String::new();
        self.body.read_to_string(&mut body)?;
        serde_json::from_str(&body).map_err(|e| AskError::Strange(e.to_string()))
    }
}

/// Connects, asks for `path`, and returns the body's lines as they come.
pub fn lines(
    socket: &Path,
    path: &str,
    patience: Duration,
) -> Result<impl BufRead + use<>, AskError> {
    let request = Request { more_time: patience, ..Request::new("GET", path) };
    send(socket, &request).map(|answer| answer.body)
}

/// Asks for something to be done, and returns slowpath's word for it.
pub fn order(socket: &Path, path: &str) -> Result<String, AskError> {
    send(socket, &Request::new("PUT", path))?.document()
}

/// Asks something that is too long for a path, and reads the document.
pub fn question<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    question: &impl Serialize,
) -> Result<T, AskError> {
    let body = &serde_json::to_string(question).map_err(|e| AskError::Strange(e.to_string()))?;
    let headers = &[("Content-Type", "application/json")];
    send(socket, &Request { headers, body, ..Request::new("POST", path) })?.document()
}

/// Asks for `path` and reads the document.
pub fn document<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, AskError> {
    send(socket, &Request::new("GET", path))?.document()
}

/// Connects, asks, and returns the answer if it is a good one.
pub fn send(socket: &Path, request: &Request<'_>) -> Result<Answer, AskError> {
    let absent = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => AskError::NotRoot { path: socket.to_owned() },
        _ => AskError::Absent { path: socket.to_owned(), source },
    };
    let mut stream = UnixStream::connect(socket).map_err(absent)?;
    stream.set_read_timeout(Some(PATIENCE + request.more_time))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = format!("{} {} HTTP/1.0\r\nHost: weir\r\n", request.method, request.path);
    for (name, value) in request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let len = request.body.len();
    write!(stream, "{head}Content-Length: {len}\r\n\r\n{}", request.body)?;
    let mut answer = BufReader::new(stream);
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let Some(status) = line.split(' ').nth(1).and_then(|code| code.parse().ok()) else {
        let ended = io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it answered");
        return Err(AskError::Cut(ended));
    };
    let mut header = String::new();
    while answer.read_line(&mut header)? > 2 {
        header.clear();
    }
    if (200..300).contains(&status) {
        return Ok(Answer { status, body: answer });
    }
    let mut body = String::new();
    answer.read_to_string(&mut body)?;
    if let Ok(problem) = serde_json::from_str::<Problem>(&body) {
        return Err(AskError::Problem(Box::new(problem)));
    }
    match serde_json::from_str::<Failure>(&body) {
        Ok(failure) => Err(AskError::Refused(failure.error)),
        Err(_) => Err(AskError::Strange(format!("{} {body}", line.trim()))),
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
