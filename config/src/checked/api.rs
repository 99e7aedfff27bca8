//! The `[api]` section, validated: listeners, TLS and the tokens of the API over TCP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of `api.tokens_file`, which is ignored if it does not exist.
pub const TOKENS_FILE: &str = "/etc/weir/tokens";

/// The `[api]` section but its tokens; present only if the API listens on TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Api {
    /// Addresses on which the API listens, at least one.
    pub listen: Vec<SocketAddr>,
    /// TLS certificate; `None` only if all of `listen` is loopback.
    pub tls: Option<Tls>,
    /// Further host names of the page, in lower case.
    pub hosts: Vec<String>,
}

/// Files with the tokens of the API, which the metrics listener may require as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tokens {
    /// File with one token of role `admin`; `None` for none.
    pub token_file: Option<PathBuf>,
    /// Time for which a token that was replaced in `token_file` is still accepted.
    pub token_overlap: Duration,
    /// File with named tokens; `None` for none.
    pub tokens_file: Option<PathBuf>,
}

impl Tokens {
    /// Returns whether the file of named tokens may be missing: it is the default.
    pub fn may_be_missing(&self) -> bool {
        self.tokens_file.as_deref() == Some(Path::new(TOKENS_FILE))
    }
}

/// A TLS certificate and its private key, PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificate and its intermediate certificates.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}
