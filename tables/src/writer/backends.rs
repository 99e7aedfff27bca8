//! Operations on backends, their probe sources and next hops.

use std::collections::HashSet;
use std::net::IpAddr;

use packet::addr::Addr;

use super::{UpdateError, Writer};
use crate::layout::Section;
use crate::lookup::probe_mark;
use crate::next_hop::{NextHop, NextHopCell, chain};
use crate::record::{Backend, NONE};

impl<'r> Writer<'r> {
    /// Adds or updates the backend at this address and port, and returns its id.
    ///
    /// `incarnation` is ignored; the writer assigns it. A value of `nat_ports` other than [`NONE`]
    /// requests NAT port maps, which the writer assigns. A backend that is added again before its
    /// id was freed gets its former id and incarnation.
    pub fn put_backend(&mut self, requested: &Backend) -> Result<u32, UpdateError> {
        let existing = self.index.backend_ids.get(&(requested.addr, requested.port)).copied();
        let id = existing.or_else(|| self.index.backends.peek()).ok_or_else(|| {
            let (used, capacity, retired) = self.index.backends.usage();
            let setting = "region.max_backends";
            UpdateError::Full { what: "backends", setting, used, capacity, retired }
        })?;
        let before = self.prepared().backend(id).copied();
        let incarnation = match existing {
            Some(_) => self.last_incarnation(id),
            None => self.last_incarnation(id).wrapping_add(1).max(1),
        };
        let mut backend = Backend { incarnation, pad: 0, ..*requested };
        backend.nat_ports = self.nat_ports(id, requested)?;
        if backend.next_hop != NONE {
            self.existing_hop(backend.next_hop)?;
        }
        if before == Some(backend) {
            return Ok(id);
        }
        self.begin()?;
        let probe_before = before.map_or(Addr::UNSPECIFIED, |b| b.probe);
        self.put_probe(id, probe_before, backend.probe)?;
        self.index.backends.allocate(id);
        self.index.backend_ids.insert((backend.addr, backend.port), id);
        if let Some(before) = before {
            self.remove_hop_use(before.next_hop);
        }
        self.add_hop_use(backend.next_hop);
        self.put_versioned(Section::Backends, self.views.backends, id, backend)?;
        Ok(id)
    }

    /// Returns the id of a backend by its address and port.
    pub fn backend_id(&self, addr: &Addr, port: u16) -> Option<u32> {
        self.index.backend_ids.get(&(*addr, port)).copied()
    }

    /// Removes a backend; flows that refer to it no longer find it. (To drain it, update its state
    /// and omit it from [`Writer::set_table`].) [`Writer::reclaim`] frees its id.
    pub fn remove_backend(&mut self, id: u32) -> Result<(), UpdateError> {
        let before = *self.prepared().backend(id).ok_or_else(|| self.no_backend(id))?;
        self.begin()?;
        self.put_probe(id, before.probe, Addr::UNSPECIFIED)?;
        self.remove_hop_use(before.next_hop);
        self.remove_versioned(Section::Backends, self.views.backends, id)?;
        self.index.backends.retire(id, self.next());
        Ok(())
    }

    pub(super) fn no_backend(&self, id: u32) -> UpdateError {
        UpdateError::NoSuchId { what: "backends", id, count: self.region.sizes().backends }
    }

    /// Returns the highest incarnation of this id in either version, whether visible or not.
    pub(super) fn last_incarnation(&self, id: u32) -> u32 {
        let versions = self.views.backends[id as usize].versions();
        versions.iter().map(|version| version.record().incarnation).max().unwrap_or(0)
    }

    /// Returns the first port map of a backend, or [`NONE`] if it requests none. Port maps are
    /// assigned by backend id, so that a restarted writer need not search them.
    fn nat_ports(&self, id: u32, requested: &Backend) -> Result<u32, UpdateError> {
        if requested.nat_ports == NONE {
            return Ok(NONE);
        }
        match self.nat_stride() {
            0 => Err(UpdateError::NatMaps { addresses: 1, maps: self.region.sizes().nat_maps }),
            stride => Ok(id * stride),
        }
    }

    /// Moves the probe-source entry of backend `id` in the frontend table from the address `before`
    /// to `probe`; an unspecified address stands for no entry.
    fn put_probe(&mut self, id: u32, before: Addr, probe: Addr) -> Result<(), UpdateError> {
        if before == probe {
            return Ok(());
        }
        if probe != Addr::UNSPECIFIED {
            let key = probe_mark(&probe);
            if let Some(other) = self.views.frontends.target(&key, self.next()) {
                return Err(UpdateError::Probe { addr: IpAddr::from(probe), id: other });
            }
            self.reserve_entries(1)?;
            self.check_chain(&key)?;
            self.link(key, (id, 0));
            self.index.kinds.add_probe(&probe);
        }
        if before != Addr::UNSPECIFIED && self.end_entry(&probe_mark(&before)).is_some() {
            self.index.kinds.remove_probe(&before);
        }
        Ok(())
    }

    /// Increments the number of backends that use a next hop ([`NONE`] for none).
    pub(super) fn add_hop_use(&mut self, hop: u32) {
        if let Some(uses) = self.index.hop_uses.get_mut(hop as usize) {
            *uses += 1;
        }
    }

    /// Decrements the number of backends that use a next hop ([`NONE`] for none).
    fn remove_hop_use(&mut self, hop: u32) {
        if let Some(uses) = self.index.hop_uses.get_mut(hop as usize) {
            *uses = uses.saturating_sub(1);
        }
    }

    /// Returns the id of the next hop at `addr` on `arm`, and allocates one if there is none.
    pub fn put_next_hop(&mut self, addr: &Addr, arm: u8) -> Result<u32, UpdateError> {
        if let Some(&id) = self.index.next_hop_ids.get(&(*addr, arm)) {
            self.index.next_hops.allocate(id);
            return Ok(id);
        }
        if self.index.next_hops.peek().is_none() {
            self.begin()?;
        }
        let id = self.index.next_hops.peek().ok_or_else(|| {
            let (used, capacity, retired) = self.index.next_hops.usage();
            let setting = "region.max_next_hops";
            UpdateError::Full { what: "next hops", setting, used, capacity, retired }
        })?;
        self.index.next_hops.allocate(id);
        self.index.next_hop_ids.insert((*addr, arm), id);
        self.views.next_hops[id as usize].assign(&self.region_writer, addr, &NextHop::unknown(arm));
        chain::link(self.views.next_hops, &self.region_writer, id);
        Ok(id)
    }

    /// Returns the id of the next hop at `addr` on `arm`.
    pub fn next_hop_id(&self, addr: &Addr, arm: u8) -> Option<u32> {
        self.index.next_hop_ids.get(&(*addr, arm)).copied()
    }

    /// Updates a next hop. Lcores see it at once, without a commit.
    pub fn set_next_hop(&mut self, id: u32, hop: &NextHop) -> Result<(), UpdateError> {
        let cell = self.existing_hop(id)?;
        if cell.load().as_ref() != Some(hop) {
            cell.store(&self.region_writer, hop);
        }
        Ok(())
    }

    /// Removes a next hop that no backend refers to. Its id is free once no reader uses the
    /// generation before the next commit.
    pub fn remove_next_hop(&mut self, id: u32) -> Result<(), UpdateError> {
        self.existing_hop(id)?;
        let uses = self.index.hop_uses[id as usize];
        if uses > 0 {
            return Err(UpdateError::InUse { what: "next hop", id, uses, users: "backends" });
        }
        self.index.next_hops.retire(id, self.next());
        Ok(())
    }

    /// Frees the removed next hops that the committed generation no longer uses.
    pub(super) fn reuse_next_hops(&mut self) {
        let freed = self.index.next_hops.reclaim(self.committed, |_| false);
        if freed.is_empty() {
            return;
        }
        for id in &freed {
            chain::unlink(self.views.next_hops, &self.region_writer, *id);
            self.views.next_hops[*id as usize].free(&self.region_writer);
        }
        // In one pass, since many may be freed together.
        let freed: HashSet<u32> = freed.into_iter().collect();
        self.index.next_hop_ids.retain(|_, id| !freed.contains(id));
    }

    fn existing_hop(&self, id: u32) -> Result<&'r NextHopCell, UpdateError> {
        let hop = self.views.next_hops.get(id as usize).filter(|hop| hop.load().is_some());
        let count = self.region.sizes().next_hops;
        hop.ok_or(UpdateError::NoSuchId { what: "next hops", id, count })
    }
}
