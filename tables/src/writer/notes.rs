//! What is kept of a service for dumps and for a writer that finds its place.

use super::services::array_sum;
use super::{Refusal, Writer, sum};
use crate::layout::Section;
use crate::maglev;
use crate::note::{Member, ServiceNote};
use crate::record::SlotArray;
use crate::set::TableSet;

const SECTION: Section = Section::ServiceNotes;

impl Writer<'_> {
    /// Keeps what a service's slots were made of: all its backends in their order, and `note`,
    /// whose run is the writer's and ignored.
    pub fn put_note(
        &mut self,
        id: u32,
        note: &ServiceNote,
        members: &[Member],
    ) -> Result<(), Refusal> {
        self.known_service(id)?;
        let prepared = self.prepared();
        let before = prepared.service_note(id).map(|note| note.members).unwrap_or_default();
        let mut note = ServiceNote { members: before, pad: 0, ..*note };
        if !prepared.members(id).eq(members.iter().copied()) {
            self.begin()?;
            note.members = self.fill_members(id, members)?;
            self.release_members(id, before);
        }
        let cell = &self.parts.notes[id as usize];
        self.put_record(SECTION, &cell.note, id, note)
    }

    /// Whether the arena has room for one more table of `size` and for the note of so many
    /// backends: what is refused here would be by [`Writer::set_slots`] and [`Writer::put_note`].
    pub fn slots_room(&mut self, size: u32, serving: usize, members: usize) -> Result<(), Refusal> {
        if !maglev::SIZES.contains(&size) {
            return Err(Refusal::TableSize { found: size });
        }
        if serving > size as usize {
            return Err(Refusal::TableFull { backends: serving, size });
        }
        // What ended before the committed generation is room.
        self.prepare()?;
        let arena = &mut self.known.arena;
        let (table, note) = (if serving > 1 { size } else { 0 }, 2 * members as u32);
        let of_note = arena.take_last(note);
        let of_table = arena.take(table);
        let fits = [(of_note, note), (of_table, table)];
        for (first, count) in fits {
            arena.give(first.unwrap_or(0), if first.is_some() { count } else { 0 });
        }
        match fits.into_iter().find(|(first, count)| first.is_none() && *count > 0) {
            Some((_, count)) => Err(self.no_slots(count)),
            None => Ok(()),
        }
    }

    pub(super) fn no_slots(&self, wanted: u32) -> Refusal {
        let (free, room) = self.known.arena.fill();
        Refusal::Slots { wanted, free, room }
    }

    /// The note goes with its service.
    pub(super) fn remove_note(&mut self, id: u32) -> Result<(), Refusal> {
        let before = self.prepared().service_note(id).map(|note| note.members);
        self.release_members(id, before.unwrap_or_default());
        let cell = &self.parts.notes[id as usize];
        self.remove_record(SECTION, &cell.note, id)
    }

    fn fill_members(&mut self, id: u32, members: &[Member]) -> Result<SlotArray, Refusal> {
        if members.is_empty() {
            return Ok(SlotArray::default());
        }
        let words: Vec<u32> = members.iter().flat_map(|member| member.words()).collect();
        let count = words.len() as u32;
        let first = self.known.arena.take_last(count).ok_or_else(|| self.no_slots(count))?;
        self.pen.words(&self.parts.slots[first as usize..][..words.len()], &words);
        let run = SlotArray { first, count, retire_s: 0 };
        self.sum ^= array_sum(&self.prepared(), SECTION, id, &run);
        Ok(run)
    }

    fn release_members(&mut self, id: u32, run: SlotArray) {
        if run.count > 0 {
            self.sum ^= array_sum(&self.prepared(), SECTION, id, &run);
            self.known.arena.retire(run.first, run.count);
        }
    }
}

/// The checksum over a note and its run.
pub(super) fn note_sum(tables: &TableSet<'_>, id: u32, note: &ServiceNote) -> u64 {
    let run =
        if note.members.count > 0 { array_sum(tables, SECTION, id, &note.members) } else { 0 };
    sum(SECTION, id, note) ^ run
}
