//! Networks and addresses in networks.

use std::fmt;
use std::net::IpAddr;

/// A network: an address whose bits after `len` are zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// First address of the network.
    pub addr: IpAddr,
    /// Bits that count in the address's own family: 0..=32 or 0..=128.
    pub len: u8,
}

/// An address of an arm with the length of the network that is on link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interface {
    /// The address itself, host bits included.
    pub addr: IpAddr,
    /// Bits of the on-link network: 1..=32 or 1..=128.
    pub len: u8,
}

impl Prefix {
    /// Length as it counts in the 128-bit form (IPv4 /24 is 120), which the tables use.
    pub const fn len128(&self) -> u8 {
        match self.addr {
            IpAddr::V4(_) => 96 + self.len,
            IpAddr::V6(_) => self.len,
        }
    }

    /// True when `addr` is of this family and inside.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.addr.is_ipv4() == addr.is_ipv4() && mask(addr, self.len) == self.addr
    }

    /// True when some address is inside both.
    pub fn overlaps(&self, other: &Prefix) -> bool {
        self.contains(other.addr) || other.contains(self.addr)
    }

    /// True for a prefix of one address.
    pub const fn is_single(&self) -> bool {
        self.len128() == 128
    }
}

impl Interface {
    /// The on-link network.
    pub fn network(&self) -> Prefix {
        Prefix { addr: mask(self.addr, self.len), len: self.len }
    }
}

/// An address and the length after its slash; without one, all bits of its family.
pub(crate) fn address_and_length(text: &str) -> Option<(IpAddr, u8)> {
    let (addr, len) = match text.split_once('/') {
        Some((addr, len)) => (addr.parse::<IpAddr>().ok()?, Some(len.parse::<u8>().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let most = if addr.is_ipv4() { 32 } else { 128 };
    let len = len.unwrap_or(most);
    (len <= most).then_some((addr, len))
}

/// The address with all bits after the first `len` cleared, in its own family.
pub fn mask(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & keep).into())
        }
        IpAddr::V6(v6) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & keep).into())
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
