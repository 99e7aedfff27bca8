//! The API over TCP: TLS, and a token that every request has to carry.
//!
//! Connections are bounded, and so is the time that a silent peer has one: nobody waits for
//! another's handshake. The token is compared in constant time and written nowhere.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use config::checked::{Api as Listen, Tls};
use config::secret_file::{self, SecretKind};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::problem::Problem;
use crate::{Api, router};

/// How long a handshake may take, and the head of a request, and how long a connection may rest.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once; more wait in the kernel.
const CONNECTIONS: usize = 256;
/// When connections are taken again after that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// Characters of the shortest token.
const SHORTEST: usize = 16;

/// Why the API cannot be served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file cannot be read.
    #[error("{key} = {path:?}: {cause}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        cause: secret_file::Cause,
    },
    /// A file holds something else.
    #[error("{key} = {path:?}: {wrong}")]
    Content {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it. No part of it is told.
        wrong: String,
    },
    /// The address can't be listened on.
    #[error("api.listen = \"{addr}\": {source}; `ss -ltnp` lists who listens where")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// What clients have to send.
#[derive(Clone)]
struct Token(Arc<[u8]>);

/// Everything that is needed to serve, read and checked.
pub struct Serving {
    token: Token,
    tls: Option<TlsAcceptor>,
    listeners: Vec<TcpListener>,
}

impl Serving {
    /// Reads token, certificate and key, and listens.
    ///
    /// # Errors
    /// What of these can't be had, by its setting.
    pub async fn open(listen: &Listen) -> Result<Serving, ServeError> {
        let token = token(&listen.token_file)?;
        let tls = listen.tls.as_ref().map(acceptor).transpose()?;
        let mut listeners = Vec::new();
        for addr in listen.listen.iter().copied() {
            let listener = TcpListener::bind(addr).await;
            listeners.push(listener.map_err(|source| ServeError::Bind { addr, source })?);
        }
        Ok(Serving { token, tls, listeners })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves for good.
    pub async fn run(self, api: Api) -> io::Result<()> {
        let app = router(api).fallback(elsewhere);
        let app = app.layer(middleware::from_fn_with_state(self.token, authorised));
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut tasks = tokio::task::JoinSet::new();
        for listener in self.listeners {
            tasks.spawn(accept(listener, self.tls.clone(), app.clone(), Arc::clone(&room)));
        }
        match tasks.join_next().await {
            Some(ended) => ended.map_err(io::Error::other),
            None => Ok(()),
        }
    }
}

/// Takes connections as long as there is room for more.
async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    app: Router,
    room: Arc<Semaphore>,
) {
    while let Ok(place) = Arc::clone(&room).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, from)) => {
                let (tls, app) = (tls.clone(), app.clone());
                tokio::spawn(async move {
                    if let Err(error) = connection(stream, tls, app).await {
                        tracing::debug!(%from, %error, "a connection of the API ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                // No descriptors are left, say: others may be closed meanwhile.
                tracing::warn!(%error, "api.listen");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, app: Router) -> io::Result<()> {
    match tls {
        None => requests(stream, app).await,
        Some(tls) => {
            let shaken = tokio::time::timeout(PATIENCE, tls.accept(stream)).await;
            requests(shaken.map_err(|_| io::ErrorKind::TimedOut)??, app).await
        }
    }
}

/// Answers one request after the other.
async fn requests(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    app: Router,
) -> io::Result<()> {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    served.await.map_err(io::Error::other)
}

async fn elsewhere() -> Problem {
    Problem::absent("there is /v1")
}

/// Lets those pass who have the token.
async fn authorised(State(token): State<Token>, request: Request, next: Next) -> Response {
    let told = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let told = told.and_then(|value| value.split_at_checked(7));
    let own = told.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    match own.is_some_and(|(_, told)| bool::from(told.ct_eq(&token.0))) {
        true => next.run(request).await,
        false => Problem::token().into_response(),
    }
}

fn token(path: &Path) -> Result<Token, ServeError> {
    let key = "api.token_file";
    let text = named(key, path, SecretKind::Token)?;
    let token = text.trim_ascii();
    let good = token.len() >= SHORTEST && token.iter().all(u8::is_ascii_graphic);
    if !good {
        let wrong = format!(
            "write {SHORTEST} or more letters, digits and signs without spaces, as \
             from: head -c 24 /dev/urandom | base64"
        );
        return Err(ServeError::Content { key, path: path.into(), wrong });
    }
    Ok(Token(token.into()))
}

fn named(key: &'static str, path: &Path, kind: SecretKind) -> Result<Vec<u8>, ServeError> {
    secret_file::read(path, kind).map_err(|error| {
        let (path, cause) = (error.path, error.cause);
        ServeError::File { key, path, cause }
    })
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ServeError> {
    let content =
        |key, path: &Path, wrong: String| ServeError::Content { key, path: path.into(), wrong };
    let pem = |key, path: &Path| named(key, path, SecretKind::Pem);
    let cert = pem("api.tls_cert", &tls.cert)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&cert).collect();
    let chain = chain.map_err(|e| content("api.tls_cert", &tls.cert, e.to_string()))?;
    if chain.is_empty() {
        let wrong = "there is no certificate in PEM in it".to_owned();
        return Err(content("api.tls_cert", &tls.cert, wrong));
    }
    let key = pem("api.tls_key", &tls.key)?;
    // Its own words might tell of what is in the file.
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| {
        content("api.tls_key", &tls.key, "there is no private key in PEM in it".to_owned())
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
    let config = config.map_err(|e| content("api.tls_cert", &tls.cert, e.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
