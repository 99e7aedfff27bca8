//! Tests of how tokens and certificates follow their files.

use std::os::unix::fs::{PermissionsExt, symlink};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::*;
use crate::named_tokens::{TokenLine, hash};
use crate::role::Role;

const OVERLAP: Duration = Duration::from_secs(300);
const FIRST: &str = "first-0123456789";
const SECOND: &str = "second-0123456789";

/// A folder with the files of a token and of a certificate with its key.
struct Files {
    folder: PathBuf,
    credentials: Credentials,
}

impl Files {
    /// Writes the first token and a certificate, and loads them.
    fn new(name: &str) -> Files {
        let folder =
            std::env::temp_dir().join(format!("weir-credentials-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        let at = |name: &str| folder.join(name);
        let tokens = TokenFiles {
            token_file: Some(at("token")),
            token_overlap: OVERLAP,
            tokens_file: Some(at("tokens")),
        };
        let settings = Settings {
            tokens: Some(tokens),
            api_tls: Some(Tls { cert: at("cert.pem"), key: at("key.pem") }),
            ..Settings::default()
        };
        let files = Files { credentials: Credentials::new(settings), folder };
        files.write("token", FIRST);
        files.write("tokens", "");
        files.write_pair(2090);
        files.credentials.load(Listener::Api).unwrap();
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).unwrap();
    }

    fn write_pair(&self, expiry_year: i32) {
        let (certificate, key) = pair(expiry_year);
        self.write("cert.pem", &certificate);
        self.write("key.pem", &key);
    }

    /// Polls twice: changed content is used when two reads have returned it.
    fn settle(&self) {
        (0..2).for_each(|_| self.credentials.poll(Instant::now(), Poll::Regular));
    }

    fn accepts(&self, token: &str) -> bool {
        let verdict = self.credentials.check_token(token.as_bytes(), Instant::now());
        matches!(verdict, Verdict::Accepted { .. })
    }

    fn status(&self, key: &str) -> CredentialStatus {
        self.credentials.status().into_iter().find(|status| status.key == key).unwrap()
    }

    /// Returns the year in which the certificate in force expires.
    fn expiry_year(&self) -> String {
        let until = self.status(API_TLS[0]).validity.unwrap().until;
        config::rfc3339::format(until)[..4].to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns a line of the file of named tokens, with the role `read`. The token of `api.token_file`
/// has the role `admin`.
fn line(name: &str, token: &str) -> String {
    let hash = hash(token.as_bytes());
    TokenLine { name: name.to_owned(), role: Role::Read, hash, expires: None }.text() + "\n"
}

/// Returns a certificate that expires at the start of a year, and its key.
fn pair(expiry_year: i32) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(expiry_year, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn token_follows_its_file_however_it_is_replaced() {
    let files = Files::new("token");
    let at = |name: &str| files.folder.join(name);
    let replacements: [(&str, &dyn Fn()); 4] = [
        ("token-in-place-012345", &|| files.write("token", "token-in-place-012345\n")),
        ("token-renamed-0123456", &|| {
            files.write("new", "token-renamed-0123456");
            std::fs::rename(at("new"), at("token")).unwrap();
        }),
        ("token-recreated-01234", &|| {
            std::fs::remove_file(at("token")).unwrap();
            files.write("token", "token-recreated-01234");
        }),
        // The layout of a Kubernetes secret mount: token -> ..data/token, ..data -> ..1.
        ("token-mounted-0123456", &|| {
            std::fs::create_dir(at("..1")).unwrap();
            files.write("..1/token", "token-mounted-0123456");
            symlink("..1", at("..data")).unwrap();
            symlink("..data/token", at("link")).unwrap();
            std::fs::rename(at("link"), at("token")).unwrap();
        }),
    ];
    let mut before = FIRST;
    for (number, (token, replace)) in replacements.iter().enumerate() {
        replace();
        files.settle();
        assert!(files.accepts(token), "{token}");
        assert!(files.accepts(before), "{before} during the overlap");
        let status = files.status(TOKEN_KEY);
        assert_eq!((status.replaced, status.error), (number as u64 + 1, None));
        before = token;
    }
    // Kubernetes then changes the link `..data` alone.
    std::fs::create_dir(at("..2")).unwrap();
    files.write("..2/token", SECOND);
    symlink("..2", at("..new")).unwrap();
    std::fs::rename(at("..new"), at("..data")).unwrap();
    files.settle();
    assert!(files.accepts(SECOND) && files.accepts(before));
    let left = files.status(TOKEN_KEY).overlap_left.unwrap();
    assert!(left <= OVERLAP);
    let (accepted, rejected) = files.credentials.replaced_token_requests();
    assert_eq!((accepted, rejected), (5, 0));
    let end = Instant::now() + OVERLAP;
    let verdict = files.credentials.check_token(FIRST.as_bytes(), end);
    assert!(matches!(verdict, Verdict::Ended(_)));
    assert_eq!(files.credentials.replaced_token_requests(), (5, 1));
}

#[test]
fn change_is_used_once_it_was_read_twice_or_at_once_on_reload() {
    let files = Files::new("settle");
    let poll = |poll| files.credentials.poll(Instant::now(), poll);
    files.write("token", "partly-written-012345");
    poll(Poll::Regular);
    files.write("token", SECOND);
    poll(Poll::Regular);
    assert!(!files.accepts("partly-written-012345") && !files.accepts(SECOND));
    poll(Poll::Regular);
    assert!(!files.accepts("partly-written-012345") && files.accepts(SECOND));
    files.write("token", FIRST);
    poll(Poll::Reload);
    assert!(files.accepts(FIRST));
    assert_eq!(files.status(TOKEN_KEY).replaced, 2);
}

#[test]
fn unusable_token_file_leaves_the_token_in_force() {
    let files = Files::new("bad-token");
    let path = files.folder.join("token");
    let unusable: [(&str, &dyn Fn()); 4] = [
        ("at least 16", &|| files.write("token", "short")),
        ("at least 16", &|| files.write("token", "two words 0123456789")),
        ("4096", &|| files.write("token", &"x".repeat(5000))),
        ("No such file", &|| std::fs::remove_file(&path).unwrap()),
    ];
    for (number, (cause, replace)) in unusable.iter().enumerate() {
        replace();
        files.settle();
        assert!(files.accepts(FIRST), "{cause}");
        let status = files.status(TOKEN_KEY);
        assert_eq!(status.rejected, number as u64 + 1, "{cause}");
        let error = status.error.unwrap();
        assert!(error.starts_with("api.token_file = ") && error.contains(cause), "{error}");
        assert!(!error.contains("short") && !error.contains("words 01"), "{error}");
        files.settle();
        assert_eq!(files.status(TOKEN_KEY).rejected, number as u64 + 1, "counted once");
    }
    // The same content again is in force, and is no replacement.
    files.write("token", FIRST);
    files.settle();
    let status = files.status(TOKEN_KEY);
    assert_eq!((status.error, status.replaced, status.rejected), (None, 0, 4));
    files.write("token", SECOND);
    files.settle();
    assert!(files.accepts(SECOND));
}

#[test]
fn certificate_follows_its_files_and_a_wrong_pair_is_rejected() {
    let files = Files::new("certificate");
    assert_eq!(files.expiry_year(), "2090");
    files.write_pair(2091);
    files.settle();
    assert_eq!(files.expiry_year(), "2091");
    assert!(files.credentials.acceptor(Listener::Api).is_some());
    // Only the certificate's file changes: the key in the other file is that of the previous one.
    let (certificate, key) = pair(2092);
    files.write("cert.pem", &certificate);
    files.settle();
    let status = files.status(API_TLS[0]);
    let error = status.error.unwrap();
    assert!(
        error.starts_with("api.tls_key = ") && error.contains("not the private key"),
        "{error}"
    );
    assert_eq!((files.expiry_year().as_str(), status.replaced, status.rejected), ("2091", 1, 1));
    files.write("key.pem", "-----BEGIN PRIVATE KEY-----\n");
    files.settle();
    assert_eq!((files.expiry_year().as_str(), files.status(API_TLS[0]).rejected), ("2091", 2));
    files.write("key.pem", &key);
    files.settle();
    let status = files.status(API_TLS[0]);
    assert_eq!((files.expiry_year().as_str(), status.error, status.replaced), ("2092", None, 2));
    std::fs::remove_file(files.folder.join("cert.pem")).unwrap();
    files.settle();
    let error = files.status(API_TLS[0]).error.unwrap();
    assert!(error.starts_with("api.tls_cert = ") && error.contains("No such file"), "{error}");
    assert_eq!(files.expiry_year(), "2092");
}

#[test]
fn expired_certificate_and_exposed_files_are_warnings() {
    let files = Files::new("warnings");
    let warnings = |key| files.status(key).warnings;
    assert!(warnings(TOKEN_KEY).is_empty() && warnings(API_TLS[0]).is_empty());
    files.write_pair(2020);
    files.settle();
    assert_eq!(
        (files.expiry_year().as_str(), files.status(API_TLS[0]).error),
        ("2020", None),
        "in force"
    );
    assert!(
        warnings(API_TLS[0])[0].contains("expired at 2020-01-01"),
        "{:?}",
        warnings(API_TLS[0])
    );
    let open = |name: &str, mode| {
        let path = files.folder.join(name);
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open("", 0o755);
    open("token", 0o644);
    open("key.pem", 0o644);
    files.settle();
    assert!(warnings(TOKEN_KEY)[0].contains("chmod"), "{:?}", warnings(TOKEN_KEY));
    assert!(warnings(API_TLS[0])[0].contains("api.tls_key"), "{:?}", warnings(API_TLS[0]));
    open("token", 0o600);
    open("key.pem", 0o600);
    files.write_pair(2090);
    files.settle();
    assert!(warnings(TOKEN_KEY).is_empty() && warnings(API_TLS[0]).is_empty());
}

#[test]
fn listener_is_not_opened_before_its_certificate_and_key_are_usable() {
    let mut files = Files::new("load");
    files.write("key.pem", "no key");
    files.credentials = Credentials::new(files.credentials.settings.clone());
    for _ in 0..2 {
        let error = files.credentials.load(Listener::Api).unwrap_err();
        assert!(error.to_string().contains("api.tls_key"), "{error}");
    }
    assert!(files.credentials.acceptor(Listener::Api).is_none());
    files.write_pair(2090);
    files.credentials.load(Listener::Api).unwrap();
    let status = files.status(API_TLS[0]);
    assert_eq!((status.error, status.replaced, status.rejected), (None, 0, 0));
}

#[test]
fn retries_to_open_one_listener_do_not_change_tokens_in_force() {
    let mut files = Files::new("retry");
    let missing = Tls { cert: files.folder.join("absent"), key: files.folder.join("absent") };
    let settings = Settings { metrics_tls: Some(missing), ..files.credentials.settings.clone() };
    files.credentials = Credentials::new(settings);
    files.write("tokens", &line("ci", SECOND));
    files.credentials.load(Listener::Api).unwrap();
    assert!(files.accepts(SECOND));
    // The file is truncated, as before its content is written again.
    files.write("tokens", "");
    for _ in 0..3 {
        let error = files.credentials.load(Listener::Metrics).unwrap_err();
        assert!(error.to_string().starts_with("metrics.tls_cert = "), "{error}");
        assert!(files.accepts(SECOND));
    }
    files.settle();
    assert!(!files.accepts(SECOND), "a file that stays empty is used");
}

#[test]
fn tokens_of_one_file_are_enough_and_the_error_of_the_other_is_shown() {
    let mut files = Files::new("one-file");
    let settings = files.credentials.settings.clone();
    let error = |files: &Files, key| files.status(key).error.unwrap();
    files.write("tokens", "ci admin\n");
    files.credentials = Credentials::new(settings.clone());
    files.credentials.load(Listener::Api).unwrap();
    assert!(files.accepts(FIRST));
    assert!(error(&files, NAMED_KEY).contains("line 1"), "{}", error(&files, NAMED_KEY));

    files.write("tokens", &line("ci", SECOND));
    files.write("token", "short");
    files.credentials = Credentials::new(settings.clone());
    files.credentials.load(Listener::Api).unwrap();
    assert!(files.accepts(SECOND) && !files.accepts("short"));
    assert!(error(&files, TOKEN_KEY).contains("at least 16"), "{}", error(&files, TOKEN_KEY));

    files.write("tokens", "ci admin\n");
    files.credentials = Credentials::new(settings);
    let error = files.credentials.load(Listener::Api).unwrap_err();
    assert!(error.to_string().starts_with("api.token_file = "), "{error}");
}

#[test]
fn load_returns_the_error_of_a_credential_that_the_listener_needs() {
    let mut files = Files::new("order");
    let missing = Tls { cert: files.folder.join("absent"), key: files.folder.join("absent") };
    let settings = Settings {
        api_tls: Some(missing.clone()),
        metrics_tls: Some(missing),
        ..files.credentials.settings.clone()
    };
    files.write("token", "short");
    files.credentials = Credentials::new(settings);
    let error = |listener| files.credentials.load(listener).unwrap_err().to_string();
    assert!(error(Listener::Api).starts_with("api.tls_cert = "));
    assert!(error(Listener::Metrics).starts_with("metrics.tls_cert = "));
    // Without TLS, the API needs tokens only, and there is none that can be used.
    let settings = Settings { api_tls: None, ..files.credentials.settings.clone() };
    files.credentials = Credentials::new(settings);
    let error = |listener| files.credentials.load(listener).unwrap_err().to_string();
    assert!(error(Listener::Api).starts_with("api.token_file = "));
    assert!(error(Listener::Metrics).starts_with("metrics.tls_cert = "));
}

#[test]
fn named_token_that_was_the_token_of_the_file_before_is_accepted() {
    let files = Files::new("moved");
    files.write("token", SECOND);
    files.write("tokens", &line("ci", FIRST));
    files.settle();
    let verdict = |at| files.credentials.check_token(FIRST.as_bytes(), at);
    let role = |verdict: Verdict| match verdict {
        Verdict::Accepted { role, .. } => Some(role),
        Verdict::Ended(_) | Verdict::Unknown => None,
    };
    assert_eq!(role(verdict(Instant::now())), Some(Role::Admin), "during the overlap");
    assert_eq!(role(verdict(Instant::now() + OVERLAP)), Some(Role::Read));
    assert_eq!(files.credentials.replaced_token_requests(), (1, 0));
}

#[test]
fn tokens_of_a_default_file_end_when_it_is_removed() {
    let files = Files::new("removed");
    files.write("tokens", &line("ci", SECOND));
    files.settle();
    let verdict = files.credentials.check_token(SECOND.as_bytes(), Instant::now());
    let Verdict::Accepted { ended, .. } = verdict else { panic!("the token is in force") };
    let path = files.folder.join("tokens");
    std::fs::remove_file(&path).unwrap();
    assert!(read_named(&path, false).is_err(), "any other file may not be missing");
    let content = read_named(&path, true).unwrap();
    files.credentials.put_named(&path, content.first()).unwrap();
    assert!(*ended.borrow() && !files.accepts(SECOND));
}
