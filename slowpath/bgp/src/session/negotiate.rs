//! The local OPEN, validation of the peer's OPEN (RFC 4271 section 6.2, RFC 6286, RFC 7607), and
//! the negotiated parameters.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;

use crate::peer::settings::Settings;
use crate::wire::DecodeContext;
use crate::wire::capability::code;
use crate::wire::write::EncodeContext;
use crate::wire::{
    AS_TRANS, Capability, Family, GracefulRestart, MAX_EXTENDED_MESSAGE, MAX_MESSAGE, Notification,
    Open,
};

/// Whether to omit capabilities from the OPEN, because the peer rejects the optional parameter that
/// carries them. Reset when the peer is started again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OmitCapabilities(bool);

impl OmitCapabilities {
    /// Learns from a NOTIFICATION in response to the local OPEN. Only Unsupported Optional
    /// Parameter (2/4) calls for an OPEN without capabilities (RFC 5492 section 3). Unsupported
    /// Capability (2/7) lists capabilities that the peer requires and that were not advertised
    /// (section 5), so advertising fewer does not help.
    pub fn learn(&mut self, notification: &Notification) {
        self.0 |= (notification.code, notification.subcode) == (2, 4);
    }
}

/// Negotiated parameters of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Negotiated {
    /// AS number of the peer.
    pub peer_asn: u32,
    /// BGP identifier of the peer.
    pub identifier: Ipv4Addr,
    /// The peer has the local AS number (iBGP).
    pub internal: bool,
    /// Hold time; zero for no hold timer.
    pub hold: Duration,
    /// Interval between sent keepalives; zero if none are sent.
    pub keepalive: Duration,
    /// Address families that both sides support.
    pub families: Vec<Family>,
    /// AS numbers have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// The peer accepts ROUTE-REFRESH (RFC 2918).
    pub route_refresh: bool,
    /// Enhanced route refresh: beginning and end of a refresh are marked (RFC 7313).
    pub enhanced_refresh: bool,
    /// Messages may have up to 65,535 octets (RFC 8654).
    pub extended_message: bool,
    /// IPv4 prefixes may have IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// The peer's Restart Time, if both sides support graceful restart (RFC 4724).
    pub graceful_restart: Option<Duration>,
    /// Graceful restart also applies to sessions that end by a NOTIFICATION other than a hard reset
    /// (RFC 8538).
    pub notification: bool,
    /// Both sides support long-lived graceful restart (RFC 9494).
    pub long_lived: bool,
    /// The peer set the R bit: it has restarted.
    pub peer_restarted: bool,
}

impl Negotiated {
    /// Returns how to parse UPDATEs of this peer.
    pub fn decode_context(&self) -> DecodeContext {
        DecodeContext {
            four_octet: self.four_octet_as,
            internal: self.internal,
            extended_next_hop: self.extended_next_hop,
        }
    }

    /// Returns how to write UPDATEs for this peer.
    pub fn encode_context(&self, settings: &Settings) -> EncodeContext {
        EncodeContext {
            local_asn: settings.local_asn,
            peer: settings.peer.ip(),
            internal: self.internal,
            four_octet: self.four_octet_as,
            extended_next_hop: self.extended_next_hop,
            limit: if self.extended_message { MAX_EXTENDED_MESSAGE } else { MAX_MESSAGE },
        }
    }
}

/// Returns the local OPEN. `restarted` sets the R bit of graceful restart.
pub fn local_open(
    settings: &Settings,
    omit_capabilities: &OmitCapabilities,
    restarted: bool,
) -> Open {
    let mut capabilities: Vec<Capability> =
        settings.families.iter().map(|family| Capability::family(*family)).collect();
    capabilities.extend([
        Capability::RouteRefresh,
        Capability::ExtendedMessage,
        Capability::FourOctetAs(settings.local_asn),
        Capability::EnhancedRefresh,
    ]);
    if settings.extended_next_hop && settings.families.contains(&Family::Ipv4Unicast) {
        // IPv4 unicast prefixes with IPv6 next hops.
        capabilities.push(Capability::ExtendedNextHop(vec![(1, 1, 2)]));
    }
    if let Some(restart) = &settings.graceful_restart {
        let families = || settings.families.iter().map(|family| (family.afi(), family.safi()));
        capabilities.push(Capability::GracefulRestart(GracefulRestart {
            restarted,
            notification: true,
            time: restart.time.as_secs().min(4_095) as u16,
            families: families().map(|(afi, safi)| (afi, safi, restart.forwarding)).collect(),
        }));
        if let Some(time) = restart.long_lived {
            let seconds = time.as_secs().min(0xff_ffff) as u32;
            let entry = |(afi, safi)| (afi, safi, restart.forwarding, seconds);
            capabilities.push(Capability::LongLived(families().map(entry).collect()));
        }
    }
    if omit_capabilities.0 {
        capabilities.clear();
    }
    Open {
        asn: u16::try_from(settings.local_asn).unwrap_or(AS_TRANS),
        hold_time: settings.hold.as_secs().min(65_535) as u16,
        identifier: settings.identifier,
        capabilities,
    }
}

/// Returns the negotiated parameters, or the NOTIFICATION with which to reject the peer's OPEN.
pub fn negotiate(
    settings: &Settings,
    local: &Open,
    remote: &Open,
) -> Result<Negotiated, Notification> {
    let peer_asn = check_asn(settings, remote)?;
    let internal = settings.is_internal(peer_asn);
    let same = remote.identifier == settings.identifier;
    if remote.identifier.is_unspecified() || (internal && same) {
        // Bad BGP Identifier.
        return Err(Notification::new(2, 3, Vec::new()));
    }
    if matches!(remote.hold_time, 1 | 2) {
        // Unacceptable Hold Time.
        return Err(Notification::new(2, 6, Vec::new()));
    }
    let hold = Duration::from_secs(local.hold_time.min(remote.hold_time).into());
    let both = |capability: u8| has(local, capability) && has(remote, capability);
    let restart = both(code::GRACEFUL_RESTART).then(|| graceful(remote)).flatten();
    Ok(Negotiated {
        peer_asn,
        identifier: remote.identifier,
        internal,
        hold,
        keepalive: settings.keepalive.min(hold / 3),
        families: agreed_families(local, remote)?,
        four_octet_as: both(code::FOUR_OCTET_AS),
        route_refresh: has(remote, code::ROUTE_REFRESH),
        enhanced_refresh: both(code::ENHANCED_REFRESH) && both(code::ROUTE_REFRESH),
        extended_message: both(code::EXTENDED_MESSAGE),
        extended_next_hop: has(local, code::EXTENDED_NEXT_HOP) && accepts_ipv6_next_hops(remote),
        graceful_restart: restart.map(|restart| Duration::from_secs(restart.time.into())),
        notification: restart.is_some_and(|restart| restart.notification),
        long_lived: both(code::LONG_LIVED) && restart.is_some(),
        peer_restarted: restart.is_some_and(|restart| restart.restarted),
    })
}

/// Returns the peer's AS number if it is valid and allowed by the settings.
fn check_asn(settings: &Settings, remote: &Open) -> Result<u32, Notification> {
    let long = remote.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::FourOctetAs(asn) => Some(*asn),
        _ => None,
    });
    let asn = long.unwrap_or(remote.asn.into());
    let accepted = settings.peer_asn == 0 || settings.peer_asn == asn;
    // AS 0 and AS_TRANS are reserved (RFC 7607, RFC 6793).
    if !accepted || asn == 0 || remote.asn == 0 || asn == u32::from(AS_TRANS) {
        // Bad Peer AS.
        return Err(Notification::new(2, 2, Vec::new()));
    }
    Ok(asn)
}

fn has(open: &Open, code: u8) -> bool {
    open.capabilities.iter().any(|capability| {
        capability.code() == code && !matches!(capability, Capability::Unknown(..))
    })
}

/// Returns the last graceful restart capability, which is the one that counts (RFC 4724 section 3).
fn graceful(open: &Open) -> Option<&GracefulRestart> {
    open.capabilities.iter().rev().find_map(|capability| match capability {
        Capability::GracefulRestart(restart) => Some(restart),
        _ => None,
    })
}

/// Returns whether the sender of `open` accepts IPv6 next hops for IPv4 unicast prefixes (RFC
/// 8950).
fn accepts_ipv6_next_hops(open: &Open) -> bool {
    open.capabilities.iter().any(|capability| match capability {
        Capability::ExtendedNextHop(entries) => entries.contains(&(1, 1, 2)),
        _ => false,
    })
}

/// Returns the address families of an OPEN; without a multiprotocol capability, IPv4 unicast.
fn families(open: &Open) -> Vec<(u16, u8)> {
    let named = open.capabilities.iter().filter_map(|capability| match capability {
        Capability::Multiprotocol(afi, safi) => Some((*afi, *safi)),
        _ => None,
    });
    let named: Vec<_> = named.collect();
    if named.is_empty() { vec![(1, 1)] } else { named }
}

fn agreed_families(local: &Open, remote: &Open) -> Result<Vec<Family>, Notification> {
    let remote = families(remote);
    let common = families(local).into_iter().filter(|family| remote.contains(family));
    let agreed: Vec<Family> = common.filter_map(|(afi, safi)| Family::of(afi, safi)).collect();
    if agreed.is_empty() {
        // Unsupported Capability: the data lists the families that the local side requires (RFC
        // 5492 section 5).
        let mut data = Vec::new();
        for (afi, safi) in families(local) {
            Capability::Multiprotocol(afi, safi).write(&mut data);
        }
        return Err(Notification::new(2, 7, data));
    }
    Ok(agreed)
}

#[cfg(test)]
mod tests;
