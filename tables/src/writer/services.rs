//! Operations on services: names, policy and backend selection.

use super::runs::{BOUNDS, STAYS, array_sum};
use super::{Refusal, Writer, place};
use crate::checksum::checksum;
use crate::layout::Section;
use crate::maglev::{self, Seed};
use crate::record::{NAME_BYTES, NONE, Service, SlotArray};

impl Writer<'_> {
    /// Adds a service or updates the policy of the one with this name, and returns its id. `slots`,
    /// `single`, `ranges` and `stays` of `policy` are ignored; [`Writer::set_table`],
    /// [`Writer::set_ranges`] and [`Writer::set_stays`] set them.
    pub fn put_service(&mut self, name: &str, policy: &Service) -> Result<u32, Refusal> {
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(Refusal::Name { name: name.to_owned() });
        }
        let known = self.known.names.get(name).copied();
        let id = known.or_else(|| self.known.services.peek()).ok_or_else(|| {
            let (used, room, retired) = self.known.services.fill();
            let setting = "region.max_services";
            Refusal::Full { what: "services", setting, used, room, retired }
        })?;
        let now = self.prepared().service(id).copied().unwrap_or(Service::EMPTY);
        let Service { slots, single, ranges, stays, .. } = now;
        let service = Service { slots, single, ranges, stays, ..*policy };
        if known.is_none() {
            self.begin()?;
            self.known.services.take(id);
            self.parts.notes[id as usize].rename(&self.pen, name);
            self.known.names.insert(name.to_owned(), id);
            self.sum ^= name_sum(id, name);
        }
        self.put_twin(Section::Services, self.parts.services, id, service)?;
        Ok(id)
    }

    /// Returns the id of a service by its name.
    pub fn service_id(&self, name: &str) -> Option<u32> {
        self.known.names.get(name).copied()
    }

    /// Removes a service that has no frontends. [`Writer::reclaim`] frees its id.
    pub fn remove_service(&mut self, id: u32) -> Result<(), Refusal> {
        let service = self.known_service(id)?;
        let uses = self.known.service_uses[id as usize];
        if uses > 0 {
            return Err(Refusal::InUse { what: "service", id, uses, users: "frontends" });
        }
        self.begin()?;
        self.release_run(Section::Slots, id, service.slots);
        self.release_run(BOUNDS, id, service.ranges);
        self.release_run(STAYS, id, service.stays);
        self.remove_note(id)?;
        self.remove_twin(Section::Services, self.parts.services, id)?;
        let name = self.parts.notes[id as usize].name();
        self.sum ^= name_sum(id, &name);
        self.known.names.remove(&name);
        self.known.services.retire(id, self.next());
        Ok(())
    }

    /// Sets the backends that serve a service, in a table of `size` slots.
    ///
    /// `table` is called if there are at least two backends and returns, for each slot, an index
    /// into `ids`. A single backend is stored in the service record itself.
    pub fn set_table(
        &mut self,
        id: u32,
        ids: &[u32],
        table: impl FnOnce(Seed) -> Vec<u32>,
        size: u32,
    ) -> Result<(), Refusal> {
        let mut service = self.known_service(id)?;
        if !maglev::SIZES.contains(&size) {
            return Err(Refusal::TableSize { found: size });
        }
        if ids.len() > size as usize {
            return Err(Refusal::TableFull { backends: ids.len(), size });
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
        self.put_twin(Section::Services, self.parts.services, id, service)
    }

    pub(super) fn known_service(&self, id: u32) -> Result<Service, Refusal> {
        self.prepared().service(id).copied().ok_or_else(|| self.no_service(id))
    }

    pub(super) fn no_service(&self, id: u32) -> Refusal {
        Refusal::NoSuchId { what: "services", id, count: self.region.sizes().services }
    }

    /// Writes a new run of the arena, to which nothing refers yet.
    fn fill_array(&mut self, service: u32, slots: &[u32]) -> Result<SlotArray, Refusal> {
        if slots.is_empty() {
            return Ok(SlotArray::default());
        }
        let count = slots.len() as u32;
        let first = self.known.arena.take(count).ok_or_else(|| self.no_slots(count))?;
        let run = &self.parts.slots[first as usize..][..slots.len()];
        self.pen.words(run, slots);
        let array = SlotArray { first, count };
        self.sum ^= array_sum(&self.prepared(), Section::Slots, service, &array);
        Ok(array)
    }
}

/// Checksum of a service's name.
pub(super) fn name_sum(id: u32, name: &str) -> u64 {
    checksum(place(Section::ServiceNotes, id), name.as_bytes())
}
