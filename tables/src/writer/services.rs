//! Operations on services: names, policy and backend selection.

use super::runs::{AFFINITY_BACKENDS, BOUNDS, array_sum};
use super::{UpdateError, Writer, checksum_seed};
use crate::checksum::checksum;
use crate::layout::Section;
use crate::maglev::{self, Seed};
use crate::record::{NAME_BYTES, NONE, Service, SlotArray};

impl Writer<'_> {
    /// Adds a service or updates the policy of the one with this name, and returns its id. `slots`,
    /// `single`, `ranges` and `affinity_backends` of `policy` are ignored; [`Writer::set_table`],
    /// [`Writer::set_ranges`] and [`Writer::set_affinity_backends`] set them.
    pub fn put_service(&mut self, name: &str, policy: &Service) -> Result<u32, UpdateError> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(UpdateError::Name { name: name.to_owned() });
        }
        let existing = self.index.names.get(name).copied();
        let id = existing.or_else(|| self.index.services.peek()).ok_or_else(|| {
            let (used, capacity, retired) = self.index.services.usage();
            let setting = "region.max_services";
            UpdateError::Full { what: "services", setting, used, capacity, retired }
        })?;
        let now = self.prepared().service(id).copied().unwrap_or(Service::EMPTY);
        let Service { slots, single, ranges, affinity_backends, .. } = now;
        let service = Service { slots, single, ranges, affinity_backends, ..*policy };
        if existing.is_none() {
            self.begin()?;
            self.index.services.allocate(id);
            self.views.notes[id as usize].rename(&self.region_writer, name);
            self.index.names.insert(name.to_owned(), id);
            self.sum ^= name_sum(id, name);
        }
        self.put_versioned(Section::Services, self.views.services, id, service)?;
        Ok(id)
    }

    /// Returns the id of a service by its name.
    pub fn service_id(&self, name: &str) -> Option<u32> {
        self.index.names.get(name).copied()
    }

    /// Removes a service that has no frontends. [`Writer::reclaim`] frees its id.
    pub fn remove_service(&mut self, id: u32) -> Result<(), UpdateError> {
        let service = self.existing_service(id)?;
        let uses = self.index.service_uses[id as usize];
        if uses > 0 {
            return Err(UpdateError::InUse { what: "service", id, uses, users: "frontends" });
        }
        self.begin()?;
        self.release_run(Section::Slots, id, service.slots);
        self.release_run(BOUNDS, id, service.ranges);
        self.release_run(AFFINITY_BACKENDS, id, service.affinity_backends);
        self.remove_note(id)?;
        self.remove_versioned(Section::Services, self.views.services, id)?;
        let name = self.views.notes[id as usize].name();
        self.sum ^= name_sum(id, &name);
        self.index.names.remove(&name);
        self.index.services.retire(id, self.next());
        Ok(())
    }

    /// Sets the backends that serve a service, in a table of `size` slots.
    ///
    /// `table` is called if there are at least two backends; it gets the seed of Maglev tables, and
    /// returns for each slot an index into `ids`. A single backend is stored in the service record
    /// itself.
    pub fn set_table(
        &mut self,
        id: u32,
        ids: &[u32],
        table: impl FnOnce(Seed) -> Vec<u32>,
        size: u32,
    ) -> Result<(), UpdateError> {
        let mut service = self.existing_service(id)?;
        if !maglev::SIZES.contains(&size) {
            return Err(UpdateError::TableSize { found: size });
        }
        if ids.len() > size as usize {
            return Err(UpdateError::TableFull { backends: ids.len(), size });
        }
        let before = service.slots;
        let (single, slots) = match *ids {
            [] => (NONE, Vec::new()),
            [only] => (only, Vec::new()),
            _ => {
                let of = |index| ids.get(index as usize).copied().unwrap_or(NONE);
                (NONE, table(self.seed).into_iter().map(of).collect())
            }
        };
        if service.single == single && self.prepared().slots(&before).eq(slots.iter().copied()) {
            return Ok(());
        }
        self.begin()?;
        service.single = single;
        service.slots = self.fill_array(id, &slots)?;
        self.release_run(Section::Slots, id, before);
        self.put_versioned(Section::Services, self.views.services, id, service)
    }

    pub(super) fn existing_service(&self, id: u32) -> Result<Service, UpdateError> {
        self.prepared().service(id).copied().ok_or_else(|| self.no_service(id))
    }

    pub(super) fn no_service(&self, id: u32) -> UpdateError {
        UpdateError::NoSuchId { what: "services", id, count: self.region.sizes().services }
    }

    /// Allocates and writes a Maglev array in the arena, to which nothing refers yet.
    fn fill_array(&mut self, service: u32, slots: &[u32]) -> Result<SlotArray, UpdateError> {
        if slots.is_empty() {
            return Ok(SlotArray::default());
        }
        let count = slots.len() as u32;
        let first = self.index.arena.allocate(count).ok_or_else(|| self.no_slots(count))?;
        let run = &self.views.slots[first as usize..][..slots.len()];
        self.region_writer.store_words(run, slots);
        let array = SlotArray { first, count };
        self.sum ^= array_sum(&self.prepared(), Section::Slots, service, &array);
        Ok(array)
    }
}

/// Checksum of a service's name.
pub(super) fn name_sum(id: u32, name: &str) -> u64 {
    checksum(checksum_seed(Section::ServiceNotes, id), name.as_bytes())
}
