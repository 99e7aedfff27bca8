//! What is kept of a service for dumps and for a writer that finds its place.

use super::runs::RANGES;
use super::runs::array_sum;
use super::{Refusal, Writer, sum};
use crate::layout::Section;
use crate::maglev;
use crate::note::{Member, ServiceNote};
use crate::record::SlotArray;
use crate::set::TableSet;

const SECTION: Section = Section::ServiceNotes;

impl Writer<'_> {
    /// Keeps what a service's slots were made of: all its backends in their order, and `note`,
    /// whose runs are the writer's and ignored.
    pub fn put_note(
        &mut self,
        id: u32,
        note: &ServiceNote,
        members: &[Member],
    ) -> Result<(), Refusal> {
        self.known_service(id)?;
        let before = self.prepared().service_note(id).copied().unwrap_or_default();
        let words: Vec<u32> = members.iter().flat_map(|member| member.words()).collect();
        let run = self.put_run(SECTION, id, before.members, &words)?;
        let note = ServiceNote { members: run, ranges: before.ranges, ..*note };
        let cell = &self.parts.notes[id as usize];
        self.put_record(SECTION, &cell.note, id, note)
    }

    /// Whether the arena has room for one more table of `size` and for runs of so many words: what
    /// is refused here would be by [`Writer::set_slots`], [`Writer::put_note`] (two words for each
    /// backend), [`Writer::set_ranges`] (its bounds, and five for each range) and
    /// [`Writer::set_stays`].
    pub fn slots_room(&mut self, size: u32, serving: usize, runs: &[usize]) -> Result<(), Refusal> {
        if !maglev::SIZES.contains(&size) {
            return Err(Refusal::TableSize { found: size });
        }
        if serving > size as usize {
            return Err(Refusal::TableFull { backends: serving, size });
        }
        // What ended before the committed generation is room.
        self.prepare()?;
        let arena = &mut self.known.arena;
        let table = if serving > 1 { size } else { 0 };
        let runs = runs.iter().map(|words| *words as u32);
        let mut fits: Vec<_> = runs.map(|words| (arena.take_last(words), words)).collect();
        fits.push((arena.take(table), table));
        for (first, count) in &fits {
            arena.give(first.unwrap_or(0), if first.is_some() { *count } else { 0 });
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
        let before = self.prepared().service_note(id).copied().unwrap_or_default();
        self.release_run(SECTION, id, before.members);
        self.release_run(RANGES, id, before.ranges);
        let cell = &self.parts.notes[id as usize];
        self.remove_record(SECTION, &cell.note, id)
    }
}

/// The checksum over a note and its runs.
pub(super) fn note_sum(tables: &TableSet<'_>, id: u32, note: &ServiceNote) -> u64 {
    let of = |section, run: &SlotArray| match run.count {
        0 => 0,
        _ => array_sum(tables, section, id, run),
    };
    sum(SECTION, id, note) ^ of(SECTION, &note.members) ^ of(RANGES, &note.ranges)
}
