//! Arms and NAT, validated: devices, queues and addresses.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Device, Interface, Prefix};

/// Name of an arm; the number is the one in table records.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum ArmName {
    /// The arm that faces the gateways.
    Ingress = 0,
    /// The arm that faces the backends.
    Egress = 1,
}

impl ArmName {
    /// Returns the name used in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            ArmName::Ingress => "ingress",
            ArmName::Egress => "egress",
        }
    }
}

/// The `[ingress]` or `[egress]` section.
#[derive(Clone, PartialEq, Debug)]
pub struct Arm {
    /// The NIC or virtual device.
    pub device: Device,
    /// The appliance's addresses on this arm, at least one; at most 16 on both arms together.
    pub addresses: Vec<Interface>,
    /// Routers for default routes through this arm, at most one per family, each on link.
    pub gateways: Vec<IpAddr>,
    /// IPv4 network from which outer IPIP sources are taken; `None` if the arm's address is the
    /// only source.
    pub ipip_sources: Option<Prefix>,
    /// Largest IP packet on the wire in bytes, outer headers included: 1280 to 9600.
    pub mtu: u16,
    /// Receive queues, from 1 to the number of lcores. (Transmit queues: one per lcore.)
    pub queues: u16,
    /// Descriptors of each receive queue; a power of two.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue; a power of two.
    pub tx_descriptors: u16,
    /// Name of the kernel's exception interface (TAP), at most 15 bytes.
    pub tap: String,
}

/// Default of [`Arm::rx_descriptors`] and [`Arm::tx_descriptors`].
pub const DEFAULT_DESCRIPTORS: u16 = 1024;

impl Arm {
    /// Returns the number of descriptors of all receive queues and of one transmit queue per lcore.
    pub fn descriptors(&self, lcores: u64) -> u64 {
        u64::from(self.queues) * u64::from(self.rx_descriptors)
            + lcores * u64::from(self.tx_descriptors)
    }

    /// Returns the first address of a family, if there is one.
    pub fn address(&self, v6: bool) -> Option<IpAddr> {
        self.addresses.iter().map(|i| i.addr).find(|a| a.is_ipv6() == v6)
    }
}

/// The `[nat]` section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nat {
    /// Source addresses, at most 8. If empty, services may not use mode nat.
    pub addresses: Vec<NatAddress>,
    /// First source port.
    pub first_port: u16,
    /// Last source port.
    pub last_port: u16,
}

/// A source address of NAT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatAddress {
    /// The source address.
    pub addr: IpAddr,
    /// The arm on whose network the address is reachable.
    pub arm: ArmName,
}
