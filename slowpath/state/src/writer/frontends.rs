//! Writes of frontends, and where they are redirected to.

use std::sync::Arc;

use super::{Error, Transaction};
use crate::address::Address;
use crate::frontend::{Frontend, Said};
use crate::name::Name;

impl Transaction<'_> {
    /// Writes a frontend of a service: a new one, or instead of the one at its address, whose
    /// redirection it keeps.
    pub fn upsert_frontend(&mut self, service: &Name, said: Said) -> Result<(), Error> {
        if self.next.service(service).is_none() {
            return Err(Error::ServiceNotFound(service.clone()));
        }
        self.check_owner(&said.address, service)?;
        self.put_frontends(service, vec![said]);
        Ok(())
    }

    /// Deletes the frontend at an address.
    pub fn delete_frontend(&mut self, address: &Address) -> Result<(), Error> {
        let not_found = || Error::FrontendNotFound(*address);
        let owner = self.next.owners.get(address).cloned().ok_or_else(not_found)?;
        self.drop_frontends(&owner, |at| at == address);
        Ok(())
    }

    /// Has a frontend use the backends of another service; none for those of its own again. The
    /// other service may come later.
    pub fn set_redirect_to(&mut self, address: &Address, to: Option<Name>) -> Result<(), Error> {
        let not_found = || Error::FrontendNotFound(*address);
        let row = self.next.frontend(address).cloned().ok_or_else(not_found)?;
        if row.redirect_to == to {
            return Ok(());
        }
        if let Some(before) = &row.redirect_to {
            self.next.redirects.remove(&(before.clone(), *address));
        }
        if let Some(to) = &to {
            self.next.redirects.insert((to.clone(), *address), ());
        }
        let (said, service) = (row.said.clone(), Arc::clone(&row.service));
        let owner = service.name.clone();
        let fresh = Arc::new(Frontend::new(said, service, to, self.touched.revision, self.now));
        self.change(&owner, |entry| {
            if let Ok(at) = entry.place_of(address) {
                entry.frontends[at] = fresh;
            }
        });
        Ok(())
    }

    /// Writes frontends that no other service has, of a service that is there.
    pub(super) fn put_frontends(&mut self, service: &Name, mut frontends: Vec<Said>) {
        let Some(entry) = self.next.entries.get(service) else { return };
        let Some(owner) = entry.service.clone() else { return };
        frontends.retain(|said| entry.frontend(&said.address).is_none_or(|row| row.said != *said));
        if frontends.is_empty() {
            return;
        }
        let (revision, now) = (self.touched.revision, self.now);
        let mut new = Vec::new();
        self.change(service, |entry| {
            for said in frontends {
                let (address, service) = (said.address, Arc::clone(&owner));
                let place = entry.place_of(&address);
                let to = place.ok().and_then(|at| entry.frontends[at].redirect_to.clone());
                let fresh = Arc::new(Frontend::new(said, service, to, revision, now));
                match place {
                    Ok(at) => entry.frontends[at] = fresh,
                    Err(at) => {
                        entry.frontends.insert(at, fresh);
                        new.push(address);
                    }
                }
            }
        });
        for address in new {
            self.next.owners.insert(address, service.clone());
        }
    }

    /// Deletes those frontends of a service to which `which` says yes.
    pub(super) fn drop_frontends(&mut self, service: &Name, which: impl Fn(&Address) -> bool) {
        let Some(entry) = self.next.entries.get(service) else { return };
        let gone = entry.frontends.iter().filter(|row| which(row.address()));
        let gone: Vec<Arc<Frontend>> = gone.cloned().collect();
        if gone.is_empty() {
            return;
        }
        self.change(service, |entry| entry.frontends.retain(|row| !which(row.address())));
        for row in gone {
            let address = *row.address();
            self.next.owners.remove(&address);
            if let Some(to) = &row.redirect_to {
                self.next.redirects.remove(&(to.clone(), address));
            }
            self.touched.frontends.push(address);
        }
    }
}
