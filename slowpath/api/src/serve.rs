//! TCP listeners whose calls need a role: the API, with the page for browsers, and the metrics.
//! They use TLS if a certificate is configured. A bearer token authenticates every request, except
//! those of the page (browser.rs), and those to a metrics listener that requires none.
//!
//! Connections are bounded in total and by source, and each of their phases has a timeout
//! (handshake, head, body, response; see `listeners`). A request without an accepted token is
//! answered with an error and its connection is closed, so that no further request on it is read.
//! Paths of the API's listener outside of `/v1` do not exist, whatever the token: what browsers
//! request by themselves, such as icons, is no failed authentication. The token is compared in
//! constant time and never logged. Tokens and certificates follow their files (`credentials.rs`):
//! established connections go on, and a stream ends when the token that opened it is no longer
//! accepted.

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
use listeners::{BindError, Conditions, Connection, Http, Slots, Source, Timeout};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::audit::{Audit, Entry};
use crate::auth_failures::AuthFailures;
use crate::browser::{Browser, LoginChecks};
use crate::credentials::{CredentialError, Credentials};
use crate::principal::{Listener, Origin, Principal};
use crate::problem::Problem;
use crate::role::Role;
use crate::tokens::{ANONYMOUS, UNKNOWN, Verdict};
use crate::watch::error_line;

/// Reason why a listener can't be served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A credential's file can't be used.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The address can't be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// Resources shared by all addresses of a listener.
#[derive(Clone)]
pub struct ListenerResources {
    /// Connection slots.
    pub slots: Arc<Slots>,
    /// Listener conditions, which show an address that can't be served.
    pub conditions: Arc<Conditions>,
    /// Counter and limiter of failed authentications.
    pub auth_failures: Arc<AuthFailures>,
    /// Tokens and certificates; `None` if the listener needs neither.
    pub credentials: Option<Arc<Credentials>>,
    /// The audit log.
    pub audit: Audit,
    /// The page for browsers, beside the API; `None` on other listeners.
    pub browser: Option<Browser>,
}

/// Reads the credentials unless they are in force already, and binds the address.
fn bind(
    credentials: Option<&Credentials>,
    listener: Listener,
    addr: SocketAddr,
) -> Result<TcpListener, ServeError> {
    credentials.map_or(Ok(()), |credentials| credentials.load(listener))?;
    Ok(listeners::bind(listener.key(), addr)?)
}

/// Serves one address of a listener and never returns. If a file can't be used or the address can't
/// be bound, the error is shown as a condition and both are tried again.
pub async fn serve(
    addr: SocketAddr,
    listener: Listener,
    resources: ListenerResources,
    app: Router,
) {
    let ListenerResources { slots, conditions, auth_failures, credentials, audit, browser } =
        resources;
    let open = || bind(credentials.as_deref(), listener, addr);
    let socket = conditions.retry(listener.key(), addr, open).await;
    let app = app.fallback(not_found);
    let app = match credentials.clone().filter(|one| one.requires_token(listener)) {
        Some(credentials) => {
            let audit = audit.clone();
            let checks = LoginChecks {
                credentials: Arc::clone(&credentials),
                auth_failures: Arc::clone(&auth_failures),
                audit: audit.clone(),
            };
            let auth = AuthState { listener, credentials, auth_failures, audit };
            let app = app.layer(middleware::from_fn_with_state(auth, authenticate));
            match browser {
                Some(browser) => app.merge(browser.routes(checks)),
                None => app,
            }
        }
        None => app.layer(middleware::from_fn_with_state(listener, add_anonymous)),
    };
    let app = app.layer(Extension(audit));
    let serve = move |stream, connection| {
        serve_connection(stream, connection, (listener, credentials.clone()), app.clone())
    };
    listeners::accept(socket, slots, serve).await;
}

async fn serve_connection(
    stream: listeners::Stream<TcpStream>,
    connection: Connection,
    (listener, credentials): (Listener, Option<Arc<Credentials>>),
    app: Router,
) {
    let Some(credentials) = credentials.filter(|credentials| credentials.uses_tls(listener)) else {
        return listeners::http(stream, connection, app, Http::KeepAlive).await;
    };
    // Present since the listener was opened.
    let Some(tls) = credentials.acceptor(listener) else { return };
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

/// Adds the principal `anonymous` to a request and passes it on: for a metrics listener that
/// requires no token.
async fn add_anonymous(
    State(listener): State<Listener>,
    Extension(connection): Extension<Connection>,
    mut request: Request,
    next: Next,
) -> Response {
    let origin = Origin { listener, source: connection.source.to_string().into() };
    let principal = Principal { name: ANONYMOUS.into(), role: Role::Metrics, origin };
    request.extensions_mut().insert(principal);
    next.run(request).await
}

async fn not_found() -> Problem {
    Problem::not_found("there is no such path; the API is below /v1, the page is /")
}

/// State of the authentication middleware.
#[derive(Clone)]
struct AuthState {
    listener: Listener,
    credentials: Arc<Credentials>,
    auth_failures: Arc<AuthFailures>,
    audit: Audit,
}

impl AuthState {
    /// Rejects a request of the caller `who`. `logged` is the number of failures in the log line
    /// that was just written about its source, or `None` without a line: then the audit log gets no
    /// entry either, so that the limits of the log bound both.
    async fn reject(
        &self,
        request: Request,
        (who, source, logged): (&str, Source, Option<u64>),
        problem: Problem,
    ) -> Response {
        if let Some(times) = logged {
            let origin = Origin { listener: self.listener, source: source.to_string().into() };
            let mut entry = Entry::new((who, None, &origin), "authenticate", &request);
            entry.times = times;
            entry.denied(&problem);
            self.audit.record_rejected(entry).await;
        }
        ([CLOSE], problem).into_response()
    }
}

/// Forwards requests that carry an accepted token. Other requests are answered with an error, and
/// their connection is closed.
async fn authenticate(
    State(state): State<AuthState>,
    Extension(connection): Extension<Connection>,
    mut request: Request,
    next: Next,
) -> Response {
    let AuthState { listener, credentials, auth_failures, .. } = &state;
    // Browsers ask for icons and well-known files by themselves. No token opens these paths.
    if *listener == Listener::Api && !request.uri().path().starts_with("/v1/") {
        return ([CLOSE], not_found().await).into_response();
    }
    let (source, now) = (connection.source, Instant::now());
    let wait = if connection.is_trusted() { None } else { auth_failures.wait(source, now) };
    if let Some(wait) = wait {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let headers = [(header::RETRY_AFTER, seconds.to_string())];
        return ([CLOSE], headers, Problem::too_many_attempts(seconds)).into_response();
    }
    let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let has_token = sent.is_some();
    let sent = sent.and_then(|value| value.split_at_checked(7));
    let bearer = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    let verdict = bearer.map(|(_, presented)| credentials.check_token(presented, now));
    match verdict.unwrap_or(Verdict::Unknown) {
        Verdict::Accepted { name, role, ended, .. } => {
            connection.trust();
            let origin = Origin { listener: *listener, source: source.to_string().into() };
            request.extensions_mut().insert(Principal { name, role, origin });
            until_ended(next.run(request).await, ended)
        }
        Verdict::Ended(by) => {
            let logged = auth_failures.outdated(source, now);
            state.reject(request, (by.name(), source, logged), Problem::ended_token(&by)).await
        }
        Verdict::Unknown => {
            let logged = match has_token {
                true => auth_failures.failed(source, now),
                false => auth_failures.missing(source, now),
            };
            state.reject(request, (UNKNOWN, source, logged), Problem::token()).await
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

/// Body of a stream. Once `ended` resolves, it sends an error line and ends.
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
            return Poll::Ready(Some(Ok(error_line(Problem::ended_stream()).into())));
        }
        Pin::new(body).poll_next(cx)
    }
}

#[cfg(test)]
mod tests;
