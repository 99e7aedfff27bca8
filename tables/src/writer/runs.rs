//! Runs of the slot arena of any length that a service has beside its tables. They lie at the
//! arena's far end, away from the tables, whose lengths are few.

use super::{Refusal, Writer, place};
use crate::checksum::checksum_of_words;
use crate::layout::Section;
use crate::record::{Prefix, SlotArray};
use crate::set::TableSet;

/// What the bounds of source ranges count as in checksums.
pub(super) const BOUNDS: Section = Section::Services;
/// What the backends count as that clients may stay with.
pub(super) const STAYS: Section = Section::Backends;
/// What source ranges as they were asked for count as.
pub(super) const RANGES: Section = Section::Frontends;

impl Writer<'_> {
    /// Admits the clients in these ranges alone, or with [`crate::record::SERVICE_DENY`] all
    /// others; everybody where there are none. `bounds` are made of them ([`crate::run`]). The
    /// service has its note already.
    pub fn set_ranges(
        &mut self,
        id: u32,
        ranges: &[Prefix],
        bounds: &[u32],
    ) -> Result<(), Refusal> {
        let mut service = self.known_service(id)?;
        let note = self.prepared().service_note(id).copied();
        let mut note = note.ok_or_else(|| self.no_service(id))?;
        let words: Vec<u32> = ranges.iter().flat_map(Prefix::words).collect();
        service.ranges = self.put_run(BOUNDS, id, service.ranges, bounds)?;
        note.ranges = self.put_run(RANGES, id, note.ranges, &words)?;
        self.put_twin(Section::Services, self.parts.services, id, service)?;
        self.put_record(Section::ServiceNotes, &self.parts.notes[id as usize].note, id, note)
    }

    /// Says with which backends the clients of a service may stay; ids in rising order.
    pub fn set_stays(&mut self, id: u32, ids: &[u32]) -> Result<(), Refusal> {
        let mut service = self.known_service(id)?;
        service.stays = self.put_run(STAYS, id, service.stays, ids)?;
        self.put_twin(Section::Services, self.parts.services, id, service)
    }

    /// A run of these words: `before`, if it says just that, or a new one in its place.
    pub(super) fn put_run(
        &mut self,
        section: Section,
        id: u32,
        before: SlotArray,
        words: &[u32],
    ) -> Result<SlotArray, Refusal> {
        if self.prepared().slots(&before).eq(words.iter().copied()) {
            return Ok(before);
        }
        self.begin()?;
        let run = self.fill_run(section, id, words)?;
        self.release_run(section, id, before);
        Ok(run)
    }

    fn fill_run(&mut self, section: Section, id: u32, words: &[u32]) -> Result<SlotArray, Refusal> {
        if words.is_empty() {
            return Ok(SlotArray::default());
        }
        let count = words.len() as u32;
        let first = self.known.arena.take_last(count).ok_or_else(|| self.no_slots(count))?;
        self.pen.words(&self.parts.slots[first as usize..][..words.len()], words);
        let run = SlotArray { first, count, retire_s: 0 };
        self.sum ^= array_sum(&self.prepared(), section, id, &run);
        Ok(run)
    }

    /// Lets go of a run, which the generation after this one doesn't see any more.
    pub(super) fn release_run(&mut self, section: Section, id: u32, run: SlotArray) {
        if run.count > 0 {
            self.sum ^= array_sum(&self.prepared(), section, id, &run);
            self.known.arena.retire(run.first, run.count);
        }
    }
}

/// The checksum over a run of slots that `section` has of a service.
pub(super) fn array_sum(
    tables: &TableSet<'_>,
    section: Section,
    service: u32,
    array: &SlotArray,
) -> u64 {
    checksum_of_words(place(section, service), tables.slots(array))
}
