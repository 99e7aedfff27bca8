//! Conversion of a policy's routers and neighbors to peers of the BGP speaker: identities, keys and
//! session settings.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bgp::peer::settings::{AoAlgorithm, AoKey, GracefulRestart, Settings, Transport};
use bgp::wire;
use state::object::bgp::{Family, Neighbor, Password, RouterSpec, TcpAoAlgorithm};

use crate::apply::DefectKind;
use crate::snapshot::ControlPlaneState;
use crate::speaker::{PeerConfig, PeerKey};

/// Identity of a router. If the identity changes, all sessions of the router start again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Port on which the router listens; `None` if it accepts no connections.
    pub listen_port: Option<u16>,
}

/// Returns the identity of a router. The policy takes precedence over the appliance's annotation.
/// If neither sets the identifier, it is `bgp.router_id` or else the ingress port's IPv4 address.
///
/// # Errors
/// No identifier is configured and the ingress port has no IPv4 address.
pub fn identity(router: &RouterSpec, state: &ControlPlaneState) -> Result<Identity, DefectKind> {
    let annotation = state.annotations.get(&router.local_asn).copied().unwrap_or_default();
    let address = state.ipv4.filter(|address| !address.is_unspecified());
    let router_id = router.router_id.or(annotation.router_id).or(state.router_id).or(address);
    Ok(Identity {
        router_id: router_id.ok_or(DefectKind::NoRouterId)?,
        listen_port: router.listen_port.or(annotation.local_port),
    })
}

/// Returns the peer key of a neighbor.
pub fn key(router: &RouterSpec, neighbor: &Neighbor) -> PeerKey {
    let peer = SocketAddr::new(neighbor.address, neighbor.port);
    PeerKey { local_asn: router.local_asn, peer }
}

/// Keys of a neighbor's session, as read from files.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Keys {
    /// TCP-MD5 key.
    pub md5: Option<String>,
    /// TCP-AO keys.
    pub tcp_ao: Vec<AoKey>,
}

impl Keys {
    /// Reads the keys of a neighbor; `read` returns the key that a password names.
    ///
    /// # Errors
    /// A key cannot be read.
    pub fn read<E>(
        neighbor: &Neighbor,
        mut read: impl FnMut(&Password) -> Result<String, E>,
    ) -> Result<Keys, E> {
        let md5 = neighbor.password.as_ref().map(&mut read).transpose()?;
        let tcp_ao = neighbor.tcp_ao.iter().map(|key| {
            Ok(AoKey {
                send_id: key.send_id,
                receive_id: key.receive_id(),
                algorithm: match key.algorithm {
                    TcpAoAlgorithm::HmacSha1 => AoAlgorithm::HmacSha1,
                    TcpAoAlgorithm::Aes128Cmac => AoAlgorithm::Aes128Cmac,
                },
                secret: read(&key.key)?,
            })
        });
        Ok(Keys { md5, tcp_ao: tcp_ao.collect::<Result<_, E>>()? })
    }
}

/// Returns the peer configuration of a neighbor, without the R bit of graceful restart and with the
/// F bit.
///
/// # Errors
/// The settings are invalid.
pub fn config(
    router: &RouterSpec,
    neighbor: &Neighbor,
    identity: Identity,
    keys: Keys,
) -> Result<PeerConfig, DefectKind> {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let restart = &neighbor.graceful_restart;
    let long_lived = (restart.long_lived_s > 0).then(|| seconds(restart.long_lived_s));
    let peer = SocketAddr::new(neighbor.address, neighbor.port);
    let settings = Settings {
        transport: Transport {
            local: neighbor.local_address,
            md5: keys.md5,
            tcp_ao: keys.tcp_ao,
            hops: Some(neighbor.hops),
            ttl_security: neighbor.ttl_security,
        },
        passive: neighbor.passive,
        connect_retry: seconds(neighbor.connect_retry_s),
        hold: seconds(neighbor.hold_s),
        keepalive: seconds(neighbor.keepalive_s),
        families: neighbor.families.iter().map(|one| family(one.family)).collect(),
        extended_next_hop: neighbor.extended_next_hop,
        graceful_restart: restart.enabled.then(|| GracefulRestart {
            time: seconds(restart.restart_s),
            long_lived,
            restarted: false,
            forwarding: true,
        }),
        strict_bfd: neighbor.bfd.enabled && neighbor.bfd.strict,
        ..Settings::new(router.local_asn, identity.router_id, peer, neighbor.asn)
    };
    let neighbor_address = neighbor.address;
    settings.check().map_err(|why| DefectKind::Settings { neighbor: neighbor_address, why })?;
    let bfd = neighbor.bfd.enabled.then_some(neighbor.bfd);
    let interface = neighbor.interface.as_deref().map(str::to_owned);
    Ok(PeerConfig { settings, listen_port: identity.listen_port, interface, bfd })
}

/// Converts a family to that of the speaker.
pub fn family(family: Family) -> wire::Family {
    match family {
        Family::Ipv4Unicast => wire::Family::Ipv4Unicast,
        Family::Ipv6Unicast => wire::Family::Ipv6Unicast,
    }
}

#[cfg(test)]
mod tests;
