//! Validation of the `[api]` section: an API over TCP requires a token, and also TLS unless it
//! listens on loopback only.

use std::time::Duration;

use super::validator::{Validator, list_key};
use crate::checked::{Api, Tls};
use crate::file;

pub(super) fn check(validator: &mut Validator, file: file::Api) -> Option<Api> {
    let mut keyed = Vec::new();
    for (i, text) in file.listen.iter().enumerate() {
        let key = list_key("api", "listen", i, &file.listen);
        keyed.extend(validator.socket(&key, text).map(|socket| (key, socket)));
    }
    validator.unique(&keyed, "address and port");
    let files = [
        ("api.tls_cert", &file.tls_cert),
        ("api.tls_key", &file.tls_key),
        ("api.token_file", &file.token_file),
    ];
    for (key, path) in files.iter().filter(|(_, path)| !path.is_empty()) {
        validator.path(key, path, 4095);
    }
    let tls = match (file.tls_cert.is_empty(), file.tls_key.is_empty()) {
        (false, false) => Some(Tls { cert: file.tls_cert.into(), key: file.tls_key.into() }),
        (true, true) => None,
        (no_cert, _) => {
            let (missing, present) = match no_cert {
                true => ("api.tls_cert", "api.tls_key"),
                false => ("api.tls_key", "api.tls_cert"),
            };
            let fault = format!("{present} is set, and each requires the other");
            validator.reject(missing, &fault, "set both, or neither");
            None
        }
    };
    if file.listen.is_empty() {
        return None;
    }
    if file.token_file.is_empty() {
        let fault = "without a token, any client that reaches api.listen has full access";
        let remedy = "write a token to a file that only root can read, and set this key to its \
                      path";
        validator.reject("api.token_file", fault, remedy);
    }
    for (key, socket) in keyed.iter().filter(|(_, socket)| !socket.ip().is_loopback()) {
        if tls.is_none() {
            let fault =
                format!("{socket} is not loopback: without TLS the token is sent in cleartext");
            validator.reject(
                key,
                &fault,
                "set api.tls_cert and api.tls_key, or listen on 127.0.0.1",
            );
        }
    }
    let listen = keyed.into_iter().map(|(_, socket)| socket).collect();
    let token_overlap = Duration::from_secs(file.token_overlap_s.into());
    Some(Api { listen, tls, token_file: file.token_file.into(), token_overlap })
}
