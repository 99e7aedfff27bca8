//! Gateways and their tunnels, validated.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ArmName, NoService, Prefix, TooBig};

/// A `[[gateway]]` section.
#[derive(Clone, PartialEq, Debug)]
pub struct Gateway {
    /// Unique name of the gateway.
    pub name: String,
    /// Kind of gateway, by cloud.
    pub kind: GatewayKind,
    /// Action for packets from the gateway that match no service.
    pub no_service: NoService,
    /// Largest inner IP packet in bytes.
    pub inner_mtu: u16,
    /// Action for larger inner packets.
    pub too_big: TooBig,
    /// Compute the outer UDP checksum of packets sent to the gateway where it may be zero.
    pub outer_checksum: bool,
    /// Tunnels to the gateway: for each local address one (AWS) or two (Azure: external, then
    /// internal).
    pub tunnels: Vec<Tunnel>,
}

impl Gateway {
    /// Adopts the ports and VNIs that the gateway's pool has now. The scope keys of flows and
    /// frontends keep the configured external VNI, so that flows survive a change of the pool.
    pub fn set_vxlan_ends(&mut self, external: VxlanEnd, internal: VxlanEnd) {
        for tunnel in &mut self.tunnels {
            if let Wire::Vxlan { vni, side, .. } = &mut tunnel.wire {
                let end = if *side == Side::External { external } else { internal };
                (tunnel.port, *vni) = (end.port, end.vni);
            }
        }
    }

    /// Returns ports and VNIs of the external and the internal tunnel, or `None` for a gateway
    /// without these two.
    pub fn vxlan_ends(&self) -> Option<(VxlanEnd, VxlanEnd)> {
        let end = |wanted_side| {
            self.tunnels.iter().find_map(|tunnel| match tunnel.wire {
                Wire::Vxlan { vni, side, .. } if side == wanted_side => {
                    Some(VxlanEnd { port: tunnel.port, vni })
                }
                _ => None,
            })
        };
        Some((end(Side::External)?, end(Side::Internal)?))
    }
}

/// Kind of gateway, by cloud.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GatewayKind {
    /// AWS: GENEVE with three options, one tunnel per address.
    Aws,
    /// Azure: VXLAN, an external and an internal tunnel per address.
    Azure,
}

impl GatewayKind {
    /// Returns the number of bytes that the gateway's tunnel adds. Over IPv4: IP 20, UDP 8, then
    /// GENEVE 8 and AWS's three options 32, or VXLAN 8 and Ethernet 14. An outer IPv6 header is 20
    /// bytes larger.
    pub const fn overhead(self, v6: bool) -> u16 {
        let v4 = match self {
            GatewayKind::Aws => 20 + 8 + 8 + 32,
            GatewayKind::Azure => 20 + 8 + 8 + 14,
        };
        if v6 { v4 + 20 } else { v4 }
    }
}

/// One tunnel of a gateway, ready for a table record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tunnel {
    /// The appliance's address, the outer destination.
    pub local: IpAddr,
    /// The arm that has the address.
    pub arm: ArmName,
    /// Allowed outer sources of the local address's family, 1 to 8.
    pub sources: Vec<Prefix>,
    /// Outer UDP destination port.
    pub port: u16,
    /// The encapsulation and its parameters.
    pub wire: Wire,
}

/// Encapsulation of a gateway's tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// GENEVE (RFC 8926).
    Geneve {
        /// Class of the gateway's options; 0x0108 on AWS.
        option_class: u16,
    },
    /// VXLAN (RFC 7348).
    Vxlan {
        /// VXLAN network identifier, 24 bits.
        vni: u32,
        /// External or internal side.
        side: Side,
        /// Index in [`Gateway::tunnels`] of the tunnel through which packets that match no service
        /// return to the gateway; `None` for the tunnel from which they came (`cross = false`).
        peer: Option<usize>,
        /// Scope key of the flows of both sides (the external VNI), compared with the `scope` of
        /// frontends.
        scope_key: u64,
    },
}

/// The two sides of an Azure gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// From and to the internet.
    External,
    /// From and to the application.
    Internal,
}

/// Port and VNI of one of Azure's two tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VxlanEnd {
    /// Outer UDP destination port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// VXLAN network identifier, 24 bits.
    #[schemars(range(min = 0, max = 16777215))]
    pub vni: u32,
}
