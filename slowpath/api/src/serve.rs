//! The API over TCP: TLS, and bearer token authentication of every request.
//!
//! Connections are bounded in total and by source, and each of their phases has a timeout
//! (handshake, head, body, reading of a response; see `listeners`). A request without the token is
//! answered and its connection closed, so that nothing which follows on it is read. The token is
//! compared in constant time and never logged.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use config::checked::{Api as Settings, Tls};
use config::secret_file::{self, SecretKind};
use listeners::{BindError, Conditions, Connection, Http, Slots, Stream, Timeout};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::auth_failures::AuthFailures;
use crate::problem::Problem;
use crate::{Api, router};

/// Minimum length of a token in characters.
const MIN_TOKEN_CHARS: usize = 16;

/// Error that keeps the API from being served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file can't be read.
    #[error("{key} = {path:?}: {cause}")]
    File {
        /// Configuration key of the file.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        cause: secret_file::Cause,
    },
    /// The content of a file is not valid.
    #[error("{key} = {path:?}: {wrong}")]
    Content {
        /// Configuration key of the file.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the content, without any part of it.
        wrong: String,
    },
    /// The address can't be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// The bearer token that clients must send.
#[derive(Clone)]
struct Token(Arc<[u8]>);

/// Listener resources shared by all addresses of the API.
#[derive(Clone)]
pub struct ListenerResources {
    /// Connection slots.
    pub slots: Arc<Slots>,
    /// Listener conditions, which show an address that can't be served.
    pub conditions: Arc<Conditions>,
    /// Counter and limiter of failed authentications.
    pub auth_failures: Arc<AuthFailures>,
}

/// A bound address with its credentials.
struct BoundAddress {
    token: Token,
    tls: Option<TlsAcceptor>,
    listener: TcpListener,
}

/// Reads token, certificate and key, and binds the address.
fn bind(settings: &Settings, addr: SocketAddr) -> Result<BoundAddress, ServeError> {
    let token = token(&settings.token_file)?;
    let tls = settings.tls.as_ref().map(acceptor).transpose()?;
    Ok(BoundAddress { token, tls, listener: listeners::bind("api.listen", addr)? })
}

/// Serves one address and never returns. A missing file or address is reported as a condition and
/// retried.
pub async fn serve(settings: Settings, addr: SocketAddr, resources: ListenerResources, api: Api) {
    let bound = resources.conditions.retry("api.listen", addr, || bind(&settings, addr)).await;
    let BoundAddress { token, tls, listener } = bound;
    let auth = AuthState { token, auth_failures: resources.auth_failures };
    let app = router(api).fallback(not_found);
    let app = app.layer(middleware::from_fn_with_state(auth, authenticate));
    let serve =
        move |stream, connection| serve_connection(stream, connection, tls.clone(), app.clone());
    listeners::accept(listener, resources.slots, serve).await;
}

async fn serve_connection(
    stream: Stream<TcpStream>,
    connection: Connection,
    tls: Option<TlsAcceptor>,
    app: Router,
) {
    let Some(tls) = tls else {
        return listeners::http(stream, connection, app, Http::KeepAlive).await;
    };
    match tokio::time::timeout(connection.timeouts().handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => listeners::http(stream, connection, app, Http::KeepAlive).await,
        Ok(Err(error)) => {
            tracing::debug!(from = %connection.source, %error, "TLS handshake failed");
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
    token: Token,
    auth_failures: Arc<AuthFailures>,
}

/// Forwards requests that carry the token. Other requests are answered with an error, and their
/// connection is closed.
async fn authenticate(
    State(AuthState { token, auth_failures }): State<AuthState>,
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
    let credentials = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let credentials = credentials.and_then(|value| value.split_at_checked(7));
    let bearer = credentials.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    if bearer.is_some_and(|(_, presented)| bool::from(presented.ct_eq(&token.0))) {
        connection.trust();
        return next.run(request).await;
    }
    auth_failures.failed(source, now);
    ([CLOSE], Problem::token()).into_response()
}

const CLOSE: (header::HeaderName, &str) = (header::CONNECTION, "close");

fn token(path: &Path) -> Result<Token, ServeError> {
    let key = "api.token_file";
    let text = read_file(key, path, SecretKind::Token)?;
    let token = text.trim_ascii();
    let good = token.len() >= MIN_TOKEN_CHARS && token.iter().all(u8::is_ascii_graphic);
    if !good {
        let wrong = format!(
            "write at least {MIN_TOKEN_CHARS} letters, digits and punctuation marks without \
             spaces, for example from: head -c 24 /dev/urandom | base64"
        );
        return Err(ServeError::Content { key, path: path.into(), wrong });
    }
    Ok(Token(token.into()))
}

fn read_file(key: &'static str, path: &Path, kind: SecretKind) -> Result<Vec<u8>, ServeError> {
    secret_file::read(path, kind).map_err(|error| {
        let (path, cause) = (error.path, error.cause);
        ServeError::File { key, path, cause }
    })
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ServeError> {
    let content =
        |key, path: &Path, wrong: String| ServeError::Content { key, path: path.into(), wrong };
    let pem = |key, path: &Path| read_file(key, path, SecretKind::Pem);
    let cert = pem("api.tls_cert", &tls.cert)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert).collect();
    let chain = chain.map_err(|e| content("api.tls_cert", &tls.cert, e.to_string()))?;
    if chain.is_empty() {
        let wrong = "the file has no PEM certificate".to_owned();
        return Err(content("api.tls_cert", &tls.cert, wrong));
    }
    let key = pem("api.tls_key", &tls.key)?;
    // The parser's own message could contain parts of the key.
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
        content("api.tls_key", &tls.key, "the file has no PEM private key".to_owned())
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let config = config.map_err(|e| content("api.tls_cert", &tls.cert, e.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
