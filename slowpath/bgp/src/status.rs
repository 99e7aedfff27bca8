//! Peer status, as shown by the API, `weir bgp` and the metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde::Serialize;

use crate::peer::{Peer, State};
use crate::session::negotiate::Negotiated;
use crate::session::received::{Count, Messages};
use crate::session::{Direction, Session};
use crate::wire::{Attributes, Family, Notification};

/// Status of a peer at one moment. Times are in seconds before or after that moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerStatus {
    /// Local AS number.
    pub local_asn: u32,
    /// Local BGP identifier.
    pub router_id: Ipv4Addr,
    /// AS number of the peer: as negotiated, or as configured before that (0 accepts any).
    pub peer_asn: u32,
    /// Address and port of the peer.
    pub peer: SocketAddr,
    /// State of the peer's state machine (RFC 4271 section 8.2.2).
    pub state: State,
    /// Time since the last change of state, in seconds.
    pub since_s: f64,
    /// The connection that is farthest in the state machine; absent without a connection.
    pub connection: Option<ConnectionStatus>,
    /// Configured address families.
    pub families: Vec<FamilyStatus>,
    /// Number of established sessions that ended.
    pub flaps: u64,
    /// Number of connections that were closed without an OPEN: the peer is stopped or waits for
    /// BFD, the remote address is not the peer's, or the attempt to connect was abandoned.
    pub refused: u64,
    /// The last NOTIFICATION sent.
    pub last_sent: Option<PastEvent>,
    /// The last NOTIFICATION received.
    pub last_received: Option<PastEvent>,
    /// The last time that a connection ended without a NOTIFICATION, and why.
    pub last_lost: Option<PastEvent>,
}

/// Status of a connection.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConnectionStatus {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// Which side opened the connection.
    pub direction: Direction,
    /// BGP identifier of the peer; absent until its OPEN arrives.
    pub peer_router_id: Option<Ipv4Addr>,
    /// Negotiated hold time in seconds; absent until the peer's OPEN arrives, and if it is 0 (the
    /// session never times out).
    pub hold_s: Option<f64>,
    /// Interval between keepalives in seconds; absent if none are sent.
    pub keepalive_s: Option<f64>,
    /// Time until the hold timer expires, in seconds; absent with a hold time of 0.
    pub hold_left_s: Option<f64>,
    /// Time until the next keepalive is sent, in seconds; absent if none are sent.
    pub keepalive_left_s: Option<f64>,
    /// Negotiated capabilities.
    pub capabilities: Vec<&'static str>,
    /// Restart Time that the peer advertised (RFC 4724), in seconds; absent unless both sides
    /// support graceful restart.
    pub peer_restart_s: Option<f64>,
    /// Counters of received messages.
    pub messages: Messages,
    /// The last error found in an UPDATE of this connection.
    pub last_malformed: Option<&'static str>,
    /// Number of desired routes that cannot be sent on this session.
    pub unsendable: usize,
    /// All desired routes were sent and are in the kernel's send buffer.
    pub all_sent: bool,
}

/// Status of an address family of a peer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FamilyStatus {
    /// The address family.
    pub family: Family,
    /// The family was negotiated on the established session.
    pub agreed: bool,
    /// Prefixes received from the peer.
    pub received: Count,
    /// Number of routes advertised to the peer.
    pub advertised: usize,
}

/// A past event, such as a NOTIFICATION.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PastEvent {
    /// Time since the event, in seconds.
    pub ago_s: f64,
    /// Description of the event.
    #[serde(rename = "message")]
    pub description: String,
}

/// An advertised route.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AdvertisedRoute {
    /// Destination prefix.
    pub prefix: IpNet,
    /// Next hop.
    pub next_hop: IpAddr,
    /// The other path attributes as text.
    pub attributes: String,
}

impl Peer {
    /// Returns the status of the peer.
    pub fn status(&self, now: Instant) -> PeerStatus {
        let (settings, history) = (self.settings(), self.history());
        let foremost = self.foremost();
        let negotiated = foremost.and_then(Session::negotiated);
        PeerStatus {
            local_asn: settings.local_asn,
            router_id: settings.identifier,
            peer_asn: negotiated.map_or(settings.peer_asn, |negotiated| negotiated.peer_asn),
            peer: settings.peer,
            state: self.state(),
            since_s: seconds_between(history.since, now),
            connection: foremost.map(|session| self.connection(session, now)),
            families: settings.families.iter().map(|family| self.family(*family)).collect(),
            flaps: history.flaps,
            refused: history.refused,
            last_sent: past_event(&history.sent, now, Notification::to_string),
            last_received: past_event(&history.received, now, Notification::to_string),
            last_lost: past_event(&history.lost, now, ToString::to_string),
        }
    }

    fn connection(&self, session: &Session, now: Instant) -> ConnectionStatus {
        let negotiated = session.negotiated();
        let (hold, keepalive) = session.timers();
        let time = |time: fn(&Negotiated) -> Duration| {
            negotiated.map(time).filter(|time| !time.is_zero()).map(|time| time.as_secs_f64())
        };
        ConnectionStatus {
            local: session.endpoints.0,
            remote: session.endpoints.1,
            direction: session.direction,
            peer_router_id: negotiated.map(|negotiated| negotiated.identifier),
            hold_s: time(|negotiated| negotiated.hold),
            keepalive_s: time(|negotiated| negotiated.keepalive),
            hold_left_s: hold.map(|hold| seconds_between(now, hold)),
            keepalive_left_s: keepalive.map(|keepalive| seconds_between(now, keepalive)),
            capabilities: negotiated.map(capabilities).unwrap_or_default(),
            peer_restart_s: negotiated
                .and_then(|negotiated| negotiated.graceful_restart)
                .map(|time| time.as_secs_f64()),
            messages: session.received().messages(),
            last_malformed: session.received().last_malformed(),
            unsendable: session.advertiser().map_or(0, |advertiser| advertiser.unsendable()),
            all_sent: session.advertiser().is_some() && self.all_sent(),
        }
    }

    fn family(&self, family: Family) -> FamilyStatus {
        let session = self.established();
        let agreed = session.and_then(Session::negotiated);
        FamilyStatus {
            family,
            agreed: agreed.is_some_and(|negotiated| negotiated.families.contains(&family)),
            received: session.map(|s| s.received().count(family)).unwrap_or_default(),
            advertised: session
                .and_then(Session::advertiser)
                .map_or(0, |advertiser| advertiser.advertised(family)),
        }
    }

    /// Returns the routes of `family` advertised to the peer, as sent. Empty while the session is
    /// not established.
    pub fn advertised(&self, family: Family) -> Vec<AdvertisedRoute> {
        let routes = self.established().and_then(Session::advertiser);
        routes
            .iter()
            .flat_map(|advertiser| advertiser.routes())
            .filter(|(prefix, _)| Family::of_prefix(prefix) == family)
            .map(|(prefix, attributes)| route(prefix, attributes))
            .collect()
    }
}

fn route(prefix: &IpNet, attributes: &Attributes) -> AdvertisedRoute {
    let next_hop = attributes.next_hop;
    AdvertisedRoute { prefix: *prefix, next_hop, attributes: attributes.to_string() }
}

fn capabilities(negotiated: &Negotiated) -> Vec<&'static str> {
    [
        (negotiated.four_octet_as, "4-octet AS"),
        (negotiated.route_refresh, "route refresh"),
        (negotiated.enhanced_refresh, "enhanced route refresh"),
        (negotiated.extended_message, "extended messages"),
        (negotiated.extended_next_hop, "extended next hop"),
        (negotiated.graceful_restart.is_some(), "graceful restart"),
        (negotiated.notification, "graceful restart for notifications"),
        (negotiated.long_lived, "long-lived graceful restart"),
    ]
    .into_iter()
    .filter_map(|(agreed, description)| agreed.then_some(description))
    .collect()
}

fn seconds_between(earlier: Instant, later: Instant) -> f64 {
    later.saturating_duration_since(earlier).as_secs_f64()
}

fn past_event<T>(
    last: &Option<(Instant, T)>,
    now: Instant,
    description: impl Fn(&T) -> String,
) -> Option<PastEvent> {
    last.as_ref().map(|(at, last)| PastEvent {
        ago_s: seconds_between(*at, now),
        description: description(last),
    })
}
