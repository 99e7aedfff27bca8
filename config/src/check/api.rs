//! Validation of the `[api]` section: an API that other machines can reach requires TLS and a
//! token.

use super::door::{Door, listed};
use crate::checked::{Api, Tls};
use crate::file;

pub(super) fn api(door: &mut Door, file: file::Api) -> Option<Api> {
    let mut keyed = Vec::new();
    for (i, text) in file.listen.iter().enumerate() {
        let key = listed("api", "listen", i, &file.listen);
        keyed.extend(door.socket(&key, text).map(|socket| (key, socket)));
    }
    door.unique(&keyed, "address and port");
    let files = [
        ("api.tls_cert", &file.tls_cert),
        ("api.tls_key", &file.tls_key),
        ("api.token_file", &file.token_file),
    ];
    for (key, path) in files.iter().filter(|(_, path)| !path.is_empty()) {
        door.path(key, path, 4095);
    }
    let tls = match (file.tls_cert.is_empty(), file.tls_key.is_empty()) {
        (false, false) => Some(Tls { cert: file.tls_cert.into(), key: file.tls_key.into() }),
        (true, true) => None,
        (no_cert, _) => {
            let (missing, given) = match no_cert {
                true => ("api.tls_cert", "api.tls_key"),
                false => ("api.tls_key", "api.tls_cert"),
            };
            let wrong = format!("{given} is set, and one is nothing without the other");
            door.refuse(missing, &wrong, "set both, or neither");
            None
        }
    };
    if file.listen.is_empty() {
        return None;
    }
    if file.token_file.is_empty() {
        let wrong = "whoever reaches api.listen could change everything";
        let allowed = "write a token to a file that only root can read, and name it here";
        door.refuse("api.token_file", wrong, allowed);
    }
    for (key, socket) in keyed.iter().filter(|(_, socket)| !socket.ip().is_loopback()) {
        if tls.is_none() {
            let wrong = format!("{socket} is not loopback, and the token would be read on the way");
            door.refuse(key, &wrong, "set api.tls_cert and api.tls_key, or listen on 127.0.0.1");
        }
    }
    let listen = keyed.into_iter().map(|(_, socket)| socket).collect();
    Some(Api { listen, tls, token_file: file.token_file.into() })
}
