//! Ports on all addresses of the appliance: a wildcard row, and a copy for each address.
//!
//! A copy belongs to the wildcard of its family, port and protocol, so that a removal in one
//! family does not affect the other. An address with a frontend of its own at that port has that
//! frontend instead of the copy; when the frontend is removed, the copy is written.

use std::net::IpAddr;

use state::address::{Address, wildcard_of};
use state::frontend::is_wildcard;
use state::plane::DesiredFrontend;

use super::plane::MapPlane;
use super::wildcard::copy_address;
use super::{Failure, Maps};

impl<M: Maps> MapPlane<M> {
    /// Writes a row and its copies.
    pub(super) fn update_row(&mut self, desired: &DesiredFrontend) -> Result<(), Failure> {
        let spec = &desired.frontend.spec;
        if is_wildcard(spec) {
            return self.update_wildcard(desired);
        }
        self.update_plain(desired)
    }

    /// Deletes a row and its copies.
    pub(super) fn delete_row(&mut self, address: &Address) -> Result<(), Failure> {
        if self.wildcards.contains_key(address) {
            self.drop_copies(address, |_| false)?;
            self.erase(address)?;
            self.wildcards.remove(address);
            return Ok(());
        }
        let wildcard = wildcard_of(address).and_then(|wildcard| self.wildcards.get(&wildcard));
        if !wildcard.is_some_and(|wildcard| wildcard.copies.contains(address)) {
            self.erase(address)?;
        }
        self.copy_to(address)
    }

    fn update_plain(&mut self, desired: &DesiredFrontend) -> Result<(), Failure> {
        let address = *desired.frontend.address();
        // A wildcard that became another frontend, or a copy that got a row of its own.
        if self.wildcards.contains_key(&address) {
            self.drop_copies(&address, |_| false)?;
            self.wildcards.remove(&address);
        }
        let of = wildcard_of(&address).filter(|_| !self.wildcards.is_empty());
        if let Some(wildcard) = of.and_then(|of| self.wildcards.get_mut(&of)) {
            wildcard.copies.retain(|copy| *copy != address);
        }
        self.write(address, desired)
    }

    fn update_wildcard(&mut self, desired: &DesiredFrontend) -> Result<(), Failure> {
        let address = *desired.frontend.address();
        self.wildcards.entry(address).or_default().desired = Some(desired.clone());
        self.write(address, desired).and(self.copy(&address))
    }

    /// Updates the copies of all wildcards to their last desired state, including those that
    /// could not be written before.
    pub(super) fn copy_all(&mut self) -> Result<(), Failure> {
        let desired = self.wildcards.iter().filter(|(_, wildcard)| wildcard.desired.is_some());
        let mut wildcards: Vec<Address> = desired.map(|(address, _)| *address).collect();
        wildcards.sort_unstable();
        let mut result = Ok(());
        for wildcard in &wildcards {
            result = result.and(self.copy(wildcard));
        }
        result
    }

    fn copy(&mut self, wildcard: &Address) -> Result<(), Failure> {
        let copies: Vec<Address> = self.copies_of(wildcard).collect();
        let mut result = Ok(());
        for copy in &copies {
            result = result.and(self.copy_to(copy));
        }
        result.and(self.drop_copies(wildcard, |copy| copies.contains(copy)))
    }

    /// Returns the addresses at which a wildcard has copies, those with a frontend of their own
    /// included.
    fn copies_of(&self, wildcard: &Address) -> impl Iterator<Item = Address> {
        let of_family = |addr: &&IpAddr| addr.is_ipv4() == wildcard.is_ipv4();
        self.options.addresses.iter().filter(of_family).map(|addr| copy_address(wildcard, *addr))
    }

    /// Writes the wildcard's copy at an address of the appliance, if there is a wildcard for it and
    /// the address has no frontend of its own.
    fn copy_to(&mut self, address: &Address) -> Result<(), Failure> {
        let local = self.options.addresses.contains(&address.prefix.addr);
        let Some(of) = wildcard_of(address).filter(|_| local) else { return Ok(()) };
        let taken = self.addresses.contains_key(address);
        let Some(wildcard) = self.wildcards.get_mut(&of) else { return Ok(()) };
        let Some(desired) = wildcard.desired.clone() else { return Ok(()) };
        match (wildcard.copies.contains(address), taken) {
            (true, _) => {}
            (false, true) => return Ok(()),
            (false, false) => wildcard.copies.push(*address),
        }
        self.write(*address, &desired)
    }

    /// Deletes the copies of a wildcard for which `stays` returns false.
    fn drop_copies(
        &mut self,
        wildcard: &Address,
        stays: impl Fn(&Address) -> bool,
    ) -> Result<(), Failure> {
        let copies = self.wildcards.get(wildcard).map(|w| w.copies.clone()).unwrap_or_default();
        let mut result = Ok(());
        for copy in copies.iter().filter(|copy| !stays(copy)) {
            match self.erase(copy) {
                Ok(()) => {
                    if let Some(wildcard) = self.wildcards.get_mut(wildcard) {
                        wildcard.copies.retain(|other| other != copy);
                    }
                }
                failed => result = result.and(failed),
            }
        }
        result
    }
}
