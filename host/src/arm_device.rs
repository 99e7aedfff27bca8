//! The devices of the arms, as they are on this machine.

use config::Config;
use config::checked::{ArmName, Device, DeviceName};

use crate::address::BusAddress;
use crate::driver::{self, Driver};
use crate::nic::{Inventory, Nic};

/// The device of an arm.
#[derive(Clone, PartialEq, Debug)]
pub struct ArmDevice<'a> {
    /// The arm, ingress or egress.
    pub arm: ArmName,
    /// The device as configured, without the arguments of its driver.
    pub name: &'a str,
    /// The device that has this name on this machine.
    pub found: Found<'a>,
}

/// The device that a configured name refers to.
#[derive(Clone, PartialEq, Debug)]
pub enum Found<'a> {
    /// A device of the machine.
    Nic(&'a Nic),
    /// A virtual device of DPDK.
    Virtual {
        /// Its driver; `None` if Weir's driver table has none of this name.
        driver: Option<&'static Driver>,
        /// The kernel interface that it uses, from its `iface` argument.
        interface: Option<&'a str>,
    },
    /// No device has this name; the value is the reason.
    Nothing(String),
}

impl ArmDevice<'_> {
    /// Returns the configuration key with its value, for the beginning of a message.
    pub fn key(&self) -> String {
        format!("{}.device = \"{}\"", self.arm.as_str(), self.name)
    }

    /// Returns the NIC, if the device is one.
    pub fn nic(&self) -> Option<&Nic> {
        match self.found {
            Found::Nic(nic) => Some(nic),
            Found::Virtual { .. } | Found::Nothing(_) => None,
        }
    }

    /// Returns the driver of DPDK for the device, if the driver table has one.
    pub fn dpdk_driver(&self) -> Option<&'static Driver> {
        match self.found {
            Found::Nic(nic) => nic.dpdk_driver,
            Found::Virtual { driver, .. } => driver,
            Found::Nothing(_) => None,
        }
    }

    /// Returns the interface of the kernel on the device, if it has one.
    pub fn interface(&self) -> Option<&str> {
        match self.found {
            // A MANA device has an interface for each port. The one with the configured name is
            // meant; a device that is configured by its bus address is represented by its first.
            Found::Nic(nic) => {
                let names = || nic.interfaces.iter().map(|interface| interface.name.as_str());
                names().find(|name| *name == self.name).or_else(|| names().next())
            }
            Found::Virtual { interface, .. } => interface,
            Found::Nothing(_) => None,
        }
    }
}

/// Returns the device of each configured arm.
pub fn arm_devices<'a>(config: &'a Config, inventory: &'a Inventory) -> Vec<ArmDevice<'a>> {
    config.arms().map(|(arm, settings)| arm_device(arm, &settings.device, inventory)).collect()
}

/// Returns the device of an arm.
pub fn arm_device<'a>(arm: ArmName, device: &'a Device, inventory: &'a Inventory) -> ArmDevice<'a> {
    let name = device.as_str().split(',').next().unwrap_or_default();
    let found = match device.name() {
        DeviceName::Vdev(name) => {
            Found::Virtual { driver: driver::by_name(name), interface: device.interface() }
        }
        DeviceName::Bus(_) | DeviceName::Mac(_) | DeviceName::Interface(_) => {
            find(device.name(), inventory)
        }
    };
    ArmDevice { arm, name, found }
}

fn find<'a>(name: &DeviceName, inventory: &'a Inventory) -> Found<'a> {
    match inventory.find(name) {
        Err(error) => Found::Nothing(error.to_string()),
        Ok(nics) => {
            // On Azure, a synthetic NIC and its virtual function have the same MAC address. DPDK
            // drives the function.
            let is_function = |nic: &&Nic| matches!(nic.bus_address(), Some(BusAddress::Pci(_)));
            let chosen = nics.iter().copied().find(is_function).or(nics.first().copied());
            chosen.map_or_else(|| Found::Nothing(format!("no device {name}")), Found::Nic)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::fake::Fake;

    fn config(ingress: &str, egress: &str) -> Config {
        let arm = |name: &str, device: &str, network: u8| {
            format!("[{name}]\ndevice = \"{device}\"\naddress = \"10.0.{network}.10/24\"\n")
        };
        let text =
            format!("plane = \"xdp\"\n{}{}", arm("ingress", ingress, 1), arm("egress", egress, 2));
        config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.render()))
    }

    #[test]
    fn a_device_is_found_by_address_or_interface() {
        let (machine, config) = (Fake::aws(), config("0000:00:06.0,llq_policy=3", "ens5"));
        let inventory = machine.inventory();
        let devices = arm_devices(&config, &inventory);
        let shown: Vec<_> =
            devices.iter().map(|device| (device.key(), device.interface())).collect();
        let expected = [
            ("ingress.device = \"0000:00:06.0\"".to_owned(), Some("ens6")),
            ("egress.device = \"ens5\"".to_owned(), Some("ens5")),
        ];
        assert_eq!(shown, expected);
        assert_eq!(devices[0].dpdk_driver().map(|driver| driver.name), Some("net_ena"));
    }

    #[test]
    fn missing_and_virtual_devices_are_no_nics() {
        let machine = Fake::aws();
        let (inventory, config) =
            (machine.inventory(), config("eth9", "net_af_packet1,iface=ens6"));
        let devices = arm_devices(&config, &inventory);
        let Found::Nothing(why) = &devices[0].found else { panic!("{devices:?}") };
        assert!(why.contains("0000:00:05.0"), "{why}");
        assert_eq!((devices[0].interface(), devices[0].nic()), (None, None));
        assert_eq!(devices[1].interface(), Some("ens6"));
        assert_eq!(devices[1].dpdk_driver().map(|driver| driver.name), Some("net_af_packet"));
    }
}
