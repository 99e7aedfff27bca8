//! Credentials of the API over TCP and of the metrics listener: the bearer tokens, and a TLS
//! certificate with its key for each of the two.
//!
//! All files are read before the first connection is accepted, and then once a second. Contents are
//! compared, because they show every way of replacement: rename, a changed link (`..data` of
//! Kubernetes), and an edit in place. The first content is used at once. Changed content is used
//! when two consecutive reads have returned it, so that a partly written file is not used; a
//! requested reload uses it at once. If it cannot be used, the previous credential stays in force.
//!
//! Tokens of one of the two token files suffice to open a listener. The error of the other file is
//! shown in the status.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use config::checked::{Config, Tls, Tokens as TokenFiles};
use config::secret_file::{self, Cause, SecretKind};
use config::secrets::exposure;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::certificate::{Identity, IdentityError, Validity};
use crate::named_tokens::{self, NamedTokens, TokenStatus};
use crate::principal::Listener;
use crate::tokens::{EndedBy, Tokens, Verdict};

/// Interval between two reads of the files, and between two checks for tokens that have ended.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum length of a token in characters.
const MIN_TOKEN_CHARS: usize = 16;

const TOKEN_KEY: &str = "api.token_file";
const NAMED_KEY: &str = "api.tokens_file";

/// Configuration keys of a listener's certificate file and of its private key file.
type TlsKeys = [&'static str; 2];
const API_TLS: TlsKeys = ["api.tls_cert", "api.tls_key"];
const METRICS_TLS: TlsKeys = ["metrics.tls_cert", "metrics.tls_key"];

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
    /// Configuration key: `api.token_file`, `api.tokens_file`, or `api.tls_cert` or
    /// `metrics.tls_cert` for a certificate with its key.
    pub key: &'static str,
    /// Path of the file; for a certificate with its key, that of the certificate.
    pub path: PathBuf,
    /// Why the present content of the file is not in force; `None` if it is.
    pub error: Option<String>,
    /// Problems that should be fixed although the credential is in force: an expired certificate, a
    /// file that other users may read.
    pub warnings: Vec<String>,
    /// Validity of the certificate; `None` for tokens, or if it cannot be parsed.
    pub validity: Option<Validity>,
    /// Time for which a replaced token is still accepted; `None` if there is none.
    pub overlap_left: Option<Duration>,
    /// Number of times that changed content was rejected while the credential was in force.
    pub rejected: u64,
    /// Number of times that changed content was put in force.
    pub replaced: u64,
}

/// Counters of requests with a replaced token: accepted during its overlap, rejected after it.
#[derive(Default)]
struct ReplacedTokenRequests {
    accepted: AtomicU64,
    rejected: AtomicU64,
}

/// Which files are read, and when their content is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Poll {
    /// Those of credentials that were never in force; at once.
    Missing,
    /// All; at once if the credential was never in force, otherwise once two reads returned it.
    Regular,
    /// All; at once.
    Reload,
}

/// Settings of the credentials: their files, and whether the metrics listener requires a token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Files with tokens; `None` if no listener requires a token.
    pub tokens: Option<TokenFiles>,
    /// Whether the metrics listener requires a token.
    pub metrics_token: bool,
    /// Certificate of the API.
    pub api_tls: Option<Tls>,
    /// Certificate of the metrics listener.
    pub metrics_tls: Option<Tls>,
}

impl Settings {
    /// Returns the settings of a configuration; `None` if no listener needs credentials.
    pub fn of(config: &Config) -> Option<Settings> {
        let needs_tokens = config.api.is_some() || config.metrics.token;
        let settings = Settings {
            tokens: needs_tokens.then(|| config.tokens.clone()),
            metrics_token: config.metrics.token,
            api_tls: config.api.as_ref().and_then(|api| api.tls.clone()),
            metrics_tls: config.metrics.tls.clone(),
        };
        (settings != Settings::default()).then_some(settings)
    }
}

/// The certificate of a listener with its private key: the files, and what is in force.
struct ListenerIdentity {
    keys: TlsKeys,
    files: Tls,
    /// `None` until usable files were read.
    identity: RwLock<Option<Identity>>,
    watch: Mutex<Watch>,
}

impl ListenerIdentity {
    fn new(keys: TlsKeys, files: Tls) -> ListenerIdentity {
        let (identity, watch) = (RwLock::default(), Mutex::default());
        ListenerIdentity { keys, files, identity, watch }
    }

    /// Reads certificate and key, as [`Credentials::poll`] does with all files.
    fn poll(&self, poll: Poll) {
        if !self.watch.lock().is_read_by(poll) {
            return;
        }
        let ([cert_setting, key_setting], Tls { cert, key }) = (self.keys, &self.files);
        let files = [(cert_setting, cert.as_path()), (key_setting, key.as_path())];
        let (content, warning) = (read(&files), exposure(key_setting, key));
        let mut watch = self.watch.lock();
        if let Some(content) = watch.due(content, poll) {
            watch.record(content.and_then(|files| self.put(&files)));
        }
        let validity = self.identity.read().as_ref().and_then(|identity| identity.validity);
        let validity = validity.and_then(|validity| validity.warning(SystemTime::now()));
        let validity = validity.map(|text| format!("{cert_setting} = {cert:?}: {text}"));
        watch.warn(warning.into_iter().chain(validity).collect());
    }

    /// Puts a certificate with its private key in force, for new handshakes.
    fn put(&self, files: &[Vec<u8>]) -> Result<bool, CredentialError> {
        let ([certificate, private], [cert_setting, key_setting]) = (files, self.keys) else {
            return Ok(false);
        };
        let Tls { cert, key } = &self.files;
        let identity =
            Identity::parse((certificate, private), cert_setting).map_err(|error| match error {
                IdentityError::Certificate(cause) => {
                    CredentialError { key: cert_setting, path: cert.clone(), cause }
                }
                IdentityError::Key(cause) => {
                    CredentialError { key: key_setting, path: key.clone(), cause }
                }
            })?;
        let until = identity.validity.map(|validity| config::rfc3339::format(validity.until));
        if self.identity.write().replace(identity).is_some() {
            let valid_until = until.as_deref().unwrap_or("unknown");
            tracing::info!(
                event = "tls_certificate_replaced",
                file = %cert.display(),
                valid_until,
                "TLS certificate replaced"
            );
        }
        Ok(true)
    }
}

/// The credentials of the API and of the metrics listener, shared by all of their addresses.
pub struct Credentials {
    settings: Settings,
    /// `None` until a token was read.
    tokens: RwLock<Option<Tokens>>,
    /// `None` until the file was read.
    named: RwLock<Option<NamedTokens>>,
    api_identity: Option<ListenerIdentity>,
    metrics_identity: Option<ListenerIdentity>,
    watched: Mutex<Watched>,
    /// Held while files are read and processed, so that an older read never follows a newer one.
    polling: Mutex<()>,
    reload: Notify,
    requests: ReplacedTokenRequests,
}

/// Change detection of the two token files.
#[derive(Default)]
struct Watched {
    token: Watch,
    named: Watch,
}

/// Content of the files of one credential, or why one of them cannot be read.
type Content = Result<Vec<Vec<u8>>, CredentialError>;

/// Detects changed content of the files of one credential.
#[derive(Default)]
struct Watch {
    /// Content that was processed last: put in force or rejected.
    processed: Option<Content>,
    /// Content that is in force; `None` until the credential was read.
    accepted: Option<Content>,
    /// Changed content that one read has returned. It is processed if the next read returns it too.
    changed: Option<Content>,
    error: Option<CredentialError>,
    warnings: Vec<String>,
    rejected: u64,
    replaced: u64,
}

impl Watch {
    /// Returns whether a poll reads the files.
    fn is_read_by(&self, poll: Poll) -> bool {
        poll != Poll::Missing || self.accepted.is_none()
    }

    /// Returns the content if it has to be processed: it is not the content that was processed
    /// last, and is used at once or was also read the previous time. Content that is still in force
    /// only clears the error.
    fn due(&mut self, read: Content, poll: Poll) -> Option<Content> {
        if self.processed.as_ref() == Some(&read) {
            self.changed = None;
            return None;
        }
        let at_once = poll == Poll::Reload || self.accepted.is_none();
        if !at_once && self.changed.as_ref() != Some(&read) {
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

    /// Returns the status of the credential in the file `path` of the configuration key `key`.
    fn status(&self, key: &'static str, path: &Path) -> CredentialStatus {
        CredentialStatus {
            key,
            path: path.to_owned(),
            error: self.error.as_ref().map(ToString::to_string),
            warnings: self.warnings.clone(),
            validity: None,
            overlap_left: None,
            rejected: self.rejected,
            replaced: self.replaced,
        }
    }

    /// Replaces the warnings, and logs those that are new.
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
        let identity =
            |keys, tls: &Option<Tls>| tls.clone().map(|files| ListenerIdentity::new(keys, files));
        Credentials {
            tokens: RwLock::default(),
            named: RwLock::default(),
            api_identity: identity(API_TLS, &settings.api_tls),
            metrics_identity: identity(METRICS_TLS, &settings.metrics_tls),
            watched: Mutex::default(),
            polling: Mutex::default(),
            reload: Notify::new(),
            requests: ReplacedTokenRequests::default(),
            settings,
        }
    }

    /// Returns whether a listener requires a token.
    pub(crate) fn requires_token(&self, listener: Listener) -> bool {
        match listener {
            Listener::Api => true,
            Listener::Metrics => self.settings.metrics_token,
            Listener::Socket => false,
        }
    }

    fn identity(&self, listener: Listener) -> Option<&ListenerIdentity> {
        match listener {
            Listener::Api => self.api_identity.as_ref(),
            Listener::Metrics => self.metrics_identity.as_ref(),
            Listener::Socket => None,
        }
    }

    /// Reads the files of credentials that were never in force, unless the listener has all that it
    /// needs.
    ///
    /// # Errors
    /// The listener's certificate or the tokens cannot be used, and were not in force before; or
    /// there is no token at all.
    pub(crate) fn load(&self, listener: Listener) -> Result<(), CredentialError> {
        if self.is_loaded(listener) {
            return Ok(());
        }
        self.poll(Instant::now(), Poll::Missing);
        if self.is_loaded(listener) {
            return Ok(());
        }
        let identity = self.identity(listener).and_then(|one| one.watch.lock().error.clone());
        let of_tokens = || {
            let watched = self.watched.lock();
            let error = watched.token.error.as_ref().or(watched.named.error.as_ref()).cloned();
            error.filter(|_| self.requires_token(listener))
        };
        let none = || {
            let path = self.settings.tokens.as_ref().and_then(|files| files.tokens_file.clone());
            let cause = "there is no token yet; type `weir token create NAME --role ROLE`";
            let path = path.unwrap_or_default();
            CredentialError { key: NAMED_KEY, path, cause: cause.to_owned() }
        };
        Err(identity.or_else(of_tokens).unwrap_or_else(none))
    }

    /// Returns whether the listener has its certificate, and a token if it requires one.
    fn is_loaded(&self, listener: Listener) -> bool {
        if self.identity(listener).is_some_and(|one| one.identity.read().is_none()) {
            return false;
        }
        !self.requires_token(listener)
            || self.tokens.read().is_some()
            || self.named.read().as_ref().is_some_and(|named| !named.is_empty())
    }

    /// Requests that the files are read now, and that changed content is used at once.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Reads files, and puts changed content in force.
    fn poll(&self, now: Instant, poll: Poll) {
        let _polling = self.polling.lock();
        if let Some(files) = &self.settings.tokens {
            self.poll_tokens(files, now, poll);
        }
        for one in self.api_identity.iter().chain(&self.metrics_identity) {
            one.poll(poll);
        }
    }

    fn poll_tokens(&self, files: &TokenFiles, now: Instant, poll: Poll) {
        let (reads_token, reads_named) = {
            let watched = self.watched.lock();
            (watched.token.is_read_by(poll), watched.named.is_read_by(poll))
        };
        // A disk may block each read; readers of the status must not wait for it.
        if let Some(path) = files.token_file.as_ref().filter(|_| reads_token) {
            let (content, warning) = (read(&[(TOKEN_KEY, path)]), exposure(TOKEN_KEY, path));
            let mut watched = self.watched.lock();
            if let Some(content) = watched.token.due(content, poll) {
                let put = |read: Vec<Vec<u8>>| self.put_token((path, files), read.first(), now);
                watched.token.record(content.and_then(put));
            }
            watched.token.warn(warning.into_iter().collect());
        }
        if let Some(path) = files.tokens_file.as_ref().filter(|_| reads_named) {
            let content = read_named(path, files.may_be_missing());
            let warning = exposure(NAMED_KEY, path);
            let mut watched = self.watched.lock();
            if let Some(content) = watched.named.due(content, poll) {
                let put = |read: Vec<Vec<u8>>| self.put_named(path, read.first());
                watched.named.record(content.and_then(put));
            }
            watched.named.warn(warning.into_iter().collect());
        }
    }

    /// Puts the token of a file in force. Returns whether it differs from the one before; true for
    /// the first one.
    fn put_token(
        &self,
        (path, files): (&Path, &TokenFiles),
        file: Option<&Vec<u8>>,
        now: Instant,
    ) -> Result<bool, CredentialError> {
        let token = file.map(|file| file.trim_ascii()).unwrap_or_default();
        let good = token.len() >= MIN_TOKEN_CHARS && token.iter().all(u8::is_ascii_graphic);
        if !good {
            let cause = format!(
                "write at least {MIN_TOKEN_CHARS} letters, digits and punctuation marks without \
                 spaces, for example from: head -c 24 /dev/urandom | base64"
            );
            return Err(CredentialError { key: TOKEN_KEY, path: path.to_owned(), cause });
        }
        let mut tokens = self.tokens.write();
        let Some(tokens) = tokens.as_mut() else {
            *tokens = Some(Tokens::new(token));
            return Ok(true);
        };
        let overlap = files.token_overlap;
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

    /// Puts the named tokens of a file in force, and ends those that are no longer in it.
    fn put_named(&self, path: &Path, file: Option<&Vec<u8>>) -> Result<bool, CredentialError> {
        let octets = file.map(Vec::as_slice).unwrap_or_default();
        let lines = named_tokens::parse(octets).map_err(|cause| {
            let path = path.to_owned();
            CredentialError { key: NAMED_KEY, path, cause }
        })?;
        let count = lines.len();
        let mut named = self.named.write();
        let is_first = named.is_none();
        let ended = named.get_or_insert_default().replace(lines);
        if !is_first {
            let ended = ended.join(", ");
            tracing::info!(
                event = "api_tokens_replaced",
                file = %path.display(),
                count,
                %ended,
                "API tokens replaced"
            );
        }
        Ok(true)
    }

    /// Compares a presented token with all known ones, and counts requests with a replaced one.
    pub(crate) fn check_token(&self, presented: &[u8], now: Instant) -> Verdict {
        let tokens = self.tokens.read();
        let verdict = tokens.as_ref().map(|tokens| tokens.check(presented, now));
        let named = self.named.read();
        let named = named.as_ref().map(|named| named.check(presented, SystemTime::now()));
        // A named token may have been that of `api.token_file` before.
        let verdict = match (verdict, named) {
            (Some(file), Some(named)) if !file.is_accepted() && named.is_accepted() => named,
            (None | Some(Verdict::Unknown), Some(named)) => named,
            (file, _) => file.unwrap_or(Verdict::Unknown),
        };
        match verdict {
            Verdict::Accepted { replaced: true, .. } => {
                self.requests.accepted.fetch_add(1, Relaxed);
            }
            Verdict::Ended(EndedBy::Replaced) => {
                self.requests.rejected.fetch_add(1, Relaxed);
            }
            Verdict::Accepted { .. } | Verdict::Ended(_) | Verdict::Unknown => {}
        }
        verdict
    }

    /// Returns the configuration for the next TLS handshake; `None` without TLS.
    pub(crate) fn acceptor(&self, listener: Listener) -> Option<TlsAcceptor> {
        let identity = self.identity(listener)?.identity.read();
        identity.as_ref().map(|identity| identity.acceptor.clone())
    }

    /// Returns whether connections begin with a TLS handshake.
    pub(crate) fn uses_tls(&self, listener: Listener) -> bool {
        self.identity(listener).is_some()
    }

    /// Returns whether the listener's certificate in force is valid for a DNS name.
    pub(crate) fn is_named(&self, listener: Listener, name: &str) -> bool {
        let identity = self.identity(listener).map(|one| one.identity.read());
        identity.is_some_and(|one| one.as_ref().is_some_and(|identity| identity.is_named(name)))
    }

    /// Returns the named tokens in force.
    pub fn named_tokens(&self) -> Vec<TokenStatus> {
        self.named.read().as_ref().map(NamedTokens::status).unwrap_or_default()
    }

    /// Returns the number of requests with a replaced token: those accepted during the overlap, and
    /// those rejected after it.
    pub fn replaced_token_requests(&self) -> (u64, u64) {
        (self.requests.accepted.load(Relaxed), self.requests.rejected.load(Relaxed))
    }

    /// Returns the state of each credential in force, and of token files that cannot be used.
    pub fn status(&self) -> Vec<CredentialStatus> {
        let now = Instant::now();
        let watched = self.watched.lock();
        let files = self.settings.tokens.as_ref();
        let token_file = files.and_then(|files| files.token_file.as_deref());
        let tokens = self.tokens.read();
        let token = token_file.filter(|_| tokens.is_some() || watched.token.error.is_some());
        let token = token.map(|path| {
            let overlap_left = tokens.as_ref().and_then(|tokens| tokens.overlap_left(now));
            CredentialStatus { overlap_left, ..watched.token.status(TOKEN_KEY, path) }
        });
        let tokens_file = files.and_then(|files| files.tokens_file.as_deref());
        // The default file is not shown while it does not exist.
        let may_be_missing = files.is_some_and(TokenFiles::may_be_missing);
        let is_shown = |named: &NamedTokens| !named.is_empty() || !may_be_missing;
        let is_shown =
            self.named.read().as_ref().is_some_and(is_shown) || watched.named.error.is_some();
        let named = tokens_file.filter(|_| is_shown);
        let named = named.map(|path| watched.named.status(NAMED_KEY, path));
        let identities = self.api_identity.iter().chain(&self.metrics_identity);
        let identities = identities.filter_map(|one| {
            let validity = one.identity.read().as_ref()?.validity;
            let status = one.watch.lock().status(one.keys[0], &one.files.cert);
            Some(CredentialStatus { validity, ..status })
        });
        token.into_iter().chain(named).chain(identities).collect()
    }

    async fn reread(self: &Arc<Credentials>) {
        loop {
            let poll = tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => Poll::Regular,
                () = self.reload.notified() => Poll::Reload,
            };
            let credentials = Arc::clone(self);
            let poll = move || credentials.poll(Instant::now(), poll);
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
            let named = self.named.read();
            let expired = named.as_ref().map(|named| named.expire(SystemTime::now()));
            for token in expired.unwrap_or_default() {
                tracing::info!(event = "api_token_expired", %token, "API token expired");
            }
        }
    }
}

/// Follows the files, and ends tokens whose overlap or lifetime is over. Never returns. A disk that
/// hangs delays neither requests nor the end of a token.
pub async fn watch(credentials: Arc<Credentials>) {
    tokio::join!(credentials.reread(), credentials.expire());
}

/// Reads the file of named tokens. If it does not exist and may be missing, it has no tokens.
fn read_named(path: &Path, may_be_missing: bool) -> Content {
    let is_missing = || {
        std::fs::symlink_metadata(path)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    if may_be_missing && is_missing() {
        return Ok(vec![Vec::new()]);
    }
    read(&[(NAMED_KEY, path)])
}

/// Reads files, each with its configuration key.
fn read(files: &[(&'static str, &Path)]) -> Content {
    let each = files.iter().map(|(key, path)| {
        let kind = match *key {
            TOKEN_KEY => SecretKind::Token,
            NAMED_KEY => SecretKind::Tokens,
            _ => SecretKind::Pem,
        };
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
