//! The part of the configuration that the checks need.

use std::net::IpAddr;

use config::checked::{Azure as Settings, AzurePool, Config, GatewayKind, Plane, Side, Wire};

use crate::advice::Ours;
use crate::told::{End, Tunnels};

/// The part of the configuration that the checks need.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Azure settings: pools, membership and credential.
    pub settings: Settings,
    /// Settings for the advice.
    pub ours: Ours,
    /// Configuration of each pool's gateway.
    pub gateways: Vec<Fed>,
    /// Addresses of the ingress port, in order of preference.
    pub addresses: Vec<IpAddr>,
    /// True if forwarded packets can have source or destination addresses other than the
    /// interface's own.
    pub forwards: bool,
    /// MTU of the ingress port.
    pub mtu: u32,
    /// True if the kernel interface carries all traffic (XDP), not only that of the machine itself.
    pub kernel_carries: bool,
}

/// A gateway that a pool feeds, as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fed {
    /// The pool.
    pub pool: AzurePool,
    /// Configured tunnels.
    pub tunnels: Option<Tunnels>,
    /// MTU that the gateway's largest packets need.
    pub mtu: u32,
}

impl Wants {
    /// Extracts the settings from the configuration.
    pub fn of(config: &Config, settings: &Settings) -> Wants {
        Wants {
            settings: settings.clone(),
            ours: Ours::of(config),
            gateways: settings.pools.iter().map(|pool| fed(config, pool)).collect(),
            addresses: config.ingress.addresses.iter().map(|prefix| prefix.addr).collect(),
            forwards: config.egress.is_some() || !config.nat.addresses.is_empty(),
            mtu: config.ingress.mtu.into(),
            kernel_carries: config.plane == Plane::Xdp,
        }
    }
}

fn fed(config: &Config, pool: &AzurePool) -> Fed {
    let azure = config.gateways.iter().filter(|gateway| gateway.kind == GatewayKind::Azure);
    let gateway = azure.into_iter().find(|gateway| gateway.name == pool.gateway);
    let end = |wanted: Side| {
        let mut tunnels = gateway?.tunnels.iter().filter(|t| t.local.is_ipv6() == pool.ipv6);
        tunnels.find_map(|tunnel| match tunnel.wire {
            Wire::Vxlan { vni, side, .. } if side == wanted => Some(End { port: tunnel.port, vni }),
            _ => None,
        })
    };
    let tunnels = end(Side::External).zip(end(Side::Internal));
    // Inner Ethernet (14), VXLAN (8), UDP (8), and outer IP header (20 or 40).
    let around = if pool.ipv6 { 70 } else { 50 };
    Fed {
        pool: pool.clone(),
        tunnels: tunnels.map(|(external, internal)| Tunnels { external, internal }),
        mtu: gateway.map_or(0, |gateway| u32::from(gateway.inner_mtu) + around),
    }
}
