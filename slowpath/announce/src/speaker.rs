//! What whoever has the sockets does: peers, each a machine of `bgp`, with what they are told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bgp::advertise::Table;
use bgp::peer::Stop;
use bgp::peer::settings::Settings;
use bgp::told::{PeerTold, RouteTold};
use bgp::wire::Family;
use serde::Serialize;
use state::object::bgp::BfdSpec;

/// Which peer: of which of our routers, and where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PeerKey {
    /// The router's number.
    pub local_asn: u32,
    /// Where the peer is.
    pub peer: SocketAddr,
}

/// How a peer is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerWanted {
    /// Its session.
    pub settings: Settings,
    /// The port on which it may connect; none for not at all.
    pub listen_port: Option<u16>,
    /// The only interface by which it is reached; none leaves it to the kernel's routes.
    pub interface: Option<String>,
    /// Whether the way to it is watched; none for not at all.
    pub bfd: Option<BfdSpec>,
}

/// The sockets' side. None of its calls waits for a peer.
pub trait Speaker {
    /// A new peer, wanted up.
    fn add(&mut self, key: PeerKey, wanted: &PeerWanted);

    /// A peer goes. With [`Stop::Changed`] it is added again at once.
    fn remove(&mut self, key: PeerKey, why: Stop);

    /// What a peer shall have from now on.
    fn set_routes(&mut self, key: PeerKey, table: &Arc<Table>);

    /// What each peer of now shall have is all that there is: End-of-RIB may be said.
    fn complete(&mut self);

    /// All routes are about to go (RFC 8326), or not any more; for peers to come as well.
    fn graceful_shutdown(&mut self, on: bool);

    /// Whether each peer was told all that it shall have ([`bgp::peer::Peer::is_told`]).
    fn is_told(&self) -> bool;

    /// All peers, as they are.
    fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerTold)>;

    /// What a peer has from us, of a family; nothing while it is not up.
    fn advertised(&self, key: PeerKey, family: Family) -> Vec<RouteTold>;
}
