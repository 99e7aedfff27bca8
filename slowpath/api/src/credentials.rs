//! Credentials of the API over TCP: the bearer token, and the TLS certificate with its key.
//!
//! All files are read before the first connection is accepted, and then once a second, because
//! their content shows every way of replacement: rename, a changed link (`..data` of Kubernetes),
//! and an edit in place. Changed content is used once two consecutive reads returned it, so that a
//! partly written file is not used; a requested reload uses it at once. Content that cannot be used
//! leaves the credential in force as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use config::checked::{Api as Settings, Tls};
use config::secret_file::{self, Cause, SecretKind};
use config::secrets::exposure;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{Identity, IdentityError, Validity};
use crate::tokens::{Tokens, Verdict};

/// Interval between two reads of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum length of a token in characters.
const MIN_TOKEN_CHARS: usize = 16;

const TOKEN_KEY: &str = "api.token_file";
const CERT_KEY: &str = "api.tls_cert";
const KEY_KEY: &str = "api.tls_key";

/// Error of a credential's file, without any part of its content.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key} = {path:?}: {cause}")]
pub struct CredentialError {
    /// Configuration key of the file.
    pub key: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong, and what to do.
    pub cause: String,
}

/// State of one credential, for status and metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CredentialStatus {
    /// Configuration key: `api.token_file`, or `api.tls_cert` for a certificate with its key.
    pub key: &'static str,
    /// Path of the file.
    pub path: PathBuf,
    /// Why the present content of the file is not in force; `None` if it is.
    pub error: Option<String>,
    /// Conditions that should be mended although the credential is in force.
    pub warnings: Vec<String>,
    /// Validity of the certificate.
    pub validity: Option<Validity>,
    /// Time for which a replaced token is still accepted; `None` if there is none.
    pub overlap_left: Option<Duration>,
    /// Number of times that changed content was rejected.
    pub rejected: u64,
    /// Number of times that changed content was put in force.
    pub replaced: u64,
}

/// Requests with a replaced token.
#[derive(Default)]
struct ReplacedTokenRequests {
    accepted: AtomicU64,
    rejected: AtomicU64,
}

/// The credentials of the API, shared by all of its addresses.
pub struct Credentials {
    settings: Settings,
    /// `None` until a token was read.
    tokens: RwLock<Option<Tokens>>,
    /// `None` until a certificate was read, or without TLS.
    identity: RwLock<Option<Identity>>,
    watched: Mutex<Watched>,
    /// Held while files are read and processed, so that an older read never follows a newer one.
    polling: Mutex<()>,
    reload: Notify,
    requests: ReplacedTokenRequests,
}

#[derive(Default)]
struct Watched {
    token: Watch,
    identity: Watch,
}

/// Content of the files of one credential, or why one of them cannot be read.
type Content = Result<Vec<Vec<u8>>, CredentialError>;

/// Detects changed content of the files of one credential.
#[derive(Default)]
struct Watch {
    /// Content that was processed last.
    processed: Option<Content>,
    /// Content that is in force; `None` until the credential was read.
    accepted: Option<Content>,
    /// Different content, as read once.
    changed: Option<Content>,
    error: Option<CredentialError>,
    warnings: Vec<String>,
    rejected: u64,
    replaced: u64,
}

impl Watch {
    /// Returns the content if it has to be processed: it is not the content that was processed
    /// last, and it was also read the previous time or `now` is true.
    fn due(&mut self, read: Content, now: bool) -> Option<Content> {
        if self.processed.as_ref() == Some(&read) {
            self.changed = None;
            return None;
        }
        if !now && self.changed.as_ref() != Some(&read) {
            self.changed = Some(read);
            return None;
        }
        self.changed = None;
        self.processed = Some(read.clone());
        if self.accepted.as_ref() == Some(&read) {
            self.error = None;
            return None;
        }
        Some(read)
    }

    /// Records the result of processing changed content: whether it replaced other content.
    fn record(&mut self, result: Result<bool, CredentialError>) {
        let in_force = self.accepted.is_some();
        match result {
            Ok(replaced) => {
                self.replaced += u64::from(replaced && in_force);
                self.accepted.clone_from(&self.processed);
                self.error = None;
            }
            Err(error) => {
                if in_force {
                    self.rejected += 1;
                    tracing::warn!(
                        event = "secret_rejected",
                        %error,
                        "secret file rejected, the previous secret stays"
                    );
                }
                self.error = Some(error);
            }
        }
    }

    fn warn(&mut self, warnings: Vec<String>) {
        for warning in warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            tracing::warn!(event = "secret_warning", %warning, "secret file has a warning");
        }
        self.warnings = warnings;
    }
}

impl Credentials {
    /// Creates the credentials of these settings; nothing is read yet.
    pub fn new(settings: Settings) -> Credentials {
        Credentials {
            settings,
            tokens: RwLock::default(),
            identity: RwLock::default(),
            watched: Mutex::default(),
            polling: Mutex::default(),
            reload: Notify::new(),
            requests: ReplacedTokenRequests::default(),
        }
    }

    /// Reads the files unless they were read before.
    ///
    /// # Errors
    /// A file cannot be used, and none was in force before.
    pub(crate) fn load(&self) -> Result<(), CredentialError> {
        let is_loaded = |credentials: &Credentials| {
            credentials.tokens.read().is_some()
                && (credentials.settings.tls.is_none() || credentials.identity.read().is_some())
        };
        if is_loaded(self) {
            return Ok(());
        }
        self.poll(Instant::now(), true);
        if is_loaded(self) {
            return Ok(());
        }
        let watched = self.watched.lock();
        let errors = [&watched.token.error, &watched.identity.error];
        errors.into_iter().flatten().next().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Requests that the files are read now, and that changed content is used at once.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Reads the files, and puts changed content in force: if it was read twice, or at once if
    /// `at_once`.
    fn poll(&self, now: Instant, at_once: bool) {
        let _polling = self.polling.lock();
        let path = &self.settings.token_file;
        // A disk may block each read; readers of the status must not wait for it.
        let (content, warning) = (read(&[(TOKEN_KEY, path)]), exposure(TOKEN_KEY, path));
        let mut watched = self.watched.lock();
        if let Some(content) = watched.token.due(content, at_once) {
            let result = content.and_then(|files| self.put_token(files.first(), now));
            watched.token.record(result);
        }
        watched.token.warn(warning.into_iter().collect());
        drop(watched);
        let Some(tls) = &self.settings.tls else { return };
        let files = [(CERT_KEY, tls.cert.as_path()), (KEY_KEY, &tls.key)];
        let (content, warning) = (read(&files), exposure(KEY_KEY, &tls.key));
        let mut watched = self.watched.lock();
        if let Some(content) = watched.identity.due(content, at_once) {
            let result = content.and_then(|files| self.put_identity(tls, &files));
            watched.identity.record(result);
        }
        let validity = self.identity.read().as_ref().and_then(|identity| identity.validity);
        let validity = validity.and_then(|validity| validity.warning(SystemTime::now()));
        let validity = validity.map(|text| format!("{CERT_KEY} = {:?}: {text}", tls.cert));
        watched.identity.warn(warning.into_iter().chain(validity).collect());
    }

    /// Puts the token of a file in force. Returns whether it differs from the one before; true for
    /// the first one.
    fn put_token(&self, file: Option<&Vec<u8>>, now: Instant) -> Result<bool, CredentialError> {
        let path = &self.settings.token_file;
        let token = file.map(|file| file.trim_ascii()).unwrap_or_default();
        let good = token.len() >= MIN_TOKEN_CHARS && token.iter().all(u8::is_ascii_graphic);
        if !good {
            let cause = format!(
                "write at least {MIN_TOKEN_CHARS} letters, digits and punctuation marks without \
                 spaces, for example from: head -c 24 /dev/urandom | base64"
            );
            return Err(CredentialError { key: TOKEN_KEY, path: path.clone(), cause });
        }
        let mut tokens = self.tokens.write();
        let Some(tokens) = tokens.as_mut() else {
            *tokens = Some(Tokens::new(token));
            return Ok(true);
        };
        let overlap = self.settings.token_overlap;
        let replaced = tokens.replace(token, overlap, now);
        if replaced {
            let overlap_s = overlap.as_secs();
            tracing::info!(
                event = "api_token_replaced",
                file = %path.display(),
                overlap_s,
                "API token replaced"
            );
        }
        Ok(replaced)
    }

    /// Puts a certificate with its key in force, for new handshakes.
    fn put_identity(&self, tls: &Tls, files: &[Vec<u8>]) -> Result<bool, CredentialError> {
        let [certificate, key] = files else { return Ok(false) };
        let identity = Identity::parse(certificate, key).map_err(|error| match error {
            IdentityError::Certificate(cause) => {
                CredentialError { key: CERT_KEY, path: tls.cert.clone(), cause }
            }
            IdentityError::Key(cause) => {
                CredentialError { key: KEY_KEY, path: tls.key.clone(), cause }
            }
        })?;
        let until = identity.validity.map(|validity| config::rfc3339::format(validity.until));
        if self.identity.write().replace(identity).is_some() {
            let valid_until = until.as_deref().unwrap_or("unknown");
            tracing::info!(
                event = "tls_certificate_replaced",
                file = %tls.cert.display(),
                valid_until,
                "TLS certificate replaced"
            );
        }
        Ok(true)
    }

    /// Compares a presented token, and counts requests with a replaced one.
    pub(crate) fn check_token(&self, presented: &[u8], now: Instant) -> Verdict {
        let tokens = self.tokens.read();
        let verdict = tokens.as_ref().map(|tokens| tokens.check(presented, now));
        let verdict = verdict.unwrap_or(Verdict::Unknown);
        match verdict {
            Verdict::Accepted { replaced: true, .. } => {
                self.requests.accepted.fetch_add(1, Relaxed);
            }
            Verdict::Ended => {
                self.requests.rejected.fetch_add(1, Relaxed);
            }
            Verdict::Accepted { .. } | Verdict::Unknown => {}
        }
        verdict
    }

    /// Returns the configuration for the next TLS handshake; `None` without TLS.
    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.identity.read().as_ref().map(|identity| identity.acceptor.clone())
    }

    /// Returns whether connections begin with a TLS handshake.
    pub(crate) fn uses_tls(&self) -> bool {
        self.settings.tls.is_some()
    }

    /// Returns the number of requests with a replaced token: those accepted during the overlap, and
    /// those rejected after it.
    pub fn replaced_token_requests(&self) -> (u64, u64) {
        (self.requests.accepted.load(Relaxed), self.requests.rejected.load(Relaxed))
    }

    /// Returns the state of each credential that was read.
    pub fn status(&self) -> Vec<CredentialStatus> {
        let now = Instant::now();
        let watched = self.watched.lock();
        let of = |key, path: &Path, watch: &Watch| CredentialStatus {
            key,
            path: path.to_owned(),
            error: watch.error.as_ref().map(ToString::to_string),
            warnings: watch.warnings.clone(),
            validity: None,
            overlap_left: None,
            rejected: watch.rejected,
            replaced: watch.replaced,
        };
        let token = self.tokens.read().as_ref().map(|tokens| CredentialStatus {
            overlap_left: tokens.overlap_left(now),
            ..of(TOKEN_KEY, &self.settings.token_file, &watched.token)
        });
        let identity = self.identity.read();
        let identity = identity.as_ref().zip(self.settings.tls.as_ref()).map(|(identity, tls)| {
            let validity = identity.validity;
            CredentialStatus { validity, ..of(CERT_KEY, &tls.cert, &watched.identity) }
        });
        token.into_iter().chain(identity).collect()
    }

    async fn reread(self: &Arc<Credentials>) {
        loop {
            let at_once = tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => false,
                () = self.reload.notified() => true,
            };
            let credentials = Arc::clone(self);
            let poll = move || credentials.poll(Instant::now(), at_once);
            // A panic was already printed; the next read follows.
            let _ = tokio::task::spawn_blocking(poll).await;
        }
    }

    async fn expire(&self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let expired = self.tokens.read().as_ref().map(|tokens| tokens.expire(Instant::now()));
            if expired == Some(true) {
                tracing::info!(
                    event = "api_token_overlap_ended",
                    "overlap of a replaced API token ended"
                );
            }
        }
    }
}

/// Follows the files and the ends of overlaps. Never returns. A disk that hangs delays neither
/// requests nor the end of an overlap.
pub async fn watch(credentials: Arc<Credentials>) {
    tokio::join!(credentials.reread(), credentials.expire());
}

/// Reads files, each with its configuration key.
fn read(files: &[(&'static str, &Path)]) -> Content {
    let each = files.iter().map(|(key, path)| {
        let kind = if *key == TOKEN_KEY { SecretKind::Token } else { SecretKind::Pem };
        secret_file::read(path, kind).map_err(|error| {
            let cause = match error.cause {
                Cause::System(text) => format!("{text}; write the file, readable by slowpath"),
                cause => cause.to_string(),
            };
            CredentialError { key, path: error.path, cause }
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests;
