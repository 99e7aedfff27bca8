//! Interface to the BGP speaker: peers and the routes to advertise to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bgp::advertise::Table;
use bgp::peer::Stop;
use bgp::peer::settings::Settings;
use bgp::status::{AdvertisedRoute, PeerStatus};
use bgp::wire::Family;
use serde::Serialize;
use state::object::bgp::BfdSpec;

/// Identifies a peer: the AS number of the local virtual router, and the peer's address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct PeerKey {
    /// AS number of the local virtual router.
    pub local_asn: u32,
    /// Address and port of the peer.
    pub peer: SocketAddr,
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
    pub bfd: Option<BfdSpec>,
}

impl PeerConfig {
    /// Returns whether `new` differs from this configuration in nothing but keys, and an open
    /// session can take the new keys.
    pub fn can_rekey_to(&self, new: &PeerConfig) -> bool {
        let (own, transport) = (&self.settings.transport, &new.settings.transport);
        let mut same = new.clone();
        same.settings.transport.md5.clone_from(&own.md5);
        same.settings.transport.tcp_ao.clone_from(&own.tcp_ao);
        same == *self && own.can_rekey_to(transport)
    }
}

/// A BGP speaker. No method waits for a peer.
pub trait Speaker {
    /// Adds a peer and starts its session.
    fn add(&mut self, key: PeerKey, config: &PeerConfig);

    /// Removes a peer and ends its session for the reason `why`. After [`Stop::Changed`] the caller
    /// adds the peer again at once, unless its new settings or keys are invalid.
    fn remove(&mut self, key: PeerKey, why: Stop);

    /// Replaces the keys of a peer by those of `config` without ending the session; the caller has
    /// checked [`PeerConfig::can_rekey_to`].
    fn set_keys(&mut self, key: PeerKey, config: &PeerConfig);

    /// Replaces the set of routes to advertise to a peer.
    fn set_routes(&mut self, key: PeerKey, table: &Arc<Table>);

    /// Declares the current tables of all current peers complete, which allows End-of-RIB to be
    /// sent.
    fn complete(&mut self);

    /// Turns graceful shutdown (RFC 8326) on or off, for current peers and for those added later.
    fn graceful_shutdown(&mut self, on: bool);

    /// Returns whether every peer has been sent all of its desired routes
    /// ([`bgp::peer::Peer::all_sent`]).
    fn all_sent(&self) -> bool;

    /// Returns the status of all peers.
    fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerStatus)>;

    /// Returns the routes advertised to a peer for one family; empty while the session is not
    /// established.
    fn advertised(&self, key: PeerKey, family: Family) -> Vec<AdvertisedRoute>;
}
