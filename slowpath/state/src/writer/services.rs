//! Writes of services together with their frontends.

use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Error, Transaction};
use crate::address::Address;
use crate::name::{Name, Source};
use crate::object::FrontendSpec;
use crate::service::Service;

impl Transaction<'_> {
    /// Writes a service and all its frontends, after applying the hooks to the service. Frontends
    /// of the service that are not in `frontends` are deleted. If two frontends have the same
    /// address, only the last one is written. Returns the service's previous row.
    ///
    /// If another source owns the service, or another service owns one of the addresses, nothing is
    /// written.
    pub fn upsert_service_and_frontends(
        &mut self,
        service: Service,
        mut frontends: Vec<FrontendSpec>,
    ) -> Result<Option<Arc<Service>>, Error> {
        let service = self.admit(service)?;
        frontends.reverse();
        frontends.sort_by_key(|frontend| frontend.address);
        frontends.dedup_by_key(|frontend| frontend.address);
        for frontend in &frontends {
            self.check_owner(&frontend.address, &service.name)?;
        }
        let name = service.name.clone();
        let named: SmallVec<[Address; 4]> =
            frontends.iter().map(|frontend| frontend.address).collect();
        let is_removed = |address: &Address| named.binary_search(address).is_err();
        Ok(self.put(&name, Some(service), frontends, is_removed))
    }

    /// Deletes a service of `source` with its frontends, and returns its last row. The service's
    /// backends stay, because they belong to the sources that wrote them.
    pub fn delete_service_and_frontends(
        &mut self,
        name: &Name,
        source: &Source,
    ) -> Result<Arc<Service>, Error> {
        let not_found = || Error::ServiceNotFound(name.clone());
        let service = self.next.service(name).cloned().ok_or_else(not_found)?;
        if service.source != *source {
            let (owner, claimant) = (service.source.clone(), source.clone());
            return Err(Error::ServiceConflict { name: name.clone(), owner, claimant });
        }
        let rows = self.change(name, |entry| {
            entry.service = None;
            mem::take(&mut entry.frontends)
        });
        self.remove_from_indexes(&rows);
        Ok(service)
    }

    /// Applies the hooks to a service, and rejects the service if another source owns it.
    fn admit(&self, mut service: Service) -> Result<Service, Error> {
        let (name, source) = (service.name.clone(), service.source.clone());
        for hook in &self.state.hooks {
            hook(&self.next, &mut service);
        }
        (service.name, service.source) = (name, source);
        match self.next.service(&service.name) {
            Some(row) if row.source != service.source => Err(Error::ServiceConflict {
                name: service.name,
                owner: row.source.clone(),
                claimant: service.source,
            }),
            _ => Ok(service),
        }
    }

    /// Returns an error if another service owns an address.
    pub(super) fn check_owner(&self, address: &Address, claimant: &Name) -> Result<(), Error> {
        match self.next.owners.get(address) {
            Some(owner) if owner != claimant => Err(Error::FrontendConflict {
                address: *address,
                owner: owner.clone(),
                claimant: claimant.clone(),
            }),
            _ => Ok(()),
        }
    }
}
