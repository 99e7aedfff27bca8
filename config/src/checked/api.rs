//! The `[api]` section, validated: listeners, TLS and the token of the API over TCP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The `[api]` section; present only if the API listens on TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Api {
    /// Addresses on which the API listens, at least one.
    pub listen: Vec<SocketAddr>,
    /// TLS certificate; `None` only if all of `listen` is loopback.
    pub tls: Option<Tls>,
    /// File with the token that clients must send.
    pub token_file: PathBuf,
    /// Time for which a replaced token is still accepted.
    pub token_overlap: Duration,
}

/// A TLS certificate and its private key, PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificate and its intermediate certificates.
    pub cert: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
}
