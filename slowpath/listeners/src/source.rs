//! Where a connection comes from, as limits count it.

use std::fmt;
use std::net::IpAddr;

/// The peer of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// An address; IPv4-mapped IPv6 addresses are IPv4.
    Address(IpAddr),
    /// A local user, by uid.
    User(u32),
}

/// What counts as one source: an IPv4 address, an IPv6 /64 or a user.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SourceKey {
    /// The address.
    V4(u32),
    /// The upper half of the address.
    V6(u64),
    /// The uid.
    User(u32),
}

impl Source {
    /// The source with that address.
    pub fn address(addr: IpAddr) -> Source {
        Source::Address(addr.to_canonical())
    }

    /// What limits count. One host can use all addresses of an IPv6 /64.
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
