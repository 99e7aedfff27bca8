//! What of the configuration the checks are about.

use std::net::IpAddr;

use config::checked::{Azure as Settings, AzurePool, Config, GatewayKind, Plane, Side, Wire};

use crate::advice::Ours;
use crate::told::{End, Tunnels};

/// What of the configuration matters here.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Pools, membership, credential.
    pub settings: Settings,
    /// For the advice.
    pub ours: Ours,
    /// What is written of each pool's gateway.
    pub gateways: Vec<Fed>,
    /// Of the ingress arm, the preferred first.
    pub addresses: Vec<IpAddr>,
    /// Packets leave with addresses that are not of the interface, or come for some.
    pub forwards: bool,
    /// Of the ingress arm.
    pub mtu: u32,
    /// The kernel's interface carries all traffic, not only what is for this machine.
    pub kernel_carries: bool,
}

/// A gateway that a pool feeds, as it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fed {
    /// The pool.
    pub pool: AzurePool,
    /// Its tunnels.
    pub tunnels: Option<Tunnels>,
    /// The arm's MTU that its largest packets need.
    pub mtu: u32,
}

impl Wants {
    /// Out of the configuration.
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
    // Ethernet, VXLAN, UDP, and the outer IP header.
    let around = if pool.ipv6 { 70 } else { 50 };
    Fed {
        pool: pool.clone(),
        tunnels: tunnels.map(|(external, internal)| Tunnels { external, internal }),
        mtu: gateway.map_or(0, |gateway| u32::from(gateway.inner_mtu) + around),
    }
}
