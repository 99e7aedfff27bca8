//! Sources of connections, as counted by limits.

use std::fmt;
use std::net::IpAddr;

/// The peer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// IP address; IPv4-mapped IPv6 addresses are converted to IPv4.
    Address(IpAddr),
    /// User ID of a local process.
    User(u32),
}

/// Key by which limits count sources: an IPv4 address, an IPv6 /64 or a user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SourceKey {
    /// IPv4 address.
    V4(u32),
    /// Upper half of an IPv6 address.
    V6(u64),
    /// User ID.
    User(u32),
}

impl Source {
    /// Creates the source for an address.
    pub fn address(addr: IpAddr) -> Source {
        Source::Address(addr.to_canonical())
    }

    /// Returns the key by which limits count the source. For an IPv6 address it is the /64, because
    /// a host may use any address in it.
    pub fn key(self) -> SourceKey {
        match self {
            Source::Address(IpAddr::V4(v4)) => SourceKey::V4(v4.into()),
            Source::Address(IpAddr::V6(v6)) => SourceKey::V6((u128::from(v6) >> 64) as u64),
            Source::User(uid) => SourceKey::User(uid),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Address(addr) => addr.fmt(f),
            Source::User(uid) => write!(f, "uid {uid}"),
        }
    }
}
