//! The device of an arm: how an operator names it, and the arguments of its DPDK driver.
//!
//! | form | example |
//! |---|---|
//! | PCI address | `0000:00:06.0`, `00:06.0` |
//! | VMBUS device (Hyper-V, Azure) | `7870bfc4-a1c0-4d4f-9c9d-1e3b6f0f1a2b` |
//! | MAC address | `02:0d:3a:11:22:33` |
//! | interface of the kernel | `eth1` |
//! | virtual device of DPDK | `net_af_packet0,iface=veth0` |
//!
//! After a comma, all forms take arguments for the device's driver in DPDK's syntax, for example
//! `0000:00:06.0,llq_policy=3`.

use std::fmt;
use std::str::FromStr;

use crate::device_address::{BusAddress, MacAddress};

/// Longest name of a DPDK device in bytes: `RTE_DEV_NAME_MAX_LEN` (64) includes the terminating
/// zero.
const MAX_NAME: usize = 63;

/// Name by which the configuration identifies a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeviceName {
    /// Address on the PCI or VMBUS bus.
    Bus(BusAddress),
    /// MAC address of the interface or port.
    Mac(MacAddress),
    /// Virtual device of DPDK: `net_af_packet0`.
    Vdev(String),
    /// Interface of the kernel.
    Interface(String),
}

/// The device of an arm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The device as configured.
    text: String,
    name: DeviceName,
    /// Position of the first argument in `text`.
    arguments: usize,
}

/// Error: the text does not name a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{fault}; {remedy}")]
pub struct DeviceError {
    /// What is wrong.
    pub fault: String,
    /// What to write.
    pub remedy: String,
}

impl Device {
    /// Parses a device as an operator writes it.
    ///
    /// # Errors
    /// Returns a [`DeviceError`] with the allowed forms.
    pub fn parse(text: &str) -> Result<Device, DeviceError> {
        let (name, arguments) = match text.split_once(',') {
            Some((name, arguments)) => (name, arguments.split(',').collect()),
            None => (text, Vec::new()),
        };
        let parsed = name.parse()?;
        for argument in arguments {
            let key = argument.split('=').next().unwrap_or_default();
            if key.is_empty() || argument.contains(char::is_whitespace) {
                return Err(DeviceError {
                    fault: format!("{argument:?} is not an argument of a driver"),
                    remedy: format!("write {name},key=value,key=value without spaces"),
                });
            }
        }
        let arguments = (name.len() + 1).min(text.len());
        Ok(Device { text: text.to_owned(), name: parsed, arguments })
    }

    /// Returns a device without a name, the placeholder for a rejected one.
    pub(crate) fn unnamed() -> Device {
        Device { text: String::new(), name: DeviceName::Vdev(String::new()), arguments: 0 }
    }

    /// Returns the device as configured.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the name of the device, in a normalized form.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// Returns the arguments of the driver, separated by commas; empty if there are none.
    pub fn arguments(&self) -> &str {
        &self.text[self.arguments..]
    }

    /// Returns the value of a driver argument.
    pub fn argument(&self, key: &str) -> Option<&str> {
        let pairs = self.arguments().split(',').filter_map(|argument| argument.split_once('='));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).next()
    }

    /// Returns the underlying interface of the kernel, if the configuration names it.
    pub fn interface(&self) -> Option<&str> {
        match &self.name {
            DeviceName::Vdev(_) => self.argument("iface"),
            DeviceName::Interface(name) => Some(name),
            DeviceName::Bus(_) | DeviceName::Mac(_) => None,
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceName::Bus(address) => address.fmt(f),
            DeviceName::Mac(mac) => mac.fmt(f),
            DeviceName::Vdev(text) | DeviceName::Interface(text) => f.write_str(text),
        }
    }
}

impl FromStr for DeviceName {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<DeviceName, DeviceError> {
        if let Ok(address) = text.parse() {
            return Ok(DeviceName::Bus(address));
        }
        if let Ok(mac) = text.parse() {
            return Ok(DeviceName::Mac(mac));
        }
        let vdev = text.starts_with("net_") && !text.contains(char::is_whitespace);
        if vdev && text.len() <= MAX_NAME {
            return Ok(DeviceName::Vdev(text.to_owned()));
        }
        if is_interface(text) {
            return Ok(DeviceName::Interface(text.to_owned()));
        }
        let fault = match text {
            "" => "this key is missing".to_owned(),
            _ => "not a device".to_owned(),
        };
        let remedy = "write a PCI address (\"0000:00:06.0\"), the UUID of a VMBUS device, a \
                      MAC address (\"02:0d:3a:11:22:33\"), an interface (\"eth1\"), or a \
                      virtual device of DPDK (\"net_af_packet0,iface=eth1\"); `weir nic list` \
                      shows the NICs";
        Err(DeviceError { fault, remedy: remedy.to_owned() })
    }
}

/// Returns whether Linux accepts the text as an interface name.
pub(crate) fn is_interface(name: &str) -> bool {
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    (1..=15).contains(&name.len()) && !name.contains(forbidden) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DeviceName {
        Device::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).name
    }

    #[test]
    fn all_forms_are_recognized_and_normalized() {
        let bus = |text: &str| match name(text) {
            DeviceName::Bus(address) => address.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(bus("0000:00:06.0"), "0000:00:06.0");
        assert_eq!(bus("3B:00.1"), "0000:3b:00.1");
        assert_eq!(bus("10000:e1:00.0"), "10000:e1:00.0");
        let uuid = "7E1A2D4B-5c6f-4a1b-9c3d-0123456789ab";
        assert_eq!(bus(uuid), uuid.to_lowercase());
        let mac = name("02:0D:3a:11:22:33");
        assert_eq!(mac, DeviceName::Mac(MacAddress([2, 0x0d, 0x3a, 0x11, 0x22, 0x33])));
        assert_eq!(mac.to_string(), "02:0d:3a:11:22:33");
        assert_eq!(name("net_null0"), DeviceName::Vdev("net_null0".into()));
        assert_eq!(name("eth1"), DeviceName::Interface("eth1".into()));
        assert_eq!(name("enP30832s1"), DeviceName::Interface("enP30832s1".into()));
    }

    #[test]
    fn arguments_of_the_driver_follow_the_name() {
        let device = Device::parse("00:06.0,large_llq_hdr=1,mac=00:0d:3a:11:22:33").unwrap();
        assert_eq!(device.name().to_string(), "0000:00:06.0");
        assert_eq!(device.arguments(), "large_llq_hdr=1,mac=00:0d:3a:11:22:33");
        assert_eq!(device.argument("mac"), Some("00:0d:3a:11:22:33"));
        assert_eq!((device.argument("llq_policy"), device.interface()), (None, None));
        let vdev = Device::parse("net_af_packet0,blocksz=4096,iface=veth0").unwrap();
        assert_eq!(vdev.interface(), Some("veth0"));
        assert_eq!(Device::parse("eth1").unwrap().interface(), Some("eth1"));
        assert_eq!(Device::parse("net_null0").unwrap().arguments(), "");
    }

    #[test]
    fn other_texts_are_rejected_with_the_allowed_forms() {
        for text in ["", "0000:00:06", "00:20.0", "00:06.8", "02:0d:3a:11:22", "a/b", "eth1 ", "."]
        {
            let error = Device::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("02:0d:3a:11:22:33") && error.contains("weir nic list"),
                "{error}"
            );
        }
        assert!(Device::parse("").unwrap_err().fault.contains("missing"));
        for text in ["00:06.0,", "00:06.0,,a=1", "00:06.0,=1", "net_null0,a= b", "eth1, x=1"] {
            let error = Device::parse(text).unwrap_err().to_string();
            assert!(error.contains("key=value"), "{text}: {error}");
        }
    }
}
