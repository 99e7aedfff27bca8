//! `[api]`: who may change the appliance from elsewhere, and how that is kept private.

use std::net::SocketAddr;
use std::path::PathBuf;

/// `[api]`, where it listens at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Api {
    /// Where it listens, at least one.
    pub listen: Vec<SocketAddr>,
    /// How it is encrypted; none only where all of `listen` is loopback.
    pub tls: Option<Tls>,
    /// Where the token is that clients must send.
    pub token_file: PathBuf,
}

/// A certificate and its key, files in PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tls {
    /// The certificate, and those that lead to its root.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
