//! Networks, and addresses with the prefix length of their network.

use std::fmt;
use std::net::IpAddr;

/// A network: an address whose bits after `len` are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// First address of the network.
    pub addr: IpAddr,
    /// Prefix length in the address's own family: 0 to 32 or 0 to 128.
    pub len: u8,
}

/// An arm's address with the prefix length of its on-link network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interface {
    /// The address itself, host bits included.
    pub addr: IpAddr,
    /// Prefix length of the on-link network: 1 to 32 or 1 to 128.
    pub len: u8,
}

impl Prefix {
    /// Returns the prefix length in the 128-bit form (120 for an IPv4 /24) that the tables use.
    pub const fn len128(&self) -> u8 {
        match self.addr {
            IpAddr::V4(_) => 96 + self.len,
            IpAddr::V6(_) => self.len,
        }
    }

    /// Returns whether `addr` is of the same family and inside the network.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.addr.is_ipv4() == addr.is_ipv4() && mask(addr, self.len) == self.addr
    }

    /// Returns whether the networks have an address in common.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.addr) || other.contains(self.addr)
    }

    /// Returns whether the prefix is a single address.
    pub const fn is_single(&self) -> bool {
        self.len128() == 128
    }
}

impl Interface {
    /// Returns the on-link network.
    pub fn network(&self) -> Prefix {
        Prefix { addr: mask(self.addr, self.len), len: self.len }
    }
}

/// Parses an address and the prefix length after its slash. Without a slash, the length is that of
/// the whole address, 32 or 128.
pub(crate) fn address_and_length(text: &str) -> Option<(IpAddr, u8)> {
    let (addr, len) = match text.split_once('/') {
        Some((addr, len)) => (addr.parse::<IpAddr>().ok()?, Some(len.parse::<u8>().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let max = if addr.is_ipv4() { 32 } else { 128 };
    let len = len.unwrap_or(max);
    (len <= max).then_some((addr, len))
}

/// Returns the address with all bits after the first `len` cleared. An IPv4 address has 32 bits.
pub fn mask(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}
