//! Wildcard rows: which addresses are one, and the copies of each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use config::checked::Prefix;

use crate::address::Address;
use crate::frontend::{Kind, Said};
use crate::plane::Wanted;

/// A wildcard row and its copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Wildcard {
    /// As it was said last; none after a restart until it is.
    pub wanted: Option<Wanted>,
    /// Addresses of copies that may be there.
    pub copies: Vec<Address>,
}

/// Whether a frontend is for all addresses of the appliance.
pub fn is_wildcard(said: &Said) -> bool {
    matches!(said.kind, Kind::NodePort | Kind::HostPort) && is_unspecified(&said.address)
}

/// Whether an address is a single one and none: `0.0.0.0` or `::`.
pub fn is_unspecified(address: &Address) -> bool {
    address.prefix.is_single() && address.prefix.addr.is_unspecified()
}

/// The same for one address.
pub(super) fn at(address: &Address, addr: IpAddr) -> Address {
    Address { prefix: Prefix { addr, len: address.prefix.len }, ..*address }
}

/// Where the wildcard of an address would be; none for networks.
pub fn wildcard_of(address: &Address) -> Option<Address> {
    let addr = match address.prefix.addr {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    address.prefix.is_single().then(|| at(address, addr))
}
