//! Runs of the slot arena of arbitrary length that belong to a service. They are allocated from the
//! end of the arena, away from the Maglev tables with their few sizes.

use super::{UpdateError, Writer, checksum_seed};
use crate::checksum::checksum_of_words;
use crate::layout::Section;
use crate::record::{Prefix, SlotArray};
use crate::set::TableSet;

/// Section that seeds the checksum of source range bounds. Each kind of run needs another seed than
/// the others; the sections have no further meaning here.
pub(super) const BOUNDS: Section = Section::Services;
/// Section that seeds the checksum of affinity backends.
pub(super) const AFFINITY_BACKENDS: Section = Section::Backends;
/// Section that seeds the checksum of source ranges as configured.
pub(super) const RANGES: Section = Section::Frontends;

impl Writer<'_> {
    /// Permits only clients in these ranges, or with [`crate::record::SERVICE_DENY`] only others;
    /// without ranges, all clients. `bounds` are the ranges in the form of [`crate::run`].
    ///
    /// The service must have its note already, and the caller must have called
    /// [`Writer::check_slots`]: without it, the bounds may be changed although there is no space
    /// for the ranges.
    pub fn set_ranges(
        &mut self,
        id: u32,
        ranges: &[Prefix],
        bounds: &[u32],
    ) -> Result<(), UpdateError> {
        let mut service = self.existing_service(id)?;
        let note = self.prepared().service_note(id).copied();
        let mut note = note.ok_or_else(|| self.no_service(id))?;
        let words: Vec<u32> = ranges.iter().flat_map(Prefix::words).collect();
        service.ranges = self.put_run(BOUNDS, id, service.ranges, bounds)?;
        note.ranges = self.put_run(RANGES, id, note.ranges, &words)?;
        self.put_versioned(Section::Services, self.views.services, id, service)?;
        self.put_record(Section::ServiceNotes, &self.views.notes[id as usize].note, id, note)
    }

    /// Sets the backends to which clients of a service may have affinity; ids in ascending order.
    pub fn set_affinity_backends(&mut self, id: u32, ids: &[u32]) -> Result<(), UpdateError> {
        let mut service = self.existing_service(id)?;
        service.affinity_backends =
            self.put_run(AFFINITY_BACKENDS, id, service.affinity_backends, ids)?;
        self.put_versioned(Section::Services, self.views.services, id, service)
    }

    /// Returns a run with these words: `before` if it is equal, else a new one that replaces it.
    pub(super) fn put_run(
        &mut self,
        section: Section,
        id: u32,
        before: SlotArray,
        words: &[u32],
    ) -> Result<SlotArray, UpdateError> {
        if self.prepared().slots(&before).eq(words.iter().copied()) {
            return Ok(before);
        }
        self.begin()?;
        let run = self.fill_run(section, id, words)?;
        self.release_run(section, id, before);
        Ok(run)
    }

    /// Allocates and writes a run.
    fn fill_run(
        &mut self,
        section: Section,
        id: u32,
        words: &[u32],
    ) -> Result<SlotArray, UpdateError> {
        if words.is_empty() {
            return Ok(SlotArray::default());
        }
        let count = words.len() as u32;
        let first = self.index.arena.allocate_last(count).ok_or_else(|| self.no_slots(count))?;
        self.region_writer.store_words(&self.views.slots[first as usize..][..words.len()], words);
        let run = SlotArray { first, count };
        self.sum ^= array_sum(&self.prepared(), section, id, &run);
        Ok(run)
    }

    /// Retires a run that the next generation does not see.
    pub(super) fn release_run(&mut self, section: Section, id: u32, run: SlotArray) {
        if run.count > 0 {
            self.sum ^= array_sum(&self.prepared(), section, id, &run);
            self.index.arena.retire(run.first, run.count);
        }
    }
}

/// Checksum of a service's run of slots; `section` distinguishes the kinds of runs.
pub(super) fn array_sum(
    tables: &TableSet<'_>,
    section: Section,
    service: u32,
    array: &SlotArray,
) -> u64 {
    checksum_of_words(checksum_seed(section, service), tables.slots(array))
}
