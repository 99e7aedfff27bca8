//! Extraction of the configuration that the checks of `weir cloud doctor` need.

use std::net::IpAddr;

use config::checked::{Aws as Settings, AwsMode, Config, GatewayKind, Plane, Prefix, Wire};

use crate::advice::LocalSettings;

/// The part of the configuration that the checks need.
#[derive(Clone, Debug)]
pub struct CheckConfig {
    /// AWS settings: mode, tags and roles.
    pub settings: Settings,
    /// Settings for the advice.
    pub local: LocalSettings,
    /// UDP ports of the GENEVE tunnels of AWS gateways.
    pub ports: Vec<u16>,
    /// Networks from which AWS gateways may send GENEVE and probes.
    pub sources: Vec<Prefix>,
    /// Addresses of the ingress port, in order of preference.
    pub addresses: Vec<IpAddr>,
    /// Addresses of the egress port; empty with a single port.
    pub egress: Vec<IpAddr>,
    /// True if forwarded packets can have source or destination addresses other than the
    /// interface's own.
    pub forwards: bool,
    /// MTU of the ingress port.
    pub mtu: u32,
    /// True if the kernel interface carries all traffic (`plane = "xdp"`); with DPDK it carries
    /// only the traffic of the machine itself.
    pub kernel_carries: bool,
}

impl CheckConfig {
    /// Extracts the settings from the configuration.
    pub fn of(config: &Config, settings: &Settings) -> CheckConfig {
        let aws = config.gateways.iter().filter(|gateway| gateway.kind == GatewayKind::Aws);
        let (mut ports, mut sources) = (Vec::new(), Vec::<Prefix>::new());
        for tunnel in aws.flat_map(|gateway| &gateway.tunnels) {
            if matches!(tunnel.wire, Wire::Geneve { .. }) && !ports.contains(&tunnel.port) {
                ports.push(tunnel.port);
            }
            sources.extend(&tunnel.sources);
        }
        sources.sort();
        sources.dedup();
        let routes = matches!(settings.mode, AwsMode::Routes { .. });
        let addresses = |arm: &config::checked::Arm| arm.addresses.iter().map(|p| p.addr).collect();
        CheckConfig {
            settings: settings.clone(),
            local: LocalSettings::of(config, settings.lifecycle),
            ports,
            sources,
            addresses: addresses(&config.ingress),
            egress: config.egress.as_ref().map(addresses).unwrap_or_default(),
            forwards: routes || config.egress.is_some() || !config.nat.addresses.is_empty(),
            mtu: config.ingress.mtu.into(),
            kernel_carries: config.plane == Plane::Xdp,
        }
    }

    /// Returns true in mode routes, which uses no gateway load balancer: the leader of a cluster
    /// points the VPC's default routes to itself.
    pub fn routes(&self) -> bool {
        matches!(self.settings.mode, AwsMode::Routes { .. })
    }
}
