//! The arms and NAT: devices and addresses.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Interface, Prefix};

/// Which arm; the number is the one in the tables' records.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum ArmName {
    /// Towards the gateway.
    Ingress = 0,
    /// Towards the backends.
    Egress = 1,
}

impl ArmName {
    /// As it is written in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            ArmName::Ingress => "ingress",
            ArmName::Egress => "egress",
        }
    }
}

/// The NIC of an arm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Device {
    /// A PCI address `0000:00:06.0`, bound to vfio-pci (or a bifurcated driver); `-a`.
    Pci(String),
    /// A DPDK virtual device with its arguments, `net_af_packet0,iface=veth0`; `--vdev`.
    Vdev(String),
    /// An interface of the kernel's, for plane xdp alone.
    Interface(String),
}

impl Device {
    /// As it was written, which is what EAL takes.
    pub fn as_str(&self) -> &str {
        let (Device::Pci(text) | Device::Vdev(text) | Device::Interface(text)) = self;
        text
    }

    /// The kernel's interface that it stands on, where that is written.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Device::Pci(_) => None,
            Device::Vdev(text) => text.split(',').find_map(|part| part.strip_prefix("iface=")),
            Device::Interface(name) => Some(name),
        }
    }

    /// The name by which DPDK knows the port: the PCI address, or what precedes the first comma.
    pub fn port_name(&self) -> &str {
        self.as_str().split(',').next().unwrap_or_default()
    }
}

/// `[ingress]`, `[egress]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Arm {
    /// The NIC or virtual device.
    pub device: Device,
    /// Our addresses on it, at least one; 16 at most over both arms.
    pub addresses: Vec<Interface>,
    /// Routers for a default route by this arm, at most one per family, each on link.
    pub gateways: Vec<IpAddr>,
    /// IPv4 network from which outer sources of IPIP are drawn; none where the arm's address is
    /// the only one.
    pub ipip_sources: Option<Prefix>,
    /// Largest IP packet on the wire, outer headers included, bytes: 1280..=9600.
    pub mtu: u16,
    /// Receive queues, 1..=number of lcores. (Transmit queues: one per lcore.)
    pub queues: u16,
    /// Descriptors of each receive queue, a power of two.
    pub rx_descriptors: u16,
    /// Descriptors of each transmit queue, a power of two.
    pub tx_descriptors: u16,
    /// Name of the kernel exception port (TAP), at most 15 bytes.
    pub tap: String,
}

impl Arm {
    /// Descriptors of all its receive queues and of a transmit queue per lcore.
    pub fn descriptors(&self, lcores: u64) -> u64 {
        u64::from(self.queues) * u64::from(self.rx_descriptors)
            + lcores * u64::from(self.tx_descriptors)
    }

    /// The first address of a family, if it has one.
    pub fn address(&self, v6: bool) -> Option<IpAddr> {
        self.addresses.iter().map(|i| i.addr).find(|a| a.is_ipv6() == v6)
    }
}

/// `[nat]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nat {
    /// Source addresses, at most 8; empty means that no service may use mode nat.
    pub addresses: Vec<NatAddress>,
    /// First source port.
    pub first_port: u16,
    /// Last source port.
    pub last_port: u16,
}

/// An address that NAT uses as a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NatAddress {
    /// The address.
    pub addr: IpAddr,
    /// The arm by whose network it is reached.
    pub arm: ArmName,
}
