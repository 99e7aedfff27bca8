//! The API over TCP: TLS, and a token that every request has to carry.
//!
//! A connection takes part only after its handshake, which has a time and is nobody else's to wait
//! for. The token is compared in constant time and written nowhere.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use config::checked::{Api as Listen, Tls};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::problem::Problem;
use crate::{Api, router};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at once; more wait in the kernel.
const HANDSHAKES: usize = 64;
/// Characters of the shortest token.
const SHORTEST: usize = 16;

/// Why the API cannot be served over TCP.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file cannot be read.
    #[error("{key} = {path:?}: {source}")]
    File {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
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
        let mut tasks = tokio::task::JoinSet::new();
        for listener in self.listeners {
            let app = app.clone();
            match &self.tls {
                Some(tls) => {
                    tasks.spawn(axum::serve(Secure::new(listener, tls.clone())?, app).into_future())
                }
                None => tasks.spawn(axum::serve(listener, app).into_future()),
            };
        }
        match tasks.join_next().await {
            Some(ended) => ended.map_err(io::Error::other)?,
            None => Ok(()),
        }
    }
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
    let text = std::fs::read_to_string(path).map_err(|source| ServeError::File {
        key,
        path: path.into(),
        source,
    })?;
    let token = text.trim();
    let good = token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !good {
        let wrong = format!(
            "write {SHORTEST} or more letters, digits and signs without spaces, as \
             from: head -c 24 /dev/urandom | base64"
        );
        return Err(ServeError::Content { key, path: path.into(), wrong });
    }
    Ok(Token(token.as_bytes().into()))
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, ServeError> {
    let content =
        |key, path: &Path, wrong: String| ServeError::Content { key, path: path.into(), wrong };
    let pem = |key, path: &PathBuf| {
        std::fs::read(path).map_err(|source| ServeError::File { key, path: path.clone(), source })
    };
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

/// Connections whose handshake is done.
struct Secure {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Secure {
    fn new(mut listener: TcpListener, tls: TlsAcceptor) -> io::Result<Secure> {
        let address = listener.local_addr()?;
        let (done, ready) = mpsc::channel(HANDSHAKES);
        let room = Arc::new(Semaphore::new(HANDSHAKES));
        tokio::spawn(async move {
            while let Ok(place) = Arc::clone(&room).acquire_owned().await {
                let next = axum::serve::Listener::accept(&mut listener);
                let (stream, from) = tokio::select! {
                    next = next => next,
                    () = done.closed() => return,
                };
                tokio::spawn(shake(tls.clone(), stream, from, done.clone(), place));
            }
        });
        Ok(Secure { address, ready })
    }
}

async fn shake(
    tls: TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
    done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
    _place: OwnedSemaphorePermit,
) {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => drop(done.send((stream, from)).await),
        Ok(Err(error)) => tracing::debug!(%from, %error, "no TLS"),
        Err(_) => tracing::debug!(%from, "the TLS handshake took too long"),
    }
}

impl axum::serve::Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(ready) => ready,
            // Whoever accepts is gone with the runtime; nobody comes any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}
