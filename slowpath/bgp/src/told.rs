//! What those who look are told of a peer: the API, `weir bgp`, metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use serde::Serialize;

use crate::peer::{Peer, State};
use crate::session::negotiate::Negotiated;
use crate::session::received::{Count, Messages};
use crate::session::{Direction, Session};
use crate::wire::{Attributes, Family, Notification};

/// A peer at one moment. Times are in seconds, before or from that moment on.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PeerTold {
    /// Our number.
    pub local_asn: u32,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// The peer's number: as agreed on, else as configured.
    pub peer_asn: u32,
    /// Where the peer is.
    pub peer: SocketAddr,
    /// The state.
    pub state: State,
    /// For how long it is so.
    pub since_s: f64,
    /// The connection that has come farthest.
    pub connection: Option<ConnectionTold>,
    /// Families, configured ones.
    pub families: Vec<FamilyTold>,
    /// How often an established session ended.
    pub flaps: u64,
    /// How many connections of the peer's were not let in.
    pub refused: u64,
    /// The last notification that we sent.
    pub last_sent: Option<Said>,
    /// The last one that came.
    pub last_received: Option<Said>,
    /// Why a connection ended last without one.
    pub last_lost: Option<Said>,
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ConnectionTold {
    /// Our end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Who began it.
    pub direction: Direction,
    /// The peer's BGP identifier.
    pub peer_router_id: Option<Ipv4Addr>,
    /// How long silence is taken for life; none: for ever.
    pub hold_s: Option<f64>,
    /// From one of our keepalives to the next.
    pub keepalive_s: Option<f64>,
    /// When the hold timer runs out.
    pub hold_left_s: Option<f64>,
    /// When the next keepalive goes out at the latest.
    pub keepalive_left_s: Option<f64>,
    /// What both sides can, in words.
    pub capabilities: Vec<&'static str>,
    /// How long the peer wants to be waited for when it restarts.
    pub peer_restart_s: Option<f64>,
    /// What came.
    pub messages: Messages,
    /// What was wrong with an UPDATE last.
    pub last_malformed: Option<&'static str>,
    /// Routes that can't be said on this session.
    pub unsendable: usize,
    /// All that is desired was said and is with the kernel.
    pub told_all: bool,
}

/// A family of a peer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FamilyTold {
    /// Which.
    pub family: Family,
    /// Both speak it.
    pub agreed: bool,
    /// What the peer told.
    pub received: Count,
    /// How many routes the peer has from us.
    pub advertised: usize,
}

/// Something that was said.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Said {
    /// How long ago.
    pub ago_s: f64,
    /// In words.
    pub words: String,
}

/// A route.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RouteTold {
    /// To where.
    pub prefix: IpNet,
    /// By where.
    pub next_hop: IpAddr,
    /// The rest, in words.
    pub attributes: String,
}

impl Peer {
    /// All of it.
    pub fn told(&self, now: Instant) -> PeerTold {
        let (settings, history) = (self.settings(), self.history());
        let foremost = self.foremost();
        let both = foremost.and_then(Session::negotiated);
        PeerTold {
            local_asn: settings.local_asn,
            router_id: settings.identifier,
            peer_asn: both.map_or(settings.peer_asn, |both| both.peer_asn),
            peer: settings.peer,
            state: self.state(),
            since_s: ago(history.since, now),
            connection: foremost.map(|session| self.connection(session, now)),
            families: settings.families.iter().map(|family| self.family(*family)).collect(),
            flaps: history.flaps,
            refused: history.refused,
            last_sent: said(&history.sent, now, Notification::to_string),
            last_received: said(&history.received, now, Notification::to_string),
            last_lost: said(&history.lost, now, ToString::to_string),
        }
    }

    fn connection(&self, session: &Session, now: Instant) -> ConnectionTold {
        let both = session.negotiated();
        let (hold, keepalive) = session.timers();
        let time = |time: fn(&Negotiated) -> Duration| {
            both.map(time).filter(|time| !time.is_zero()).map(|time| time.as_secs_f64())
        };
        ConnectionTold {
            local: session.ends.0,
            remote: session.ends.1,
            direction: session.direction,
            peer_router_id: both.map(|both| both.identifier),
            hold_s: time(|both| both.hold),
            keepalive_s: time(|both| both.keepalive),
            hold_left_s: hold.map(|hold| ago(now, hold)),
            keepalive_left_s: keepalive.map(|keepalive| ago(now, keepalive)),
            capabilities: both.map(capabilities).unwrap_or_default(),
            peer_restart_s: both.and_then(|b| b.graceful_restart).map(|time| time.as_secs_f64()),
            messages: session.received().messages(),
            last_malformed: session.received().why(),
            unsendable: session.advertiser().map_or(0, |advertiser| advertiser.unsendable()),
            told_all: session.advertiser().is_some() && self.is_told(),
        }
    }

    fn family(&self, family: Family) -> FamilyTold {
        let session = self.established();
        let agreed = session.and_then(Session::negotiated);
        FamilyTold {
            family,
            agreed: agreed.is_some_and(|both| both.families.contains(&family)),
            received: session.map(|s| s.received().count(family)).unwrap_or_default(),
            advertised: session
                .and_then(Session::advertiser)
                .map_or(0, |advertiser| advertiser.advertised(family)),
        }
    }

    /// Routes that the peer has from us, of `family`, as they were said. None while it is not up.
    pub fn advertised(&self, family: Family) -> Vec<RouteTold> {
        let routes = self.established().and_then(Session::advertiser);
        routes
            .iter()
            .flat_map(|advertiser| advertiser.routes())
            .filter(|(prefix, _)| Family::of_prefix(prefix) == family)
            .map(|(prefix, attributes)| route(prefix, attributes))
            .collect()
    }
}

fn route(prefix: &IpNet, attributes: &Attributes) -> RouteTold {
    let next_hop = attributes.next_hop;
    RouteTold { prefix: *prefix, next_hop, attributes: attributes.to_string() }
}

fn capabilities(both: &Negotiated) -> Vec<&'static str> {
    [
        (both.four_octet_as, "4-octet AS"),
        (both.route_refresh, "route refresh"),
        (both.enhanced_refresh, "enhanced route refresh"),
        (both.extended_message, "extended messages"),
        (both.extended_next_hop, "extended next hop"),
        (both.graceful_restart.is_some(), "graceful restart"),
        (both.notification, "graceful restart for notifications"),
        (both.long_lived, "long-lived graceful restart"),
    ]
    .into_iter()
    .filter_map(|(agreed, words)| agreed.then_some(words))
    .collect()
}

fn ago(earlier: Instant, later: Instant) -> f64 {
    later.saturating_duration_since(earlier).as_secs_f64()
}

fn said<T>(
    what: &Option<(Instant, T)>,
    now: Instant,
    words: impl Fn(&T) -> String,
) -> Option<Said> {
    what.as_ref().map(|(at, what)| Said { ago_s: ago(*at, now), words: words(what) })
}
