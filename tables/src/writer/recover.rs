//! Recovery at attach: verifies the committed tables, rolls back what was only prepared, and
//! rebuilds the index of free space by walking the tables.
//!
//! Nothing is written before the committed tables' checksum and the frontend chains have been
//! verified; that no two services share slots is verified last. The rollback is idempotent, so a
//! writer may be killed during recovery as well.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::frontends::entry_sum;
use super::notes::note_sum;
use super::runs::array_sum;
use super::runs::{AFFINITY_BACKENDS, BOUNDS};
use super::services::name_sum;
use super::{Writer, WriterIndex, sum};
use crate::layout::Section;
use crate::lookup::is_mark;
use crate::next_hop::chain;
use crate::record::Record;
use crate::region::{RegionError, UNVERIFIED_SUM};
use crate::set::TableSet;
use crate::versioned::Versioned;

impl Writer<'_> {
    /// Discards the index and all prepared changes, and rebuilds the index from the committed
    /// tables.
    pub(super) fn recover(&mut self) -> Result<(), RegionError> {
        self.committed = self.region.generation();
        self.open = false;
        self.published = self.changes;
        self.index = WriterIndex::new(self.region.sizes());
        let linked = self.verify()?;
        self.store_sum(self.committed);
        self.roll_back();
        self.learn_entries(&linked);
        self.learn_services()?;
        self.learn_backends();
        Ok(())
    }

    /// Verifies the committed tables against their checksum, and the structure of the chains.
    /// Returns for each entry whether it is in a chain.
    fn verify(&mut self) -> Result<Vec<bool>, RegionError> {
        let tables = self.committed();
        self.sum = tables_sum(&tables);
        let stored = self.region.stored_sum(self.committed);
        if stored != UNVERIFIED_SUM {
            self.check_equal("table set", self.sum, stored)?;
        }
        let frontends = &self.views.frontends;
        let mut linked = vec![false; frontends.entries.len()];
        let mut visible = 0;
        for head in frontends.heads {
            let mut link = head.load(Ordering::Acquire);
            while let Some(number) = link.checked_sub(1) {
                let entry = frontends.entries.get(number as usize);
                let Some(entry) = entry.filter(|_| !linked[number as usize]) else {
                    // A link that is out of range or closes a cycle.
                    self.check_equal("frontend chains", u64::from(link), 0)?;
                    break;
                };
                linked[number as usize] = true;
                visible += u64::from(entry.lifetime.sees(self.committed));
                link = entry.next.load(Ordering::Acquire);
            }
        }
        self.check_equal("frontend chains", visible, tables.entries().count() as u64)?;
        Ok(linked)
    }

    fn check_equal(&self, part: &'static str, found: u64, wanted: u64) -> Result<(), RegionError> {
        if found == wanted {
            return Ok(());
        }
        let path = self.region.path().map_or_else(|| PathBuf::from("(anonymous)"), PathBuf::from);
        Err(RegionError::Checksum { path, part, found, wanted })
    }

    /// Rolls back everything stamped with a generation after the committed one.
    fn roll_back(&self) {
        let (region_writer, committed) = (&self.region_writer, self.committed);
        fn all<T: Record>(records: &[Versioned<T>], mut each: impl FnMut(&Versioned<T>)) {
            records.iter().for_each(&mut each);
        }
        all(self.views.tunnels, |versioned| versioned.recover(region_writer, committed));
        all(self.views.settings, |versioned| versioned.recover(region_writer, committed));
        all(self.views.services, |versioned| versioned.recover(region_writer, committed));
        self.views.notes.iter().for_each(|cell| cell.note.recover(region_writer, committed));
        all(self.views.kinds, |versioned| versioned.recover(region_writer, committed));
        all(self.views.backends, |versioned| versioned.recover(region_writer, committed));
        for entry in self.views.frontends.entries {
            entry.lifetime.recover(region_writer, committed);
        }
        self.views.frontends.rebuild_chain_bits(region_writer);
        let tables = self.committed();
        let single = tables.entries().filter(|(key, _)| key.prefix_len == 128);
        self.views.addresses.rebuild_with(region_writer, single.map(|(key, _)| key.addr));
    }

    /// Adds all entries of the frontend hash to the index: as visible, ending, unlinked or unused.
    fn learn_entries(&mut self, linked: &[bool]) {
        let mut unlinked = Vec::new();
        for (number, entry) in self.views.frontends.entries.iter().enumerate() {
            let number = number as u32;
            if entry.lifetime.sees(self.committed) {
                self.learn_entry(number);
            } else if linked[number as usize] {
                self.index.entries.ending.push(number);
            } else if entry.lifetime.dead.load(Ordering::Relaxed) == 0 {
                self.index.entries.free.push(number);
            } else {
                unlinked.push(number);
            }
        }
        // Low numbers are used first, so that the table stays dense.
        self.index.entries.free.reverse();
        self.keep_unlinked(unlinked);
    }

    fn learn_entry(&mut self, number: u32) {
        let entry = &self.views.frontends.entries[number as usize];
        let (key, target) = (entry.key(), entry.target());
        if is_mark(key) {
            self.learn_mark(key);
        } else {
            self.count_frontend(key, target);
            self.count_marks(key);
        }
    }

    fn learn_services(&mut self) -> Result<(), RegionError> {
        let tables = self.committed();
        for id in 0..self.region.sizes().services {
            let name = self.views.notes[id as usize].name();
            let Some(service) = tables.service(id) else {
                if !name.is_empty() {
                    self.index.services.add_retired(id);
                }
                continue;
            };
            self.index.services.allocate(id);
            self.index.names.insert(name, id);
            let note = tables.service_note(id).copied().unwrap_or_default();
            let arrays = [
                service.slots,
                service.ranges,
                service.affinity_backends,
                note.members,
                note.ranges,
            ];
            for array in arrays.into_iter().filter(|array| array.count > 0) {
                if !self.index.arena.allocate_at(array.first, array.count) {
                    // Two services share slots, or slots lie outside the arena.
                    self.check_equal("slot arena", u64::from(array.first), u64::MAX)?;
                }
            }
        }
        Ok(())
    }

    fn learn_backends(&mut self) {
        let tables = self.committed();
        chain::rebuild(self.views.next_hops, &self.region_writer);
        for (id, addr, hop) in tables.next_hops() {
            self.index.next_hops.allocate(id);
            self.index.next_hop_ids.insert((addr, hop.arm), id);
        }
        for id in 0..self.region.sizes().backends {
            if let Some(backend) = tables.backend(id) {
                self.index.backends.allocate(id);
                self.index.backend_ids.insert((backend.addr, backend.port), id);
                self.add_hop_use(backend.next_hop);
            } else if self.last_incarnation(id) > 0 {
                self.index.backends.add_retired(id);
                self.learn_retired(id);
            }
        }
    }

    /// Restores the address of a removed backend from its latest version, so that it gets its
    /// former id if it is added again.
    fn learn_retired(&mut self, id: u32) {
        let versions = self.views.backends[id as usize].versions();
        let born = |version: &&_| -> u32 {
            let version: &crate::versioned::Version<crate::record::Backend> = version;
            version.lifetime.born.load(Ordering::Relaxed)
        };
        if let Some(last) = versions.iter().max_by_key(born)
            && born(&last) != 0
        {
            let last = last.record();
            self.index.backend_ids.entry((last.addr, last.port)).or_insert(id);
        }
    }
}

/// Checksum of everything that a generation sees.
fn tables_sum(tables: &TableSet<'_>) -> u64 {
    fn all<T: Record>(section: Section, records: &[Versioned<T>], at: u32) -> u64 {
        let numbered = records.iter().enumerate();
        let sums = numbered
            .filter_map(|(id, versioned)| Some(sum(section, id as u32, versioned.get(at)?)));
        sums.fold(0, |a, b| a ^ b)
    }
    let (views, at) = (&tables.views, tables.generation());
    let mut total = all(Section::Tunnels, views.tunnels, at)
        ^ all(Section::Settings, views.settings, at)
        ^ all(Section::Services, views.services, at)
        ^ all(Section::FrontendKinds, views.kinds, at)
        ^ all(Section::Backends, views.backends, at);
    for (id, service) in tables.services() {
        total ^= name_sum(id, &views.notes[id as usize].name());
        let runs = [
            (Section::Slots, service.slots),
            (BOUNDS, service.ranges),
            (AFFINITY_BACKENDS, service.affinity_backends),
        ];
        for (section, run) in runs {
            if run.count > 0 {
                total ^= array_sum(tables, section, id, &run);
            }
        }
        if let Some(note) = tables.service_note(id) {
            total ^= note_sum(tables, id, note);
        }
    }
    tables.visible_entries().fold(total, |sum, entry| sum ^ entry_sum(entry))
}
