//! A peer of a speaker: its key, and how it is configured.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use crate::peer::settings::Settings;

/// Which peer: of which of our routers, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PeerKey {
    /// The router's number.
    pub local_asn: u32,
    /// Where the peer is.
    pub peer: SocketAddr,
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of AS {}", self.peer, self.local_asn)
    }
}

/// How a peer is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Its session.
    pub settings: Settings,
    /// The port on which it may connect; none for not at all.
    pub listen_port: Option<u16>,
    /// The only interface by which it is reached; none leaves it to the kernel's routes.
    pub interface: Option<String>,
    /// Whether the way to it is watched.
    pub bfd: Option<Watched>,
}

/// How the way to a peer is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Over several hops (RFC 5883) instead of one.
    pub multihop: bool,
    /// The session's.
    pub settings: bfd::Settings,
}
