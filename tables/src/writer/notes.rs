//! Operations on service notes, which serve dumps and a writer that attaches.

use super::runs::RANGES;
use super::runs::array_sum;
use super::{UpdateError, Writer, sum};
use crate::layout::Section;
use crate::maglev;
use crate::note::{Member, ServiceNote};
use crate::record::SlotArray;
use crate::set::TableSet;

const SECTION: Section = Section::ServiceNotes;

impl Writer<'_> {
    /// Stores the inputs of a service's slots: all its backends in their order, and `note`. The
    /// `members` and `ranges` of `note` are ignored; the writer assigns them.
    pub fn put_note(
        &mut self,
        id: u32,
        note: &ServiceNote,
        members: &[Member],
    ) -> Result<(), UpdateError> {
        self.existing_service(id)?;
        let before = self.prepared().service_note(id).copied().unwrap_or_default();
        let words: Vec<u32> = members.iter().flat_map(|member| member.words()).collect();
        let run = self.put_run(SECTION, id, before.members, &words)?;
        let note = ServiceNote { members: run, ranges: before.ranges, ..*note };
        let cell = &self.views.notes[id as usize];
        self.put_record(SECTION, &cell.note, id, note)
    }

    /// Checks that the arena has space for another table of `size` for `serving` backends, and for
    /// `runs` of the given lengths in words.
    ///
    /// If not, it returns the error that one of these would return: [`Writer::set_table`],
    /// [`Writer::put_note`] (two words per backend), [`Writer::set_ranges`] (the bounds, and five
    /// words per range) and [`Writer::set_affinity_backends`] (a word per backend).
    pub fn check_slots(
        &mut self,
        size: u32,
        serving: usize,
        runs: &[usize],
    ) -> Result<(), UpdateError> {
        if !maglev::SIZES.contains(&size) {
            return Err(UpdateError::TableSize { found: size });
        }
        if serving > size as usize {
            return Err(UpdateError::TableFull { backends: serving, size });
        }
        // Frees runs that the committed generation no longer sees.
        self.prepare()?;
        let arena = &mut self.index.arena;
        let table = if serving > 1 { size } else { 0 };
        let runs = runs.iter().map(|words| *words as u32);
        let mut fits: Vec<_> = runs.map(|words| (arena.allocate_last(words), words)).collect();
        fits.push((arena.allocate(table), table));
        for (first, count) in &fits {
            arena.release(first.unwrap_or(0), if first.is_some() { *count } else { 0 });
        }
        match fits.into_iter().find(|(first, count)| first.is_none() && *count > 0) {
            Some((_, count)) => Err(self.no_slots(count)),
            None => Ok(()),
        }
    }

    pub(super) fn no_slots(&self, wanted: u32) -> UpdateError {
        let (free, capacity) = self.index.arena.usage();
        UpdateError::Slots { wanted, free, capacity }
    }

    /// Removes the note of a service that is being removed.
    pub(super) fn remove_note(&mut self, id: u32) -> Result<(), UpdateError> {
        let before = self.prepared().service_note(id).copied().unwrap_or_default();
        self.release_run(SECTION, id, before.members);
        self.release_run(RANGES, id, before.ranges);
        let cell = &self.views.notes[id as usize];
        self.remove_record(SECTION, &cell.note, id)
    }
}

/// Checksum of a note and its runs.
pub(super) fn note_sum(tables: &TableSet<'_>, id: u32, note: &ServiceNote) -> u64 {
    let of = |section, run: &SlotArray| match run.count {
        0 => 0,
        _ => array_sum(tables, section, id, run),
    };
    sum(SECTION, id, note) ^ of(SECTION, &note.members) ^ of(RANGES, &note.ranges)
}
