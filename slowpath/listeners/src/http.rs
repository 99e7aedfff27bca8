//! HTTP/1 server for a connection with a slot.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::{PacedBody, ResponseBody};
use crate::limits::{Timeout, Timeouts};
use crate::slots::Slot;
use crate::source::Source;

/// Maximum size, in bytes, of the buffer for a request's head, and of that for response data that
/// waits to be written.
const BUFFER: usize = 32 << 10;

/// State of a connection, available to request handlers.
#[derive(Clone)]
pub struct Connection {
    pub(crate) slot: Arc<Slot>,
    /// Source of the connection.
    pub source: Source,
    trusted: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) fn new(slot: Arc<Slot>, source: Source) -> Connection {
        Connection { slot, source, trusted: Arc::default() }
    }

    /// Marks the peer as authenticated.
    pub fn trust(&self) {
        self.trusted.store(true, Relaxed);
    }

    /// Returns whether the peer has authenticated.
    pub fn is_trusted(&self) -> bool {
        self.trusted.load(Relaxed)
    }

    /// Returns the timeouts of the listener.
    pub fn timeouts(&self) -> Timeouts {
        self.slot.slots().timeouts()
    }

    /// Counts a connection that is closed because of a timeout.
    pub fn timed_out(&self, what: Timeout) {
        self.slot.slots().timed_out(what);
    }
}

/// Whether a connection is reused for several requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Http {
    /// Connections accept several requests in sequence.
    KeepAlive,
    /// Connections are closed after one request.
    OneRequest,
}

/// Serves requests with `app` until the connection ends. Requests have the [`Connection`] as an
/// extension.
pub async fn http<S>(stream: S, connection: Connection, app: Router, mode: Http)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let app = TowerToHyperService::new(app);
    let slot = &connection.slot;
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        let slot = Arc::clone(slot);
        let answer =
            app.call(request.map(|body| Body::new(PacedBody::new(body, Arc::clone(&slot)))));
        async move {
            let Ok(mut response) = answer.await;
            // The rest of an incomplete body is not read, so the connection cannot be reused.
            if !slot.is_received() {
                response.headers_mut().insert(header::CONNECTION, CLOSE);
            }
            let closes = mode == Http::OneRequest || closes(&response);
            let tracked = |body| ResponseBody::new(body, Arc::clone(&slot), closes);
            Ok::<_, Infallible>(response.map(tracked))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(slot.slots().timeouts().head)
        .keep_alive(mode == Http::KeepAlive)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        if error.is_timeout() {
            connection.timed_out(Timeout::Head);
        }
        tracing::debug!(
            event = "http_connection_failed",
            from = %connection.source,
            %error,
            "connection ended with an error"
        );
    }
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");

fn closes<B>(response: &axum::http::Response<B>) -> bool {
    response.headers().get(header::CONNECTION).is_some_and(|value| value == CLOSE)
}
