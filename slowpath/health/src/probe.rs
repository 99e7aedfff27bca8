//! A single probe: a TCP connection, with or without TLS, and optionally an HTTP request. The
//! timeout covers all of it.
//!
//! The socket is closed with a reset: at thousands of probes per second, TIME_WAIT would exhaust
//! the local ports. Only the head of an HTTP response is read, up to a maximum size.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::plan::{Http, ProbeType, Target, Tls, TunnelEntry};
use crate::scheduler::ProbeResult;

/// Maximum size of a response's head in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Maximum number of headers of a response.
const MAX_HEADERS: usize = 128;

/// Stages of a probe in order, as named in timeout messages.
const STAGES: [&str; 3] = ["connection", "TLS handshake", "response"];

/// Reason why a probe is not successful.
enum Failure {
    /// The backend did not respond as required, or not at all.
    Bad(String),
    /// This machine could not run the probe.
    NotRun(String),
}

/// Runs a probe. `tls` is the client configuration for https targets.
pub async fn probe(
    target: &Target,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
) -> ProbeResult {
    let started = Instant::now();
    let stage = AtomicUsize::new(0);
    let outcome = tokio::time::timeout(timeout, run(target, tls, &stage)).await;
    let (good, reason) = match outcome {
        Ok(Ok(reason)) => (Some(true), reason),
        Ok(Err(Failure::Bad(reason))) => (Some(false), reason.into()),
        Ok(Err(Failure::NotRun(reason))) => (None, reason.into()),
        Err(_) => {
            let stage = STAGES[stage.load(Ordering::Relaxed)];
            let reason = format!("no {stage} within {} ms", timeout.as_millis());
            (Some(false), reason.into())
        }
    };
    ProbeResult { good, reason, took: started.elapsed() }
}

async fn run(
    target: &Target,
    tls: Option<Arc<ClientConfig>>,
    stage: &AtomicUsize,
) -> Result<Cow<'static, str>, Failure> {
    let stream = connect(target).await?;
    match &*target.probe_type {
        ProbeType::Connection => Ok("connected".into()),
        ProbeType::Http(http) => {
            stage.store(2, Ordering::Relaxed);
            request_status(stream, http, target.to).await
        }
        ProbeType::Https(http, tls_settings) => {
            // Never fall back to plain text for an https probe.
            let config = tls.ok_or_else(|| Failure::NotRun("no TLS configuration".to_owned()))?;
            stage.store(1, Ordering::Relaxed);
            let stream = tls_handshake(stream, config, tls_settings, target.to).await?;
            stage.store(2, Ordering::Relaxed);
            request_status(stream, http, target.to).await
        }
    }
}

async fn tls_handshake(
    stream: TcpStream,
    config: Arc<ClientConfig>,
    tls_settings: &Tls,
    to: SocketAddr,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = match tls_settings.name.as_str() {
        "" => Ok(ServerName::IpAddress(to.ip().into())),
        name => ServerName::try_from(name.to_owned()),
    };
    let name = name.map_err(|_| {
        Failure::NotRun(format!("`{}` is not a valid server name", tls_settings.name))
    })?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    connected.map_err(|e| Failure::Bad(format!("TLS: {e}")))
}

async fn connect(target: &Target) -> Result<TcpStream, Failure> {
    let not_run =
        |e: io::Error| Failure::NotRun(format!("cannot create a socket for the probe: {e}"));
    let socket = if target.to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.map_err(not_run)?;
    socket.set_zero_linger().map_err(not_run)?;
    if let Some(tunnel_entry) = &target.tunnel_entry {
        let applied = match tunnel_entry {
            TunnelEntry::Interface(name) => socket.bind_device(Some(name.as_bytes())),
            TunnelEntry::Mark(mark) => SockRef::from(&socket).set_mark(*mark),
        };
        applied.map_err(|e| {
            Failure::NotRun(format!("cannot send the probe into the tunnel by {tunnel_entry}: {e}"))
        })?;
    }
    if let Some(from) = target.from {
        socket.bind(SocketAddr::new(from, 0)).map_err(|e| match e.kind() {
            io::ErrorKind::AddrNotAvailable => {
                // slowpath itself adds the source addresses of tunnel probes to the kernel, and
                // logs an error if the kernel rejects one.
                let then =
                    if target.tunnel_entry.is_some() { " yet; if this persists," } else { ";" };
                Failure::NotRun(format!(
                    "this machine does not have the probe's source address{then} run: ip addr add \
                     {from} dev lo"
                ))
            }
            _ => Failure::NotRun(format!("cannot probe from {from}: {e}")),
        })?;
    }
    let through = target.tunnel_entry.as_ref();
    socket.connect(target.to).await.map_err(|e| connect_failure(target.to, through, &e))
}

/// Classifies a failed connection attempt as the backend's failure or this machine's.
fn connect_failure(to: SocketAddr, through: Option<&TunnelEntry>, error: &io::Error) -> Failure {
    use io::ErrorKind as K;
    match (error.kind(), through) {
        // A missing route to the frontend implies nothing about the backend.
        (K::NetworkUnreachable | K::HostUnreachable, Some(tunnel_entry)) => {
            let (by, remedy) = match tunnel_entry {
                TunnelEntry::Interface(_) => (
                    "through",
                    "add a route to this address through this interface, with any next hop",
                ),
                TunnelEntry::Mark(_) => {
                    ("with", "ebpf-fallback adds one when it starts; restart it")
                }
            };
            Failure::NotRun(format!(
                "the kernel has no route to {to} {by} {tunnel_entry} ({error}): {remedy}"
            ))
        }
        (K::ConnectionRefused, _) => Failure::Bad("connection refused".to_owned()),
        (
            K::ConnectionReset
            | K::ConnectionAborted
            | K::TimedOut
            | K::HostUnreachable
            | K::NetworkUnreachable,
            _,
        ) => Failure::Bad(format!("connection failed: {error}")),
        _ => Failure::NotRun(format!("cannot connect to {to}: {error}")),
    }
}

/// Sends the request over an open connection, and compares the response's status with the expected
/// ones.
async fn request_status(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    http: &Http,
    to: SocketAddr,
) -> Result<Cow<'static, str>, Failure> {
    let io_failure = |e: io::Error| Failure::Bad(format!("connection lost: {e}"));
    let Http { path, host, expect } = http;
    let authority = if host.is_empty() { to.to_string() } else { host.clone() };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: weir-health\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(io_failure)?;
    stream.flush().await.map_err(io_failure)?;
    let mut head = Vec::with_capacity(512);
    loop {
        if let Some(status) = status(&mut head)? {
            return match expect.iter().any(|range| range.contains(&status)) {
                true => Ok(format!("status {status}").into()),
                false => Err(Failure::Bad(format!(
                    "status {status}, expected {}",
                    format_expected(http)
                ))),
            };
        }
        if head.len() >= MAX_HEAD_BYTES {
            return Err(Failure::Bad(format!(
                "the response's header is longer than {MAX_HEAD_BYTES} bytes"
            )));
        }
        let mut rest = (&mut stream).take((MAX_HEAD_BYTES - head.len()) as u64);
        if rest.read_buf(&mut head).await.map_err(io_failure)? == 0 {
            let reason = if head.is_empty() {
                "connection closed without a response"
            } else {
                "incomplete response"
            };
            return Err(Failure::Bad(reason.to_owned()));
        }
    }
}

/// Returns the status of the first final response in `head`, or `None` if its head is incomplete.
/// Removes complete interim responses (1xx).
fn status(head: &mut Vec<u8>) -> Result<Option<u16>, Failure> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(head);
        let parsed =
            parsed.map_err(|e| Failure::Bad(format!("cannot parse the HTTP response: {e}")))?;
        let httparse::Status::Complete(len) = parsed else { return Ok(None) };
        match response.code {
            Some(100..=199) => drop(head.drain(..len)),
            status => return Ok(status),
        }
    }
}

/// Formats the expected statuses as configured, `200-399`.
fn format_expected(http: &Http) -> String {
    let one = |range: &std::ops::RangeInclusive<u16>| match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    http.expect.iter().map(one).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
