//! The state of a wildcard: a frontend at all addresses of the appliance.

use std::net::IpAddr;

use config::checked::Prefix;
use state::address::Address;
use state::plane::DesiredFrontend;

/// A wildcard row and its copies.
#[derive(Clone, Debug, Default)]
pub(super) struct Wildcard {
    /// The last desired state; `None` after a restart until the next update.
    pub desired: Option<DesiredFrontend>,
    /// Addresses of copies that may exist.
    pub copies: Vec<Address>,
}

/// Returns the address of a wildcard's copy at `addr`.
pub(super) fn copy_address(address: &Address, addr: IpAddr) -> Address {
    Address { prefix: Prefix { addr, len: address.prefix.len }, ..*address }
}
