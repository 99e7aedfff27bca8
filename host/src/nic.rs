//! The network devices of the machine.
//!
//! [`Inventory::read`] lists every PCI and VMBUS network device, whichever driver is bound to it,
//! and every other interface of the kernel.

mod network;
mod scan;
mod session;

use std::net::IpAddr;

use serde::Serialize;

use config::checked::DeviceName;

use crate::address::{BusAddress, MacAddress, PciAddress};
use crate::driver::{Driver, PciId};

pub use network::{Address, DefaultRoute, Network, NetworkError};
pub use session::Sessions;

/// The network devices of the machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inventory {
    /// Devices in the order of their bus addresses, then interfaces without a bus by name.
    pub nics: Vec<Nic>,
}

/// A network device, with its interfaces in the kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Nic {
    /// Where the device is.
    pub location: Location,
    /// Vendor and device id of a PCI device.
    pub pci_id: Option<PciId>,
    /// The driver of the kernel that is bound to the device.
    pub kernel_driver: Option<String>,
    /// Whether that driver serves the kernel or a process.
    pub used_by: UsedBy,
    /// The driver of DPDK for this device; `None` if the driver table has none.
    #[serde(serialize_with = "driver_name")]
    pub dpdk_driver: Option<&'static Driver>,
    /// Interfaces of the device in the kernel. A MANA device has several.
    pub interfaces: Vec<Interface>,
    /// Driver, interfaces and MAC addresses before the device was bound for DPDK, from the record
    /// of the binding.
    pub before: Option<Before>,
    /// NUMA node; `None` if the firmware gives none.
    pub numa_node: Option<u32>,
    /// IOMMU group; `None` if the device is behind no IOMMU.
    pub iommu_group: Option<IommuGroup>,
    /// The other device of an Azure pair: the VF of a synthetic NIC, or the synthetic NIC of a VF.
    pub pair: Option<BusAddress>,
}

fn driver_name<S: serde::Serializer>(
    driver: &Option<&'static Driver>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    driver.map(|driver| driver.name).serialize(serializer)
}

/// Where a device is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// On a bus on which it can be bound to drivers.
    Bus(BusAddress),
    /// A virtual interface, without a device; the value is its kind, such as `bond`, `veth`, `tap`.
    Virtual(String),
    /// On another bus, such as USB or virtio without PCI.
    Other(String),
}

/// What uses a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsedBy {
    /// The kernel's network stack.
    Kernel,
    /// A driver that gives the device to a process is bound: vfio-pci or a UIO driver.
    Process,
    /// Nothing: no driver is bound.
    Nothing,
}

/// An interface of the kernel.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interface {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// MAC address; `None` for an interface without Ethernet.
    pub mac: Option<MacAddress>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Speed in Mbit/s; `None` if unknown, as while the link is down.
    pub speed_mbit: Option<u32>,
    /// State of the link, `operstate` of the kernel: `up`, `down`, `unknown`, ...
    pub link: String,
    /// The interface that this one is part of: a bond, a bridge, or the synthetic NIC of a VF.
    pub master: Option<String>,
    /// Interfaces below this one.
    pub lower: Vec<String>,
    /// IP addresses with their prefix lengths.
    pub addresses: Vec<Address>,
    /// Default routes in use through this interface, or through one above it.
    pub default_routes: Vec<DefaultRoute>,
    /// Local addresses of ssh sessions, on this interface or on one above it.
    pub sessions: Vec<IpAddr>,
}

/// An IOMMU group: devices that the IOMMU cannot isolate from each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct IommuGroup {
    /// Number of the group in `/sys/kernel/iommu_groups`.
    pub number: u32,
    /// How addresses are translated: `DMA`, `DMA-FQ`, `identity`; `None` in kernels before 5.11.
    pub translation: Option<String>,
    /// Other devices of the group, network devices or not.
    pub others: Vec<PciAddress>,
}

/// The state of a device before it was bound for DPDK.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Before {
    /// The driver of the kernel.
    pub kernel_driver: Option<String>,
    /// Names of the interfaces.
    pub interfaces: Vec<String>,
    /// MAC addresses of the interfaces.
    pub macs: Vec<MacAddress>,
}

impl Nic {
    /// Returns the address on the bus on which drivers can be bound to the device.
    pub fn bus_address(&self) -> Option<BusAddress> {
        match self.location {
            Location::Bus(address) => Some(address),
            Location::Virtual(_) | Location::Other(_) => None,
        }
    }

    /// Returns the bus address, or the interface's name for a device without one.
    pub fn name(&self) -> String {
        match (&self.location, self.interfaces.first()) {
            (Location::Bus(address), _) => address.to_string(),
            (_, Some(interface)) => interface.name.clone(),
            (_, None) => String::new(),
        }
    }

    /// Returns the MAC addresses of the interfaces, and those from before the binding.
    pub fn macs(&self) -> Vec<MacAddress> {
        let before = self.before.iter().flat_map(|before| before.macs.iter().copied());
        let mut macs: Vec<MacAddress> =
            self.interfaces.iter().filter_map(|interface| interface.mac).chain(before).collect();
        macs.dedup();
        macs
    }

    /// Returns the reason why the device must stay with the kernel: a default route or an ssh
    /// session depends on it, or another network namespace uses it. `None` if it may be bound for
    /// DPDK.
    pub fn protection(&self) -> Option<String> {
        if self.used_by == UsedBy::Kernel && self.interfaces.is_empty() {
            let driver = self.kernel_driver.as_deref().unwrap_or_default();
            return Some(format!(
                "it is bound to {driver}, and its interface is in another network namespace"
            ));
        }
        let protection = |interface: &Interface| {
            if let Some(address) = interface.sessions.first() {
                return Some(format!("{} carries an ssh session ({address})", interface.name));
            }
            let route = interface.default_routes.first()?;
            Some(format!("{} carries the default route ({route})", interface.name))
        };
        self.interfaces.iter().find_map(protection)
    }

    fn is_named(&self, name: &DeviceName) -> bool {
        match name {
            DeviceName::Bus(address) => self.bus_address() == Some(*address),
            DeviceName::Mac(mac) => self.macs().contains(mac),
            DeviceName::Vdev(_) => false,
            DeviceName::Interface(name) => {
                let before = self.before.iter().flat_map(|before| &before.interfaces);
                self.interfaces
                    .iter()
                    .map(|interface| &interface.name)
                    .chain(before)
                    .any(|n| n == name)
            }
        }
    }
}

/// No device has the name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no network device {name}; `weir nic list` shows the existing ones: {existing}")]
pub struct NoSuchNic {
    name: String,
    existing: String,
}

impl Inventory {
    /// Returns the devices with this name. A MAC address names both devices of an Azure pair.
    /// Interfaces without a bus address are left out if a device with one has the name.
    pub fn find(&self, name: &DeviceName) -> Result<Vec<&Nic>, NoSuchNic> {
        let mut found: Vec<&Nic> = self.nics.iter().filter(|nic| nic.is_named(name)).collect();
        // Bonds, bridges and VLANs have the MAC address of a device below them.
        if found.iter().any(|nic| nic.bus_address().is_some()) {
            found.retain(|nic| nic.bus_address().is_some());
        }
        if found.is_empty() {
            let existing: Vec<String> = self.nics.iter().map(Nic::name).collect();
            return Err(NoSuchNic { name: name.to_string(), existing: existing.join(", ") });
        }
        Ok(found)
    }

    /// Returns the device at this address.
    pub fn at(&self, address: BusAddress) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.bus_address() == Some(address))
    }
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
