//! `Writer`: the only writer of table sets. It prepares a generation beside the committed one and
//! commits it by one store.
//!
//! ```text
//! put_*, remove_*, set_*   write versions that no reader sees, stamped with the next generation
//! commit                   checksum, then the generation word: readers may switch
//! acknowledged             every live lcore has switched, or every XDP program that began before
//!                          has ended: versions of the old generation may be reused
//! ```
//!
//! Every operation is validated before its first store (for [`Writer::set_ranges`], by
//! [`Writer::check_slots`]): it succeeds, or it fails and changes nothing. Its cost is proportional
//! to the change. A writer may be killed at any store: what it prepared is invisible, and the next
//! [`Writer::attach`] rolls it back.

mod backends;
mod free_space;
mod frontends;
mod kinds;
mod notes;
mod recover;
mod runs;
mod services;
mod update_error;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{Ordering, fence};

use packet::addr::Addr;

use free_space::{Arena, FreeEntries, Ids};
pub use update_error::UpdateError;

use crate::checksum::checksum;
use crate::layout::{Section, Sizes};
use crate::lookup::FrontendKinds;
use crate::maglev::Seed;
use crate::record::{FrontendKey, Record, Settings, Tunnel};
use crate::region::{Claim, Grace, Region, RegionError, Role};
use crate::region_writer::RegionWriter;
use crate::set::{TableSet, TableViews};
use crate::versioned::{NEVER, Versioned};
use kinds::KindCounts;

/// A service or backend that flows may still reference after it left the tables: see
/// [`Writer::reclaim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Referred {
    /// A service id.
    Service(u32),
    /// A backend id.
    Backend(u32),
}

/// Occupancy of a table of the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableUse {
    /// Name of the table.
    pub table: &'static str,
    /// Entries in use. Removed ones count until they can be reused, except in the row `frontends`.
    pub used: u32,
    /// Number of entries that the table has.
    pub capacity: u32,
}

/// The writer's index over the tables: names, reference counts and free space.
#[derive(Debug)]
struct WriterIndex {
    services: Ids,
    names: HashMap<String, u32>,
    /// Number of frontends by service id.
    service_uses: Vec<u32>,
    backends: Ids,
    backend_ids: HashMap<(Addr, u16), u32>,
    next_hops: Ids,
    next_hop_ids: HashMap<(Addr, u8), u32>,
    /// Number of backends by next hop id.
    hop_uses: Vec<u32>,
    entries: FreeEntries,
    frontends: u32,
    /// Number of frontends that need each address mark and scope mark.
    marks: HashMap<FrontendKey, u32>,
    kinds: KindCounts,
    arena: Arena,
}

impl WriterIndex {
    fn new(sizes: &Sizes) -> WriterIndex {
        WriterIndex {
            services: Ids::new(sizes.services),
            names: HashMap::new(),
            service_uses: vec![0; sizes.services as usize],
            backends: Ids::new(sizes.backends),
            backend_ids: HashMap::new(),
            next_hops: Ids::new(sizes.next_hops),
            next_hop_ids: HashMap::new(),
            hop_uses: vec![0; sizes.next_hops as usize],
            entries: FreeEntries::default(),
            frontends: 0,
            marks: HashMap::new(),
            kinds: KindCounts::default(),
            arena: Arena::new(sizes.slots),
        }
    }
}

/// Writes table sets, and holds the slowpath role while it exists.
pub struct Writer<'r> {
    claim: Claim<'r>,
    /// Set if XDP programs are the readers. They do not acknowledge generations, so the writer
    /// waits until the programs that may read the old generation have ended.
    grace: Option<Grace>,
    region: &'r Region,
    views: TableViews<'r>,
    region_writer: RegionWriter,
    seed: Seed,
    /// The generation that readers see.
    committed: u32,
    /// Whether versions of the previous generation were made available for reuse since the last
    /// commit.
    open: bool,
    /// Number of changes to the generation being prepared, over the life of this writer.
    changes: u64,
    /// Value of `changes` at the last commit.
    published: u64,
    /// XOR of the checksums of everything that the next generation sees.
    sum: u64,
    index: WriterIndex,
}

impl<'r> Writer<'r> {
    /// Claims the slowpath role, verifies the committed tables, rolls back what the last writer
    /// only prepared, and rebuilds the index by walking the tables.
    pub fn attach(region: &'r Region) -> Result<Writer<'r>, RegionError> {
        Writer::attach_with(region, RegionWriter::default())
    }

    fn attach_with(
        region: &'r Region,
        region_writer: RegionWriter,
    ) -> Result<Writer<'r>, RegionError> {
        let claim = region.claim(Role::Slowpath)?;
        let mut writer = Writer {
            claim,
            grace: region.grace()?,
            region,
            views: TableViews::new(region),
            region_writer,
            seed: Seed::default(),
            committed: region.generation(),
            open: false,
            changes: 0,
            published: 0,
            sum: 0,
            index: WriterIndex::new(region.sizes()),
        };
        writer.recover()?;
        Ok(writer)
    }

    /// Sets the seed of Maglev tables that are built from now on (`tables.seed`).
    pub fn set_seed(&mut self, seed: Seed) {
        self.seed = seed;
    }

    /// Epoch of this writer's claim.
    pub fn epoch(&self) -> u32 {
        self.claim.epoch()
    }

    /// The committed tables.
    pub fn committed(&self) -> TableSet<'r> {
        TableSet::of(self.views, self.committed)
    }

    /// The tables as the next commit would publish them. Callers may list frontends but not look
    /// them up, because only the commit writes the summary of their kinds.
    pub fn prepared(&self) -> TableSet<'r> {
        TableSet::of(self.views, self.next())
    }

    /// Returns the occupancy of the tables that this writer fills, as prepared. `frontends` are
    /// those that the next generation sees, which `region.max_frontends` limits;
    /// `frontend_entries` are the entries of their hash, with marks and removed ones.
    pub fn table_uses(&self) -> [TableUse; 6] {
        let ids = |table, (used, capacity, retired): (u32, u32, u32)| TableUse {
            table,
            used: used + retired,
            capacity,
        };
        let (free, slots) = self.index.arena.usage();
        let capacity = self.region.sizes().frontends;
        [
            ids("services", self.index.services.usage()),
            ids("backends", self.index.backends.usage()),
            ids("next_hops", self.index.next_hops.usage()),
            TableUse { table: "frontends", used: self.index.frontends, capacity },
            ids("frontend_entries", self.entry_usage()),
            TableUse { table: "slots", used: slots - free, capacity: slots },
        ]
    }

    /// Change counter: an unchanged value means that the generation being prepared was not changed
    /// in between. Next hops, which have no generation, are not counted.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The generation being prepared.
    fn next(&self) -> u32 {
        self.committed + 1
    }

    /// Returns whether every live lcore has switched to `generation` or a later one. With XDP
    /// programs as readers, it waits some milliseconds until all have.
    pub fn acknowledged(&self, generation: u32) -> bool {
        fence(Ordering::SeqCst);
        if let Some(grace) = &self.grace {
            return grace.since(generation).is_ok();
        }
        self.region.live_lcores().all(|(_, lcore)| lcore.acknowledged() >= generation)
    }

    /// Ensures that versions of the generation before the committed one may be reused, and counts
    /// the change. Every operation that changes the next generation calls it first.
    fn begin(&mut self) -> Result<(), UpdateError> {
        self.prepare()?;
        self.changes += 1;
        Ok(())
    }

    /// Makes versions of the generation before the committed one available for reuse, unless that
    /// was done since the last commit. Fails if a reader may still use them.
    fn prepare(&mut self) -> Result<(), UpdateError> {
        if self.open {
            return Ok(());
        }
        let committed = self.committed;
        if committed >= NEVER - 2 {
            return Err(UpdateError::Generations);
        }
        // An lcore that this check does not see joins later, and then reads the committed
        // generation.
        fence(Ordering::SeqCst);
        if let Some(grace) = &self.grace {
            grace.since(committed).map_err(|e| UpdateError::Kernel(e.to_string()))?;
            self.open();
            return Ok(());
        }
        let behind = self.region.live_lcores().find(|(_, l)| l.acknowledged() < committed);
        if let Some((lcore, status)) = behind {
            let at = status.acknowledged();
            return Err(UpdateError::Unacknowledged { lcore, at, committed });
        }
        self.open();
        Ok(())
    }

    /// Frees what only generations before the committed one referenced; no reader uses these.
    fn open(&mut self) {
        self.reuse_entries();
        self.index.arena.reuse();
        self.reuse_next_hops();
        self.open = true;
    }

    /// Publishes the prepared generation and returns the committed one, which is unchanged if there
    /// were no changes. The caller notifies lcores through their rings.
    pub fn commit(&mut self) -> Result<u32, UpdateError> {
        if self.committed == 0 {
            // An empty table set is committed as well, so that lcores have a generation to
            // acknowledge.
            self.begin()?;
        }
        if self.changes == self.published {
            return Ok(self.committed);
        }
        let kinds: FrontendKinds = self.index.kinds.summary();
        self.put_versioned(Section::FrontendKinds, self.views.kinds, 0, kinds)?;
        let next = self.next();
        self.store_sum(next);
        self.region_writer.publish(&self.region.header().slow.generation, next);
        self.committed = next;
        self.open = false;
        self.published = self.changes;
        Ok(next)
    }

    /// Discards all changes since the last commit, except those of next hops, which lcores see at
    /// once.
    pub fn abort(&mut self) -> Result<(), RegionError> {
        if self.changes != self.published { self.recover() } else { Ok(()) }
    }

    /// Frees ids of removed services and backends to which nothing refers any more. `refers`
    /// returns whether a flow refers to an id; it is called only for ids that no generation in use
    /// sees. Returns the number of freed ids.
    pub fn reclaim(&mut self, refers: impl Fn(Referred) -> bool) -> usize {
        if !self.acknowledged(self.committed) {
            return 0;
        }
        let committed = self.committed;
        let freed = self.index.services.reclaim(committed, |id| refers(Referred::Service(id)));
        for id in &freed {
            self.views.notes[*id as usize].rename(&self.region_writer, "");
        }
        let backends = self.index.backends.reclaim(committed, |id| refers(Referred::Backend(id)));
        let backends: HashSet<u32> = backends.into_iter().collect();
        if !backends.is_empty() {
            self.index.backend_ids.retain(|_, id| !backends.contains(id));
        }
        freed.len() + backends.len()
    }

    /// Ids of removed services and backends that wait for [`Writer::reclaim`].
    pub fn retired(&self) -> impl Iterator<Item = Referred> {
        let services = self.index.services.retired().map(Referred::Service);
        services.chain(self.index.backends.retired().map(Referred::Backend))
    }

    /// Writes a gateway tunnel under its id, which is below `sizes.tunnels`.
    pub fn put_tunnel(&mut self, id: u32, tunnel: &Tunnel) -> Result<(), UpdateError> {
        self.put_versioned(Section::Tunnels, self.views.tunnels, id, *tunnel)
    }

    /// Removes a gateway tunnel, if it exists.
    pub fn remove_tunnel(&mut self, id: u32) -> Result<(), UpdateError> {
        self.remove_versioned(Section::Tunnels, self.views.tunnels, id)
    }

    /// Writes the appliance-wide settings. Fails if one family has more NAT addresses than each
    /// backend has port maps.
    pub fn put_settings(&mut self, settings: &Settings) -> Result<(), UpdateError> {
        let used = settings.nat.iter().take_while(|nat| nat.addr != Addr::UNSPECIFIED);
        let v4 = used.clone().filter(|nat| nat.addr.is_v4()).count();
        let max = v4.max(used.count() - v4) as u32;
        if max > self.nat_stride() {
            return Err(UpdateError::NatMaps {
                addresses: max,
                maps: self.region.sizes().nat_maps,
            });
        }
        self.put_versioned(Section::Settings, self.views.settings, 0, *settings)
    }

    /// Returns the number of port maps per backend, which is the maximum number of NAT addresses of
    /// a family.
    fn nat_stride(&self) -> u32 {
        let sizes = self.region.sizes();
        sizes.nat_maps / sizes.backends
    }

    /// Writes a record for the next generation, unless that generation already sees an equal one.
    fn put_versioned<T: Record + PartialEq>(
        &mut self,
        section: Section,
        records: &'r [Versioned<T>],
        id: u32,
        record: T,
    ) -> Result<(), UpdateError> {
        let versioned = self.versioned(section, records, id)?;
        self.put_record(section, versioned, id, record)
    }

    fn put_record<T: Record + PartialEq>(
        &mut self,
        section: Section,
        versioned: &Versioned<T>,
        id: u32,
        record: T,
    ) -> Result<(), UpdateError> {
        if versioned.get(self.next()) == Some(&record) {
            return Ok(());
        }
        self.begin()?;
        let next = self.next();
        if let Some(before) = versioned.get(next) {
            self.sum ^= sum(section, id, before);
        }
        versioned.put(&self.region_writer, next, record);
        self.sum ^= sum(section, id, &record);
        Ok(())
    }

    fn remove_versioned<T: Record>(
        &mut self,
        section: Section,
        records: &'r [Versioned<T>],
        id: u32,
    ) -> Result<(), UpdateError> {
        let versioned = self.versioned(section, records, id)?;
        self.remove_record(section, versioned, id)
    }

    fn remove_record<T: Record>(
        &mut self,
        section: Section,
        versioned: &Versioned<T>,
        id: u32,
    ) -> Result<(), UpdateError> {
        if versioned.get(self.next()).is_none() {
            return Ok(());
        }
        self.begin()?;
        let next = self.next();
        if let Some(before) = versioned.get(next) {
            self.sum ^= sum(section, id, before);
        }
        versioned.remove(&self.region_writer, next);
        Ok(())
    }

    fn versioned<T>(
        &self,
        section: Section,
        records: &'r [Versioned<T>],
        id: u32,
    ) -> Result<&'r Versioned<T>, UpdateError> {
        records.get(id as usize).ok_or_else(|| {
            let term = self.region.layout().term(section);
            UpdateError::NoSuchId { what: term.name, id, count: term.count as u32 }
        })
    }
}

/// Checksum of a record, which depends on its position.
fn sum<T: Record>(section: Section, id: u32, record: &T) -> u64 {
    // SAFETY: a `Record` has no padding, so that all its bytes are initialized.
    #[expect(unsafe_code, reason = "the bytes of a plain record")]
    let bytes = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<T>())
    };
    checksum(checksum_seed(section, id), bytes)
}

/// Seed of a position's checksums, so that equal records at different positions do not cancel out.
const fn checksum_seed(section: Section, id: u32) -> u64 {
    (section as u64) << 32 | id as u64
}

impl Writer<'_> {
    /// Stores the checksum of the table set of `generation`.
    fn store_sum(&mut self, generation: u32) {
        let sums = &self.region.header().slow.sums;
        self.region_writer.store_u64(&sums[(generation & 1) as usize], self.sum);
    }
}

impl Region {
    /// The checksum that the writer stored for the table set of `generation`.
    fn stored_sum(&self, generation: u32) -> u64 {
        self.header().slow.sums[(generation & 1) as usize].load(Ordering::Acquire)
    }
}
