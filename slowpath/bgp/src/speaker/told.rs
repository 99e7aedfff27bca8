//! What those who look are told of a speaker.

use std::net::SocketAddr;

use serde::Serialize;

use crate::told::PeerTold;

/// A peer at one moment, with what its sockets know.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Told {
    /// What its machine knows.
    #[serde(flatten)]
    pub peer: PeerTold,
    /// Octets that the kernel has not taken yet.
    pub unwritten: usize,
    /// Why no connection comes about.
    pub trouble: Option<String>,
    /// The way to it, where it is watched.
    pub bfd: Option<BfdTold>,
}

/// What BFD said last of the way to a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BfdTold {
    /// Whether packets come and go.
    pub up: bool,
    /// Why it is not up.
    pub why: Option<String>,
}

/// A listener at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerTold {
    /// Where.
    pub address: SocketAddr,
    /// The only interface by which it is reached, where there is one.
    pub interface: Option<String>,
    /// The kernel lets us.
    pub listens: bool,
    /// Connections of peers.
    pub accepted: u64,
    /// Connections of others.
    pub refused: u64,
    /// What stands in the way.
    pub trouble: Option<String>,
}

/// All of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Peers, in order.
    pub peers: Vec<Told>,
    /// Where they may connect.
    pub listeners: Vec<ListenerTold>,
    /// Why no way is watched, where that is so.
    pub bfd_trouble: Option<String>,
}
