//! Peer key and peer configuration of the speaker.

use std::fmt;
use std::net::SocketAddr;

use serde::Serialize;

use crate::peer::settings::Settings;

/// Identifies a peer: the AS number of the local virtual router, and the peer's address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PeerKey {
    /// AS number of the local virtual router.
    pub local_asn: u32,
    /// Address and port of the peer.
    pub peer: SocketAddr,
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of AS {}", self.peer, self.local_asn)
    }
}

/// Configuration of a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Session settings.
    pub settings: Settings,
    /// Local port on which the peer may connect; `None` accepts no connections.
    pub listen_port: Option<u16>,
    /// The only interface through which the peer is reached; `None` leaves the choice to the
    /// kernel's routing.
    pub interface: Option<String>,
    /// BFD monitoring of the path to the peer; `None` for no monitoring.
    pub bfd: Option<PeerBfd>,
}

/// BFD settings of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerBfd {
    /// Multihop BFD (RFC 5883) instead of single-hop (RFC 5881).
    pub multihop: bool,
    /// Settings of the BFD session.
    pub settings: bfd::Settings,
}
