//! Addresses of devices: PCI addresses, VMBUS instance ids, MAC addresses.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A text that is not an address of the expected kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is not a {expected}")]
pub struct AddressError {
    text: String,
    expected: &'static str,
}

impl AddressError {
    fn new(text: &str, expected: &'static str) -> AddressError {
        AddressError { text: text.to_owned(), expected }
    }
}

/// The address of a PCI function: `0000:00:06.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Parses hexadecimal digits only: `from_str_radix` also accepts a sign.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let valid = digits.contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit());
    valid.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl FromStr for PciAddress {
    type Err = AddressError;

    /// Parses `0000:00:06.0`, or `00:06.0` in domain 0.
    fn from_str(text: &str) -> Result<PciAddress, AddressError> {
        let parse = || {
            let (before, function) = text.rsplit_once('.')?;
            let (before, device) = before.rsplit_once(':')?;
            let (domain, bus) = before.split_once(':').unwrap_or(("0000", before));
            // Domains have four digits, or more behind Intel VMD.
            let (domain, bus) = (hex(domain, 4..=8)?, hex(bus, 2..=2)?);
            let (device, function) = (hex(device, 2..=2)?, hex(function, 1..=1)?);
            (device < 32 && function < 8).then_some(PciAddress {
                domain,
                bus: bus as u8,
                device: device as u8,
                function: function as u8,
            })
        };
        parse().ok_or_else(|| AddressError::new(text, "PCI address (0000:00:06.0)"))
    }
}

impl Display for PciAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let PciAddress { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// The instance id of a VMBUS device, which names its directory in `/sys/bus/vmbus/devices`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmbusId(u128);

impl FromStr for VmbusId {
    type Err = AddressError;

    /// Parses a UUID, with or without braces.
    fn from_str(text: &str) -> Result<VmbusId, AddressError> {
        let parse = || {
            let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'))?;
            let parts: Vec<&str> = inner.split('-').collect();
            let lengths = parts.iter().map(|part| part.len());
            if !lengths.eq([8, 4, 4, 4, 12])
                || !parts.concat().bytes().all(|b| b.is_ascii_hexdigit())
            {
                return None;
            }
            u128::from_str_radix(&parts.concat(), 16).ok().map(VmbusId)
        };
        parse().ok_or_else(|| AddressError::new(text, "VMBUS instance id (a UUID)"))
    }
}

impl Display for VmbusId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        f.write_str(&parts.join("-"))
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MacAddress(pub [u8; 6]);

impl FromStr for MacAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<MacAddress, AddressError> {
        let parse = || {
            let mut bytes = [0; 6];
            let mut parts = text.split(':');
            for byte in &mut bytes {
                *byte = hex(parts.next()?, 2..=2)? as u8;
            }
            parts.next().is_none().then_some(MacAddress(bytes))
        };
        parse().ok_or_else(|| AddressError::new(text, "MAC address (02:00:00:00:00:01)"))
    }
}

impl Display for MacAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = self.0.map(|byte| format!("{byte:02x}"));
        f.write_str(&parts.join(":"))
    }
}

/// The address of a device on the bus on which drivers are bound to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BusAddress {
    /// A PCI function.
    Pci(PciAddress),
    /// A VMBUS device (Hyper-V, Azure).
    Vmbus(VmbusId),
}

impl BusAddress {
    /// Returns the directory of the bus, without a leading slash.
    pub const fn bus(&self) -> &'static str {
        match self {
            BusAddress::Pci(_) => "sys/bus/pci",
            BusAddress::Vmbus(_) => "sys/bus/vmbus",
        }
    }

    /// Returns the directory of the device, without a leading slash.
    pub fn directory(&self) -> String {
        format!("{}/devices/{self}", self.bus())
    }
}

impl FromStr for BusAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<BusAddress, AddressError> {
        if let Ok(address) = text.parse() {
            return Ok(BusAddress::Pci(address));
        }
        let id = text.parse().map(BusAddress::Vmbus);
        id.map_err(|_| AddressError::new(text, "PCI address or VMBUS instance id"))
    }
}

impl Display for BusAddress {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            BusAddress::Pci(address) => address.fmt(f),
            BusAddress::Vmbus(id) => id.fmt(f),
        }
    }
}

macro_rules! serialize_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialize_as_text!(PciAddress, VmbusId, MacAddress, BusAddress);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_kernel_writes_them() {
        let pci = |text: &str| text.parse::<PciAddress>().map(|address| address.to_string()).ok();
        assert_eq!(pci("00:06.0").as_deref(), Some("0000:00:06.0"));
        assert_eq!(pci("0000:3B:1f.7").as_deref(), Some("0000:3b:1f.7"));
        assert_eq!(pci("10000:01:00.0").as_deref(), Some("10000:01:00.0"));
        for invalid in
            ["", "eth0", "0:06.0", "00:06", "00:20.0", "00:06.8", "+000:00:06.0", "1:2:3.4"]
        {
            assert_eq!(pci(invalid), None, "{invalid}");
        }
        let id = "000d3a7c-1111-000d-3a7c-1111000d3a7c";
        let vmbus = |text: &str| text.parse::<VmbusId>().map(|id| id.to_string()).ok();
        assert_eq!(vmbus(id).as_deref(), Some(id));
        assert_eq!(vmbus(&format!("{{{}}}", id.to_uppercase())).as_deref(), Some(id));
        for invalid in ["000d3a7c", &id[1..], &format!("{{{id}"), &id.replace('7', "+")] {
            assert_eq!(vmbus(invalid), None, "{invalid}");
        }
        let mac = "02:AB:00:00:00:01".parse::<MacAddress>().unwrap();
        assert_eq!(mac.to_string(), "02:ab:00:00:00:01");
        assert!("02:ab:00:00:00:01:02".parse::<MacAddress>().is_err());
    }
}
