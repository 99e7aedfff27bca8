//! Extraction of the configuration that the checks of `weir cloud doctor` need.

use std::net::IpAddr;

use config::checked::{Azure as Settings, AzurePool, Config, GatewayKind, Plane, Side, Wire};

use crate::advice::ApplianceSettings;
use crate::types::{TunnelEnd, Tunnels};

/// The part of the configuration that the checks need.
#[derive(Clone, Debug)]
pub struct CheckConfig {
    /// Azure settings: pools, membership and credential.
    pub settings: Settings,
    /// Settings for the advice.
    pub appliance_settings: ApplianceSettings,
    /// Each configured pool with its gateway, in the order of `settings.pools`.
    pub gateways: Vec<PoolGateway>,
    /// Addresses of the ingress port, in order of preference.
    pub addresses: Vec<IpAddr>,
    /// True if forwarded packets can have source or destination addresses other than the
    /// interface's own.
    pub forwards: bool,
    /// MTU of the ingress port.
    pub mtu: u32,
    /// True if the kernel interface carries all traffic (`plane = "xdp"`); with DPDK it carries
    /// only the traffic of the machine itself.
    pub kernel_data_path: bool,
}

/// A configured pool, and the settings of its `[[gateway]]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolGateway {
    /// The pool.
    pub pool: AzurePool,
    /// Configured tunnels of the pool's address family; `None` unless both are configured.
    pub tunnels: Option<Tunnels>,
    /// MTU that the gateway's largest packets need, in bytes; 0 if the `[[gateway]]` does not
    /// exist.
    pub mtu: u32,
}

impl CheckConfig {
    /// Extracts the settings from the configuration.
    pub fn of(config: &Config, settings: &Settings) -> CheckConfig {
        CheckConfig {
            settings: settings.clone(),
            appliance_settings: ApplianceSettings::of(config),
            gateways: settings.pools.iter().map(|pool| pool_gateway(config, pool)).collect(),
            addresses: config.ingress.addresses.iter().map(|prefix| prefix.addr).collect(),
            forwards: config.egress.is_some() || !config.nat.addresses.is_empty(),
            mtu: config.ingress.mtu.into(),
            kernel_data_path: config.plane == Plane::Xdp,
        }
    }
}

fn pool_gateway(config: &Config, pool: &AzurePool) -> PoolGateway {
    let azure = config.gateways.iter().filter(|gateway| gateway.kind == GatewayKind::Azure);
    let gateway = azure.into_iter().find(|gateway| gateway.name == pool.gateway);
    let end = |of: Side| {
        let mut tunnels = gateway?.tunnels.iter().filter(|t| t.local.is_ipv6() == pool.ipv6);
        tunnels.find_map(|tunnel| match tunnel.wire {
            Wire::Vxlan { vni, side, .. } if side == of => {
                Some(TunnelEnd { port: tunnel.port, vni })
            }
            _ => None,
        })
    };
    let tunnels = end(Side::External).zip(end(Side::Internal));
    // Inner Ethernet (14), VXLAN (8), UDP (8), and outer IP header (20 or 40).
    let overhead = if pool.ipv6 { 70 } else { 50 };
    PoolGateway {
        pool: pool.clone(),
        tunnels: tunnels.map(|(external, internal)| Tunnels { external, internal }),
        mtu: gateway.map_or(0, |gateway| u32::from(gateway.inner_mtu) + overhead),
    }
}
