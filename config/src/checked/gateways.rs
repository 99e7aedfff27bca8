//! Gateways and their tunnels.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArmName, NoService, Prefix, TooBig};

/// A `[[gateway]]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Gateway {
    /// Its name, unique.
    pub name: String,
    /// Which cloud's.
    pub kind: GatewayKind,
    /// What becomes of its packets that are for no service.
    pub no_service: NoService,
    /// Largest inner IP packet, bytes.
    pub inner_mtu: u16,
    /// What becomes of larger ones.
    pub too_big: TooBig,
    /// Fill in the outer UDP checksum of what we send in its tunnels, where it could be zero.
    pub outer_checksum: bool,
    /// Its tunnels, one (AWS) or two (Azure: external, then internal) per local address.
    pub tunnels: Vec<Tunnel>,
}

impl Gateway {
    /// Takes ports and VNIs as the gateway's pool has them now, external and internal. What flows
    /// and frontends are scoped by stays what the file says: flows outlive such a change.
    pub fn carry(&mut self, external: VxlanEnd, internal: VxlanEnd) {
        for tunnel in &mut self.tunnels {
            if let Wire::Vxlan { vni, side, .. } = &mut tunnel.wire {
                let end = if *side == Side::External { external } else { internal };
                (tunnel.port, *vni) = (end.port, end.vni);
            }
        }
    }

    /// Ports and VNIs of the tunnels, external and internal; none of one that has no such two.
    pub fn carried(&self) -> Option<(VxlanEnd, VxlanEnd)> {
        let end = |wanted| {
            self.tunnels.iter().find_map(|tunnel| match tunnel.wire {
                Wire::Vxlan { vni, side, .. } if side == wanted => {
                    Some(VxlanEnd { port: tunnel.port, vni })
                }
                _ => None,
            })
        };
        Some((end(Side::External)?, end(Side::Internal)?))
    }
}

/// Which cloud's gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayKind {
    /// GENEVE with three options, one tunnel per address.
    Aws,
    /// VXLAN, an external and an internal tunnel per address.
    Azure,
}

/// One tunnel of a gateway, ready for a table record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// Our address, the outer destination.
    pub local: IpAddr,
    /// The arm that has that address.
    pub arm: ArmName,
    /// Admitted outer sources of the local address's family, 1..=8.
    pub sources: Vec<Prefix>,
    /// Outer UDP destination port.
    pub port: u16,
    /// GENEVE or VXLAN with what belongs to it.
    pub wire: Wire,
}

/// The encapsulation of a gateway's tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// RFC 8926.
    Geneve {
        /// Class of the gateway's options; 0x0108 on AWS.
        option_class: u16,
    },
    /// RFC 7348.
    Vxlan {
        /// Network identifier, 24 bits.
        vni: u32,
        /// External or internal.
        side: Side,
        /// Index in [`Gateway::tunnels`] of the tunnel that `return` crosses to; absent when
        /// `cross = false`.
        peer: Option<usize>,
        /// What flows of both sides are scoped by (the external VNI), the `scope` of frontends.
        scope_key: u64,
    },
}

/// Azure's two sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// From and to the internet.
    External,
    /// From and to the application.
    Internal,
}

/// One of Azure's two tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VxlanEnd {
    /// Outer UDP destination port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// VXLAN network identifier.
    #[schemars(range(min = 0, max = 16777215))]
    pub vni: u32,
}
