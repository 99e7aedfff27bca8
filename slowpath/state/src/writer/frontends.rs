//! Writes of frontends and their redirections.

use std::sync::Arc;

use super::{Error, Transaction};
use crate::address::Address;
use crate::frontend::Frontend;
use crate::name::Name;
use crate::object::FrontendSpec;
use crate::service::Service;
use crate::tables::frontend_index;

impl Transaction<'_> {
    /// Deletes the frontend at an address.
    pub fn delete_frontend(&mut self, address: &Address) -> Result<(), Error> {
        let not_found = || Error::FrontendNotFound(*address);
        let owner = self.next.owners.get(address).cloned().ok_or_else(not_found)?;
        self.put(&owner, None, Vec::new(), |at| at == address);
        Ok(())
    }

    // Only tests redirect frontends: no source of Weir does.
    /// Redirects a frontend: it uses the backends of the service `to`, or for `None` those of its
    /// own service again. The other service need not exist yet.
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
        let (spec, service) = (row.spec.clone(), Arc::clone(&row.service));
        let owner = service.name.clone();
        let fresh = Arc::new(Frontend::new(spec, service, to, self.touched.revision, self.now));
        self.change(&owner, |entry| {
            if let Ok(at) = frontend_index(&entry.frontends, address) {
                entry.frontends[at] = fresh;
            }
        });
        Ok(())
    }

    /// Writes a service and the given frontends if they differ from the tables; `None` leaves the
    /// service as it is. Deletes the service's frontends for whose address `is_removed` returns
    /// true. The caller has checked that no other service owns the given frontends' addresses.
    /// Returns the service's previous row.
    pub(super) fn put(
        &mut self,
        name: &Name,
        service: Option<Service>,
        mut frontends: Vec<FrontendSpec>,
        is_removed: impl Fn(&Address) -> bool,
    ) -> Option<Arc<Service>> {
        let entry = self.next.entries.get(name);
        let before = entry.and_then(|entry| entry.service.clone());
        let service = service.filter(|row| before.as_deref() != Some(row)).map(Arc::new);
        let mut lost = Vec::new();
        if let Some(entry) = entry {
            let differs =
                |spec: &FrontendSpec| entry.frontend(&spec.address).is_none_or(|f| f.spec != *spec);
            frontends.retain(differs);
            lost.extend(entry.frontends.iter().filter(|row| is_removed(row.address())).cloned());
        }
        if service.is_none() && frontends.is_empty() && lost.is_empty() {
            return before;
        }
        let (revision, now) = (self.touched.revision, self.now);
        let mut new = Vec::new();
        self.change(name, |entry| {
            entry.service = service.or(entry.service.take());
            if !lost.is_empty() {
                entry.frontends.retain(|row| !is_removed(row.address()));
            }
            // Frontends are written only for existing services.
            let Some(owner) = &entry.service else { return };
            for spec in frontends {
                let (owner, index) =
                    (Arc::clone(owner), frontend_index(&entry.frontends, &spec.address));
                let to = index.ok().and_then(|at| entry.frontends[at].redirect_to.clone());
                let row = Arc::new(Frontend::new(spec, owner, to, revision, now));
                match index {
                    Ok(at) => entry.frontends[at] = row,
                    Err(at) => {
                        new.push(*row.address());
                        entry.frontends.insert(at, row);
                    }
                }
            }
        });
        for address in new {
            self.next.owners.insert(address, name.clone());
        }
        self.remove_from_indexes(&lost);
        before
    }

    /// Removes rows from the indexes after they were removed from their entry, and records their
    /// addresses as changed.
    pub(super) fn remove_from_indexes(&mut self, rows: &[Arc<Frontend>]) {
        for row in rows {
            let address = *row.address();
            self.next.owners.remove(&address);
            if let Some(to) = &row.redirect_to {
                self.next.redirects.remove(&(to.clone(), address));
            }
            self.touched.frontends.push(address);
        }
    }
}
