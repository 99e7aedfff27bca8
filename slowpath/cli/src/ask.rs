//! Asks the running slowpath over its unix socket: HTTP/1.0, one request a connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::Problem;
use serde::Serialize;
use serde::de::DeserializeOwned;

use slowpath::report::Failure;

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
    request(socket, "GET", path, patience)
}

/// Asks for something to be done, and returns slowpath's word for it.
pub fn order(socket: &Path, path: &str) -> Result<String, AskError> {
    let mut body = String::new();
    request(socket, "PUT", path, PATIENCE)?.read_to_string(&mut body)?;
    serde_json::from_str(&body).map_err(|e| AskError::Strange(e.to_string()))
}

/// Asks something that is too long for a path, and reads the document.
pub fn question<T: DeserializeOwned>(
    socket: &Path,
    path: &str,
    question: &impl Serialize,
) -> Result<T, AskError> {
    let question = serde_json::to_string(question).map_err(|e| AskError::Strange(e.to_string()))?;
    let mut body = String::new();
    said(socket, "POST", path, PATIENCE, &question)?.read_to_string(&mut body)?;
    serde_json::from_str(&body).map_err(|e| AskError::Strange(e.to_string()))
}

fn request(
    socket: &Path,
    method: &str,
    path: &str,
    patience: Duration,
) -> Result<impl BufRead + use<>, AskError> {
    said(socket, method, path, patience, "")
}

fn said(
    socket: &Path,
    method: &str,
    path: &str,
    patience: Duration,
    json: &str,
) -> Result<impl BufRead + use<>, AskError> {
    let absent = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => AskError::NotRoot { path: socket.to_owned() },
        _ => AskError::Absent { path: socket.to_owned(), source },
    };
    let mut stream = UnixStream::connect(socket).map_err(absent)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: weir\r\n")?;
    if !json.is_empty() {
        let len = json.len();
        write!(stream, "Content-Type: application/json\r\nContent-Length: {len}\r\n")?;
    }
    write!(stream, "\r\n{json}")?;
    let mut answer = BufReader::new(stream);
    let mut status = String::new();
    answer.read_line(&mut status)?;
    let code = status.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut header = String::new();
    while answer.read_line(&mut header)? > 2 {
        header.clear();
    }
    if code == "200" {
        return Ok(answer);
    }
    let mut body = String::new();
    answer.read_to_string(&mut body)?;
    let problem = || serde_json::from_str::<Problem>(&body).map(|problem| problem.to_string());
    match serde_json::from_str::<Failure>(&body).map(|failure| failure.error).or_else(|_| problem())
    {
        Ok(error) => Err(AskError::Refused(error)),
        Err(_) => Err(AskError::Strange(format!("{} {body}", status.trim()))),
    }
}

/// Asks for `path` and reads the document.
pub fn document<T: DeserializeOwned>(socket: &Path, path: &str) -> Result<T, AskError> {
    let mut body = String::new();
    lines(socket, path, PATIENCE)?.read_to_string(&mut body)?;
    serde_json::from_str(&body).map_err(|e| AskError::Strange(e.to_string()))
}
