//! A wildcard row with its copies.

use std::net::IpAddr;

use config::checked::Prefix;
use state::address::Address;
use state::plane::Wanted;

/// A wildcard row and its copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Wildcard {
    /// As it was said last; none after a restart until it is.
    pub wanted: Option<Wanted>,
    /// Addresses of copies that may be there.
    pub copies: Vec<Address>,
}

/// The same for one address.
pub(super) fn at(address: &Address, addr: IpAddr) -> Address {
    Address { prefix: Prefix { addr, len: address.prefix.len }, ..*address }
}
