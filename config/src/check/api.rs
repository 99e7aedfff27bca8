//! Validation of the `[api]` section, and of tokens and TLS, which the metrics listener uses too.
//! An API over TCP requires a token, and also TLS unless it listens on loopback only.

use std::net::SocketAddr;
use std::time::Duration;

use super::validator::{Validator, list_key, optional_path};
use crate::checked::{Api, Tls, Tokens};
use crate::file;

pub(super) fn check(validator: &mut Validator, file: file::Api) -> (Option<Api>, Tokens) {
    let mut keyed = Vec::new();
    for (i, text) in file.listen.iter().enumerate() {
        let key = list_key("api", "listen", i, &file.listen);
        keyed.extend(validator.socket(&key, text).map(|socket| (key, socket)));
    }
    validator.unique(&keyed, "address and port");
    let tls = check_tls(validator, "api", (file.tls_cert, file.tls_key));
    let tokens = Tokens {
        token_file: optional_path(validator, "api.token_file", file.token_file),
        token_overlap: Duration::from_secs(file.token_overlap_s.into()),
        tokens_file: optional_path(validator, "api.tokens_file", file.tokens_file),
    };
    let hosts = check_hosts(validator, &file.hosts);
    if file.listen.is_empty() {
        return (None, tokens);
    }
    require_tokens(validator, &tokens, "api.listen has full access");
    require_tls(validator, "api", (&keyed, tls.as_ref()));
    let listen = keyed.into_iter().map(|(_, socket)| socket).collect();
    (Some(Api { listen, tls, hosts }), tokens)
}

/// Validates the host names of the page, and returns them in lower case.
fn check_hosts(validator: &mut Validator, hosts: &[String]) -> Vec<String> {
    let is_label = |label: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(good)
    };
    for (i, host) in hosts.iter().enumerate() {
        let key = list_key("api", "hosts", i, hosts);
        if host.len() > 253 || !host.split('.').all(is_label) {
            let remedy = "write a name without scheme, port and wildcard: \"weir.example.com\"";
            validator.reject(&key, "not a host name", remedy);
        }
    }
    hosts.iter().map(|host| host.to_ascii_lowercase()).collect()
}

/// Rejects a configuration without any file of tokens. `access` ends the error text: it says what a
/// client without a token could do.
pub(super) fn require_tokens(validator: &mut Validator, tokens: &Tokens, access: &str) {
    if tokens.token_file.is_none() && tokens.tokens_file.is_none() {
        let fault = format!("without a token, any client that reaches {access}");
        let remedy = "set api.tokens_file, and create a token with `weir token create`; or write a \
                      token to a file that only root can read, and set api.token_file to its path";
        validator.reject("api.token_file", &fault, remedy);
    }
}

/// Rejects addresses of `section` on which tokens would be sent without TLS.
pub(super) fn require_tls(
    validator: &mut Validator,
    section: &str,
    (keyed, tls): (&[(String, SocketAddr)], Option<&Tls>),
) {
    for (key, socket) in keyed.iter().filter(|(_, socket)| !socket.ip().is_loopback()) {
        if tls.is_none() {
            let fault =
                format!("{socket} is not loopback: without TLS the token is sent in cleartext");
            let remedy =
                format!("set {section}.tls_cert and {section}.tls_key, or listen on 127.0.0.1");
            validator.reject(key, &fault, &remedy);
        }
    }
}

/// Validates the paths of certificate and key of `section`, which require each other.
pub(super) fn check_tls(
    validator: &mut Validator,
    section: &str,
    (cert, key): (String, String),
) -> Option<Tls> {
    let (of_cert, of_key) = (format!("{section}.tls_cert"), format!("{section}.tls_key"));
    for (key, path) in [(&of_cert, &cert), (&of_key, &key)] {
        if !path.is_empty() {
            validator.path(key, path, 4095);
        }
    }
    match (cert.is_empty(), key.is_empty()) {
        (false, false) => Some(Tls { cert: cert.into(), key: key.into() }),
        (true, true) => None,
        (no_cert, _) => {
            let (missing, present) =
                if no_cert { (&of_cert, &of_key) } else { (&of_key, &of_cert) };
            let fault = format!("{present} is set, and each requires the other");
            validator.reject(missing, &fault, "set both, or neither");
            None
        }
    }
}
