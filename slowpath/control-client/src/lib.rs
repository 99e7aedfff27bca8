//! HTTP client of the control socket: one request per connection, and a response that is read as it
//! arrives.
//!
//! Requests are HTTP/1.0, so the server sends no chunks: a response without a content length ends
//! with the connection. A trace or watch that a stopping server cuts off is thus no error. The
//! client blocks its thread; async code calls it from `spawn_blocking`.
#![forbid(unsafe_code)]

use std::error::Error as _;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
pub use hyper::StatusCode;
use hyper::body::{Buf, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap};
use hyper::{Response as Head, Version};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

#[cfg(test)]
mod tests;

/// Default of [`Request::idle_timeout`]: 10 seconds.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP request.
pub struct Request<'a> {
    /// Method: `GET`, `PUT`, ...
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Headers, for example the content type and conditions.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body; empty for none.
    pub body: &'a str,
    /// Maximum time to send the request and receive the head of the response, and then for each
    /// further part of the body. The time to connect is not limited.
    pub idle_timeout: Duration,
}

impl<'a> Request<'a> {
    /// Creates a request without headers and body.
    pub fn new(method: &'a str, path: &'a str) -> Request<'a> {
        Request { method, path, headers: &[], body: "", idle_timeout: IDLE_TIMEOUT }
    }
}

/// Error of [`send`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection to the socket failed.
    #[error(transparent)]
    Connect(io::Error),
    /// No complete response head: the client could not be set up, the request is invalid or could
    /// not be sent, the connection broke, or [`Request::idle_timeout`] passed.
    #[error(transparent)]
    Interrupted(#[from] io::Error),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error {
            Error::Connect(error) | Error::Interrupted(error) => error,
        }
    }
}

/// A response whose body has not been read.
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body. Dropping it closes the connection.
    pub body: Body,
}

impl Response {
    /// Reads the whole body, which must be UTF-8 text.
    pub fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.body.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// A body that is read as it arrives.
pub struct Body {
    /// Runs the task of the connection, which makes progress only while a read waits.
    runtime: Runtime,
    incoming: Incoming,
    /// Data that has arrived and was not read yet.
    arrived: Bytes,
    idle_timeout: Duration,
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.arrived.is_empty() {
            let frame = within(&self.runtime, self.idle_timeout, self.incoming.frame())?;
            match frame.transpose().map_err(io_error)? {
                Some(frame) => self.arrived = frame.into_data().unwrap_or_default(),
                None => return Ok(0),
            }
        }
        let len = self.arrived.len().min(into.len());
        self.arrived.copy_to_slice(&mut into[..len]);
        Ok(len)
    }
}

/// Connects, sends the request and returns the response, whatever its status.
pub fn send(socket: &Path, request: &Request<'_>) -> Result<Response, Error> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let stream = runtime.block_on(UnixStream::connect(socket)).map_err(Error::Connect)?;
    let head = within(&runtime, request.idle_timeout, exchange(stream, request))??;
    let (head, incoming) = head.into_parts();
    let body =
        Body { runtime, incoming, arrived: Bytes::new(), idle_timeout: request.idle_timeout };
    Ok(Response { status: head.status, headers: head.headers, body })
}

/// Sends the request over a new connection and returns the response, whose body is read later.
async fn exchange(stream: UnixStream, request: &Request<'_>) -> io::Result<Head<Incoming>> {
    let mut message = hyper::Request::builder().method(request.method).uri(request.path);
    for (name, value) in request.headers {
        message = message.header(*name, *value);
    }
    let body = Full::new(Bytes::copy_from_slice(request.body.as_bytes()));
    let message = message.version(Version::HTTP_10).header(HOST, "weir").body(body);
    let message = message.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io_error)?;
    tokio::spawn(connection);
    sender.send_request(message).await.map_err(io_error)
}

/// Runs `future`; returns an error of kind `TimedOut` if it takes longer than `idle_timeout`.
fn within<T>(
    runtime: &Runtime,
    idle_timeout: Duration,
    future: impl Future<Output = T>,
) -> io::Result<T> {
    let timed = runtime.block_on(async { tokio::time::timeout(idle_timeout, future).await });
    timed.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "timed out"))
}

/// Returns the I/O error that caused a hyper error, or converts the error itself.
fn io_error(error: hyper::Error) -> io::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause {
        Some(cause) => io::Error::new(cause.kind(), cause.to_string()),
        None if error.is_incomplete_message() => {
            let message = "the connection ended before the end of the response";
            io::Error::new(io::ErrorKind::UnexpectedEof, message)
        }
        None => io::Error::other(error),
    }
}
