//! Status of a speaker, as shown by the API, `weir bgp` and the metrics.

use std::net::SocketAddr;

use serde::Serialize;

use crate::status::PeerStatus;

/// Status of a peer, including its sockets.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerSocketStatus {
    /// Status of the peer's state machine.
    #[serde(flatten)]
    pub peer: PeerStatus,
    /// Octets queued in this process that the kernel has not accepted yet.
    pub unwritten: usize,
    /// The last error in connecting or in replacing the keys of a session; absent once a new
    /// connection is opened.
    #[serde(rename = "error")]
    pub last_error: Option<String>,
    /// Status of BFD on the path to the peer; absent without BFD, and before its first event.
    pub bfd: Option<BfdStatus>,
}

/// Last event of the BFD session with a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BfdStatus {
    /// The BFD session is up.
    pub up: bool,
    /// Why the session is not up; absent if it is up.
    pub why: Option<String>,
}

/// Status of a listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ListenerStatus {
    /// Address and port of the listener.
    pub address: SocketAddr,
    /// Interface to which the listener is bound, if any.
    pub interface: Option<String>,
    /// The listening socket is open.
    pub listens: bool,
    /// Number of connections accepted from configured peers.
    pub accepted: u64,
    /// Number of connections refused because they matched no configured peer (remote and local
    /// address, interface), because the peer's keys could not be installed, or because they lack
    /// its TCP-AO.
    pub refused: u64,
    /// Why the socket could not be opened, or the last error in installing a peer's key.
    #[serde(rename = "error")]
    pub last_error: Option<String>,
}

/// Status of the whole speaker.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SpeakerStatus {
    /// Peers, ordered by key.
    pub peers: Vec<PeerSocketStatus>,
    /// Listeners.
    pub listeners: Vec<ListenerStatus>,
    /// Why BFD does not run, or the last error in setting up a BFD session.
    pub bfd_error: Option<String>,
}
