//! Address prefixes in text form: `10.0.1.0/24`, `2001:db8::/64`, or a single address.

use std::net::IpAddr;
use std::str::FromStr;

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Any address in the prefix.
    pub address: IpAddr,
    /// The prefix length: 0 to 32 for IPv4, 0 to 128 for IPv6.
    pub len: u8,
}

/// Returns an address's bits, left-aligned, and their number.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

impl Prefix {
    /// Returns whether `address` is of the prefix's family and within the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((own, width), (compared, other)) = (bits(self.address), bits(address));
        let differ = (own ^ compared).checked_shr(128 - u32::from(self.len)).unwrap_or(0);
        width == other && differ == 0
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a prefix; write 10.0.1.0/24, 2001:db8::/64 or 10.0.1.7");
        let (address, len) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (_, width) = bits(address);
        let len = if len.is_empty() { width } else { len.parse().map_err(|_| wrong())? };
        (len <= width).then_some(Self { address, len }).ok_or_else(wrong)
    }
}

impl std::fmt::Display for Prefix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_contains_its_addresses() {
        let contains = |prefix: &str, address: &str| {
            prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.0.1.0/24", "10.0.1.255"));
        assert!(!contains("10.0.1.0/24", "10.0.2.0"));
        assert!(contains("0.0.0.0/0", "255.1.2.3"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/64", "2001:db8::9"));
        assert!(!contains("2001:db8::/64", "2001:db8:0:1::9"));
        assert!(contains("10.0.1.7", "10.0.1.7"));
        assert!("10.0.1.0/33".parse::<Prefix>().is_err());
        assert!("10.0.1/24".parse::<Prefix>().is_err());
    }
}
