//! Requests to the collector: OTLP over HTTP with protobuf, bounded in time and length.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::checked::Telemetry;
use config::secret_file::{self, SecretKind};
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::otlp::ExportResponse;
use crate::measurements::Signal;

/// Time limit of a request with its response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a response in bytes.
const RESPONSE_MAX: usize = 64 << 10;
/// Maximum number of characters of a collector's message in an error.
const MESSAGE_MAX: usize = 200;

/// What became of a request that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The same request may succeed later.
    Transient,
    /// The same request would fail again.
    Permanent,
    /// The collector accepted the request without this number of spans or data points.
    Partial(usize),
}

/// Error of a request.
#[derive(Debug)]
pub struct ExportError {
    /// What became of the request.
    pub failure: Failure,
    /// The cause.
    pub text: String,
}

impl ExportError {
    /// Returns how many of a request's spans or data points are lost unless it is repeated.
    pub fn lost(&self, count: usize) -> usize {
        match self.failure {
            Failure::Partial(rejected) => rejected.min(count),
            Failure::Transient | Failure::Permanent => count,
        }
    }
}

/// Returns the error of a request that would fail again.
fn permanent(text: impl Into<String>) -> ExportError {
    ExportError { failure: Failure::Permanent, text: text.into() }
}

/// Returns the error of a request that may succeed later.
fn transient(error: reqwest::Error) -> ExportError {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    ExportError { failure: Failure::Transient, text }
}

/// Client of a collector.
pub struct Client {
    endpoint: String,
    headers_file: Option<PathBuf>,
    /// `None` until the first request that could create it.
    http: Option<reqwest::Client>,
}

impl Client {
    /// Creates the client. Nothing is sent.
    pub fn new(settings: &Telemetry) -> Client {
        let Telemetry { endpoint, headers_file, .. } = settings.clone();
        Client { endpoint, headers_file, http: None }
    }

    /// Returns the base URL of the collector.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Returns an error unless the collector accepted all spans or data points of the request.
    pub async fn send(
        &mut self,
        signal: Signal,
        request: &impl Message,
    ) -> Result<(), ExportError> {
        let http = match &self.http {
            Some(http) => http.clone(),
            None => self.http.insert(build(&self.endpoint)?).clone(),
        };
        let mut headers = match &self.headers_file {
            Some(path) => read_headers(path)?,
            None => HeaderMap::new(),
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let url = format!("{}/v1/{}", self.endpoint, signal.as_str());
        let request = http.post(url).headers(headers).body(request.encode_to_vec());
        let mut response = request.send().await.map_err(transient)?;
        let status = response.status();
        if !status.is_success() {
            let failure = match status.as_u16() {
                429 | 502 | 503 | 504 => Failure::Transient,
                _ => Failure::Permanent,
            };
            return Err(ExportError { failure, text: format!("status {status}") });
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(transient)? {
            body.extend_from_slice(&chunk);
            if body.len() > RESPONSE_MAX {
                return Err(permanent("the response is too long; is this an OTLP endpoint?"));
            }
        }
        let response = ExportResponse::decode(&*body)
            .map_err(|_| permanent("the response is not one of OTLP over protobuf"))?;
        let partial = response.partial_success.unwrap_or_default();
        match usize::try_from(partial.rejected).unwrap_or_default() {
            0 => Ok(()),
            rejected => {
                let message: String = partial.error_message.chars().take(MESSAGE_MAX).collect();
                let text = format!("{rejected} items of a request rejected: {message}");
                Err(ExportError { failure: Failure::Partial(rejected), text })
            }
        }
    }
}

/// Creates the HTTP client. It follows no redirects, because the headers may have credentials. With
/// `https` it uses the system's root certificates, and proxies according to `HTTPS_PROXY` and
/// `NO_PROXY`.
fn build(endpoint: &str) -> Result<reqwest::Client, ExportError> {
    // Fails if a provider is set already, which is also that of ring.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let builder = match endpoint.starts_with("https:") {
        true => builder.https_only(true),
        false => builder.no_proxy().tls_certs_only([]),
    };
    builder.timeout(TIMEOUT).build().map_err(|error| {
        let text = transient(error).text;
        permanent(format!("TLS cannot be initialized: {text}; install ca-certificates"))
    })
}

/// Reads the file with additional headers. Errors contain no part of its content, which is secret.
fn read_headers(path: &Path) -> Result<HeaderMap, ExportError> {
    let content = secret_file::read(path, SecretKind::Token)
        .map_err(|error| permanent(format!("telemetry.headers_file: {error}")))?;
    parse_headers(&String::from_utf8_lossy(&content)).map_err(|line| {
        permanent(format!(
            "telemetry.headers_file: {}:{line}: not a header; write one `NAME: VALUE` per line",
            path.display()
        ))
    })
}

/// Parses headers, one per line; returns the number of the first invalid line.
fn parse_headers(text: &str) -> Result<HeaderMap, usize> {
    let mut headers = HeaderMap::new();
    let lines = text.lines().zip(1_usize..).filter(|(line, _)| !line.trim().is_empty());
    for (line, number) in lines {
        let (name, value) = line.split_once(':').ok_or(number)?;
        let name: HeaderName = name.trim().parse().map_err(|_| number)?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| number)?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines_and_errors_name_the_line() {
        let headers = parse_headers("Authorization: Bearer a:b\n\nx-tenant:1\r\n").unwrap();
        assert_eq!((headers["authorization"].as_bytes(), headers.len()), (&b"Bearer a:b"[..], 2));
        assert!(headers["authorization"].is_sensitive());
        for (text, line) in [("a: b\nc", 2), ("a b: c", 1), ("\n\na: \u{1}", 3)] {
            assert_eq!(parse_headers(text).unwrap_err(), line, "{text:?}");
        }
    }
}
