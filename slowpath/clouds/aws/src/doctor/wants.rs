//! What of the configuration the checks are about.

use std::net::IpAddr;

use config::checked::{Aws as Settings, AwsMode, Config, GatewayKind, Plane, Prefix, Wire};

use crate::advice::Ours;

/// What of the configuration matters here.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Mode, tags and roles.
    pub settings: Settings,
    /// For the advice.
    pub ours: Ours,
    /// Ports that GENEVE comes to.
    pub ports: Vec<u16>,
    /// Networks that it may come from, and probes with it.
    pub sources: Vec<Prefix>,
    /// Of the ingress arm, the preferred first.
    pub addresses: Vec<IpAddr>,
    /// Of the egress arm; none with one arm.
    pub egress: Vec<IpAddr>,
    /// Packets leave with addresses that are not of the interface, or come for some.
    pub forwards: bool,
    /// Of the ingress arm.
    pub mtu: u32,
    /// The kernel's interface carries all traffic, not only what is for this machine.
    pub kernel_carries: bool,
}

impl Wants {
    /// Out of the configuration.
    pub fn of(config: &Config, settings: &Settings) -> Wants {
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
        Wants {
            settings: settings.clone(),
            ours: Ours::of(config, settings.life),
            ports,
            sources,
            addresses: addresses(&config.ingress),
            egress: config.egress.as_ref().map(addresses).unwrap_or_default(),
            forwards: routes || config.egress.is_some() || !config.nat.addresses.is_empty(),
            mtu: config.ingress.mtu.into(),
            kernel_carries: config.plane == Plane::Xdp,
        }
    }

    /// Mode routes, which has no gateway.
    pub fn routes(&self) -> bool {
        matches!(self.settings.mode, AwsMode::Routes { .. })
    }
}
