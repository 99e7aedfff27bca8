//! What an arm's device is on this machine: where DPDK finds it, and how it is opened again.

use config::checked::{ArmName, Device, DeviceName};
use dpdk_bindings::{Eal, Port, PortError, check_device_syntax};
use host::Root;
use host::address::{BusAddress, MacAddress};
use host::arm_device::{Found, arm_device};
use host::bind::{self, BindOptions, Records, SystemFiles, plan_bind};
use host::driver::{UserDriver, Version};
use host::nic::{Inventory, Network, Nic, Sessions};
use std::path::{Path, PathBuf};

use super::rules::{self, Setup};

/// DPDK drivers that use an interface of the kernel, given by `iface=`.
const INTERFACE_DRIVERS: [&str; 3] = ["net_af_packet", "net_af_xdp", "net_pcap"];

/// The DPDK driver whose devices have several ports, which it opens by their MAC addresses.
const MULTI_PORT_DRIVER: &str = "net_mana";

/// The device of an arm as DPDK opens it.
#[derive(Clone, PartialEq, Debug)]
pub struct Target {
    location: Location,
    /// Name and arguments for DPDK, for example `0000:00:06.0,llq_policy=3`.
    devargs: String,
}

/// The location of a device.
#[derive(Clone, PartialEq, Debug)]
enum Location {
    /// On a bus of the machine.
    Bus {
        address: BusAddress,
        /// MAC address that selects one of the device's ports.
        mac: Option<MacAddress>,
        /// The driver through which DPDK uses the device; `None` for one that stays with the
        /// kernel's driver.
        driver: Option<UserDriver>,
    },
    /// In DPDK only.
    Virtual {
        /// Name of the port.
        name: String,
        /// The folder of the interface that it uses, if it uses one.
        interface: Option<PathBuf>,
    },
}

/// Reads the machine's network devices. Those bound to a driver of DPDK have the interface names
/// that they had before.
///
/// # Errors
/// Returns an error text that names the cause.
pub fn read_inventory(root: &Root) -> Result<Inventory, String> {
    let network = Network::read().map_err(|error| error.to_string())?;
    let mut inventory = Inventory::read(root, &network, &Sessions::default());
    let records = Records::new(Records::DIRECTORY);
    records.complete(&mut inventory).map_err(|error| error.to_string())?;
    Ok(inventory)
}

impl Target {
    /// Finds an arm's device on the machine below `root` (`/`, or a tree in tests).
    ///
    /// # Errors
    /// Returns an error text with a remedy if the device does not exist, if its driver demands
    /// something else, or if DPDK cannot parse its arguments. DPDK's own error would only name a
    /// missing port.
    pub fn find(
        name: ArmName,
        setup: Setup<'_>,
        inventory: &Inventory,
        root: &Root,
    ) -> Result<Target, String> {
        let device = &setup.arm.device;
        let target = match arm_device(name, device, inventory).found {
            Found::Nic(nic) => {
                if let Some(driver) = nic.dpdk_driver {
                    rules::check(driver, setup)?;
                }
                on_bus(nic, device, setup.dpdk)?
            }
            Found::Virtual { .. } => virtual_device(device, &root.join(""))?,
            Found::Nothing(reason) => return Err(reason),
        };
        check_device_syntax(&target.devargs)
            .map_err(|errno| format!("DPDK cannot parse {:?}: {errno}", target.devargs))?;
        Ok(target)
    }

    /// Returns the EAL's argument that opens the device.
    pub fn eal_argument(&self) -> String {
        match self.location {
            Location::Bus { .. } => format!("--allow={}", self.devargs),
            Location::Virtual { .. } => format!("--vdev={}", self.devargs),
        }
    }

    /// Returns true for a device on the PCI bus.
    pub fn is_pci(&self) -> bool {
        matches!(self.location, Location::Bus { address: BusAddress::Pci(_), .. })
    }

    /// Returns true for a device that can be removed from the machine.
    pub fn is_removable(&self) -> bool {
        matches!(self.location, Location::Bus { .. })
    }

    /// Opens the device's port, after the EAL has opened the device.
    ///
    /// # Errors
    /// Returns the error from DPDK.
    pub fn open(&self, eal: &Eal) -> Result<Port, PortError> {
        match &self.location {
            Location::Virtual { name, .. } => Port::by_name(eal, name),
            Location::Bus { address, mac, .. } => {
                Port::of_device(eal, &address.to_string(), mac.map(|mac| mac.0))
            }
        }
    }

    /// Opens the device anew after it was removed.
    ///
    /// # Errors
    /// Returns the error from DPDK.
    pub fn probe(&self, eal: &Eal) -> Result<(), PortError> {
        eal.probe(&self.devargs)
    }

    /// Returns true if the machine has the device.
    pub fn is_present(&self) -> bool {
        match &self.location {
            Location::Bus { address, .. } => Root::default().exists(address.directory()),
            Location::Virtual { interface, .. } => {
                interface.as_ref().is_none_or(|path| path.exists())
            }
        }
    }

    /// Binds a device that returned to the driver through which DPDK used it: the kernel binds a
    /// new device to its own driver. A device with another MAC address than `expected` is left
    /// alone.
    ///
    /// # Errors
    /// Returns an error text that names the cause.
    pub fn bind_again(&self, expected: [u8; 6]) -> Result<(), String> {
        let Location::Bus { address, driver: Some(driver), .. } = &self.location else {
            return Ok(());
        };
        let root = Root::default();
        let inventory = read_inventory(&root)?;
        let nic = inventory.at(*address).ok_or_else(|| format!("no device {address}"))?;
        let macs = nic.macs();
        if nic.kernel_driver.as_deref() == Some(driver.as_str()) {
            return Ok(());
        }
        if !nic.interfaces.is_empty() && !macs.contains(&MacAddress(expected)) {
            let expected = MacAddress(expected);
            let found: Vec<String> = macs.iter().map(ToString::to_string).collect();
            return Err(format!(
                "it has the MAC address {} instead of {expected}: another NIC; restart fastpath to \
                 use it",
                found.join(", ")
            ));
        }
        // It was Weir's before; `force` only permits a NIC that DHCP has configured meanwhile.
        let options = BindOptions { driver: Some(*driver), force: true, ..BindOptions::default() };
        let plans = plan_bind(&root, &inventory, &[(nic, options)]);
        let records = Records::new(Records::DIRECTORY);
        for plan in plans.map_err(|error| error.to_string())? {
            bind::apply(&root, &inventory, &records, &plan, &mut SystemFiles)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Returns the target for a NIC on a bus of the machine.
fn on_bus(nic: &Nic, device: &Device, dpdk: Version) -> Result<Target, String> {
    let name = device.name();
    let Some(address) = nic.bus_address() else {
        return Err(format!(
            "{name} is an interface without a NIC behind it: write \"net_af_packet0,iface={name}\""
        ));
    };
    let several = nic.dpdk_driver.is_some_and(|driver| driver.name == MULTI_PORT_DRIVER);
    let of_interface = |name: &str| {
        let named = nic.interfaces.iter().find(|interface| interface.name == name)?;
        named.mac.filter(|_| several)
    };
    let argument = device.argument("mac").and_then(|text| text.parse().ok());
    let mac = argument.or_else(|| match name {
        DeviceName::Mac(mac) => Some(*mac),
        DeviceName::Interface(name) => of_interface(name),
        DeviceName::Bus(_) | DeviceName::Vdev(_) => None,
    });
    let mut parts = vec![address.to_string()];
    parts.extend(mac.filter(|_| several && argument.is_none()).map(|mac| format!("mac={mac}")));
    let large =
        nic.dpdk_driver.and_then(|driver| rules::large_headers(driver, dpdk, device.arguments()));
    parts.extend(large.map(str::to_owned));
    parts.extend((!device.arguments().is_empty()).then(|| device.arguments().to_owned()));
    let driver = nic.kernel_driver.as_deref().and_then(|driver| driver.parse().ok());
    Ok(Target { location: Location::Bus { address, mac, driver }, devargs: parts.join(",") })
}

/// Returns a virtual device, after checking that its interface exists below `root`.
fn virtual_device(device: &Device, root: &Path) -> Result<Target, String> {
    let name = device.name().to_string();
    let driver = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut folder = None;
    if INTERFACE_DRIVERS.contains(&driver) {
        let present = interfaces(root);
        let list = present.join(", ");
        match device.interface() {
            None if driver == "net_pcap" => {}
            None => {
                return Err(format!(
                    "the driver requires an interface: {name},iface=eth1; existing interfaces: \
                     {list}"
                ));
            }
            Some(required) if present.iter().any(|name| name == required) || present.is_empty() => {
                folder = Some(root.join("sys/class/net").join(required));
            }
            Some(required) => {
                return Err(format!(
                    "interface {required} does not exist; existing interfaces: {list}"
                ));
            }
        }
    }
    let location = Location::Virtual { name, interface: folder };
    Ok(Target { location, devargs: device.as_str().to_owned() })
}

/// Returns the names of the kernel's interfaces, which are those of this process's namespace.
fn interfaces(root: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(root.join("proc/self/net/dev")).unwrap_or_default();
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests;
