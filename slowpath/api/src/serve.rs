//! The API over TCP: TLS, and bearer token authentication of every request.
//!
//! Connections are bounded in total and by source, and each of their phases has a timeout
//! (handshake, head, body, response; see `listeners`). A request without the token is answered with
//! an error and its connection is closed, so that no further request on it is read. The token is
//! compared in constant time and never logged. Token and certificate follow their files
//! (`credentials.rs`): established connections go on, and a stream ends when the token that opened
//! it is no longer accepted.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::{Extension, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Error, Router};
use futures_core::Stream;
use listeners::{BindError, Conditions, Connection, Http, Slots, Timeout};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::auth_failures::AuthFailures;
use crate::credentials::{CredentialError, Credentials};
use crate::problem::Problem;
use crate::tokens::Verdict;
use crate::watch::error_line;
use crate::{Api, router};

/// Reason why the API can't be served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A credential's file can't be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The address can't be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Listener resources shared by all addresses of the API.
#[derive(Clone)]
pub struct ListenerResources {
    /// Connection slots.
    pub slots: Arc<Slots>,
    /// Listener conditions, which show an address that can't be served.
    pub conditions: Arc<Conditions>,
    /// Counter and limiter of failed authentications.
    pub auth_failures: Arc<AuthFailures>,
    /// Token and certificate.
    pub credentials: Arc<Credentials>,
}

/// Reads the credentials unless they are in force already, and binds the address.
fn bind(credentials: &Credentials, addr: SocketAddr) -> Result<TcpListener, ServeError> {
    credentials.load()?;
    Ok(listeners::bind("api.listen", addr)?)
}

/// Serves one address and never returns. If a file can't be used or the address can't be bound, the
/// error is shown as a condition and both are tried again.
pub async fn serve(addr: SocketAddr, resources: ListenerResources, api: Api) {
    let ListenerResources { slots, conditions, auth_failures, credentials } = resources;
    let listener = conditions.retry("api.listen", addr, || bind(&credentials, addr)).await;
    let auth = AuthState { credentials: Arc::clone(&credentials), auth_failures };
    let app = router(api).fallback(not_found);
    let app = app.layer(middleware::from_fn_with_state(auth, authenticate));
    let serve = move |stream, connection| {
        serve_connection(stream, connection, Arc::clone(&credentials), app.clone())
    };
    listeners::accept(listener, slots, serve).await;
}

async fn serve_connection(
    stream: listeners::Stream<TcpStream>,
    connection: Connection,
    credentials: Arc<Credentials>,
    app: Router,
) {
    if !credentials.uses_tls() {
        return listeners::http(stream, connection, app, Http::KeepAlive).await;
    }
    // Present since the listener was opened.
    let Some(tls) = credentials.acceptor() else { return };
    match tokio::time::timeout(connection.timeouts().handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => listeners::http(stream, connection, app, Http::KeepAlive).await,
        Ok(Err(error)) => {
            tracing::debug!(
                event = "api_handshake_failed",
                from = %connection.source,
                %error,
                "TLS handshake failed"
            );
        }
        Err(_) => connection.timed_out(Timeout::Handshake),
    }
}

async fn not_found() -> Problem {
    Problem::not_found("there is no such path; the API is below /v1")
}

/// State of the authentication middleware.
#[derive(Clone)]
struct AuthState {
    credentials: Arc<Credentials>,
    auth_failures: Arc<AuthFailures>,
}

/// Forwards requests that carry the token. Other requests are answered with an error, and their
/// connection is closed.
async fn authenticate(
    State(AuthState { credentials, auth_failures }): State<AuthState>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let (source, now) = (connection.source, Instant::now());
    let wait = if connection.is_trusted() { None } else { auth_failures.wait(source, now) };
    if let Some(wait) = wait {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let headers = [(header::RETRY_AFTER, seconds.to_string())];
        return ([CLOSE], headers, Problem::too_many_attempts(seconds)).into_response();
    }
    let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let sent = sent.and_then(|value| value.split_at_checked(7));
    let bearer = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    let verdict = bearer.map(|(_, presented)| credentials.check_token(presented, now));
    match verdict.unwrap_or(Verdict::Unknown) {
        Verdict::Accepted { ended, .. } => {
            connection.trust();
            until_ended(next.run(request).await, ended)
        }
        Verdict::Ended => {
            auth_failures.outdated(source, now);
            ([CLOSE], Problem::replaced_token()).into_response()
        }
        Verdict::Unknown => {
            auth_failures.failed(source, now);
            ([CLOSE], Problem::token()).into_response()
        }
    }
}

const CLOSE: (header::HeaderName, &str) = (header::CONNECTION, "close");

/// Makes a stream end when the token that opened it is no longer accepted. A response of known
/// length is not changed.
fn until_ended(response: Response, mut ended: watch::Receiver<bool>) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    // The sender is dropped when the token is forgotten, which ends the stream as well.
    let ended = async move { drop(ended.wait_for(|ended| *ended).await) };
    response.map(|body| {
        let body = Some(body.into_data_stream());
        Body::from_stream(UntilEnded { body, ended: Box::pin(ended) })
    })
}

/// Body of a stream, which ends with an error line.
struct UntilEnded {
    /// `None` after the error line.
    body: Option<BodyDataStream>,
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Stream for UntilEnded {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        if this.ended.as_mut().poll(cx).is_ready() {
            this.body = None;
            return Poll::Ready(Some(Ok(error_line(Problem::replaced_token()).into())));
        }
        Pin::new(body).poll_next(cx)
    }
}

#[cfg(test)]
mod tests;
