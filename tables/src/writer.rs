//! The one writer of table sets: prepares a generation beside the committed one, and commits it by
//! one store.
//!
//! ```text
//! put_*, remove_*, set_*   write rooms that no reader sees, stamped with the next generation
//! commit                   checksum, then the generation word: readers may switch
//! acknowledged             every live lcore has switched, or every XDP program that began before
//!                          has ended: rooms of the old generation are free
//! ```
//!
//! Every operation is checked before its first store: it happens, or it is refused and nothing
//! changed. A change costs what it changes. A writer may die at any store: what it prepared is
//! invisible, and the next [`Writer::attach`] takes it back.

mod backends;
mod frontends;
mod kinds;
mod notes;
mod recover;
mod refusal;
mod room;
mod runs;
mod services;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{Ordering, fence};

use packet::addr::Addr;

pub use refusal::Refusal;
use room::{Arena, EntryRoom, Ids};

use crate::checksum::checksum;
use crate::layout::{Section, Sizes};
use crate::lookup::FrontendKinds;
use crate::maglev::Seed;
use crate::pen::Pen;
use crate::record::{FrontendKey, Record, Settings, Tunnel};
use crate::region::{Claim, Grace, Region, RegionError, Role};
use crate::set::{Parts, TableSet};
use crate::versioned::{NEVER, Twin};
use kinds::KindCounts;

/// What a flow may still refer to although no table does: see [`Writer::reclaim`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Referred {
    /// A service id.
    Service(u32),
    /// A backend id.
    Backend(u32),
}

/// What the writer knows about the tables beside what they say themselves: names, uses, free room.
#[derive(Debug)]
struct Known {
    services: Ids,
    names: HashMap<String, u32>,
    /// Frontends by service id.
    service_uses: Vec<u32>,
    backends: Ids,
    places: HashMap<(Addr, u16), u32>,
    next_hops: Ids,
    hop_places: HashMap<(Addr, u8), u32>,
    /// Backends by next hop id.
    hop_uses: Vec<u32>,
    entries: EntryRoom,
    frontends: u32,
    /// How many frontends stand behind each address mark and scope mark.
    marks: HashMap<FrontendKey, u32>,
    kinds: KindCounts,
    arena: Arena,
}

impl Known {
    fn new(sizes: &Sizes) -> Known {
        Known {
            services: Ids::new(sizes.services),
            names: HashMap::new(),
            service_uses: vec![0; sizes.services as usize],
            backends: Ids::new(sizes.backends),
            places: HashMap::new(),
            next_hops: Ids::new(sizes.next_hops),
            hop_places: HashMap::new(),
            hop_uses: vec![0; sizes.next_hops as usize],
            entries: EntryRoom::default(),
            frontends: 0,
            marks: HashMap::new(),
            kinds: KindCounts::default(),
            arena: Arena::new(sizes.slots),
        }
    }
}

/// Writes table sets. Holds the role of slowpath for as long as it lives.
pub struct Writer<'r> {
    claim: Claim<'r>,
    /// Where XDP programs read, which don't acknowledge: what to wait by until they have ended.
    grace: Option<Grace>,
    region: &'r Region,
    parts: Parts<'r>,
    pen: Pen,
    seed: Seed,
    /// The generation that readers see.
    committed: u32,
    /// Whether something was prepared for the next one.
    open: bool,
    /// Counts what changed, and how much of it was published.
    changes: u64,
    published: u64,
    /// Exclusive or of the checksums of all that the next generation sees.
    sum: u64,
    known: Known,
}

impl<'r> Writer<'r> {
    /// Takes the role of slowpath, verifies what the last writer committed, takes back what it only
    /// prepared, and rebuilds what is known of free room by walking the tables.
    pub fn attach(region: &'r Region) -> Result<Writer<'r>, RegionError> {
        Writer::attach_with(region, Pen::default())
    }

    fn attach_with(region: &'r Region, pen: Pen) -> Result<Writer<'r>, RegionError> {
        let claim = region.claim(Role::Slowpath)?;
        let mut writer = Writer {
            claim,
            grace: region.grace()?,
            region,
            parts: Parts::new(region),
            pen,
            seed: Seed::default(),
            committed: region.generation(),
            open: false,
            changes: 0,
            published: 0,
            sum: 0,
            known: Known::new(region.sizes()),
        };
        writer.recover()?;
        Ok(writer)
    }

    /// The seed of Maglev tables that are built from now on (`tables.seed`).
    pub fn set_seed(&mut self, seed: Seed) {
        self.seed = seed;
    }

    /// The epoch of this writer.
    pub fn epoch(&self) -> u32 {
        self.claim.epoch()
    }

    /// The tables as committed.
    pub fn committed(&self) -> TableSet<'r> {
        TableSet::of(self.parts, self.committed)
    }

    /// The tables as they would be after a commit now. Frontends are to be listed and not looked
    /// up: the summary of their kinds is written by the commit.
    pub fn prepared(&self) -> TableSet<'r> {
        TableSet::of(self.parts, self.next())
    }

    /// Counts changes: the same number as before means that nothing was written since.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The generation that is being prepared.
    fn next(&self) -> u32 {
        self.committed + 1
    }

    /// Whether every live lcore has switched to `generation` or a later one. Where XDP programs
    /// read, it waits the few milliseconds until all have.
    pub fn acknowledged(&self, generation: u32) -> bool {
        fence(Ordering::SeqCst);
        if let Some(grace) = &self.grace {
            return grace.since(generation).is_ok();
        }
        self.region.live_lcores().all(|(_, lcore)| lcore.acknowledged() >= generation)
    }

    /// Makes sure that room of the generation before the committed one may be used again. Every
    /// operation that changes something comes through here.
    fn begin(&mut self) -> Result<(), Refusal> {
        self.prepare()?;
        self.changes += 1;
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), Refusal> {
        if self.open {
            return Ok(());
        }
        let committed = self.committed;
        if committed >= NEVER - 2 {
            return Err(Refusal::Generations);
        }
        // An lcore that isn't seen here joins later, and finds the committed generation.
        fence(Ordering::SeqCst);
        if let Some(grace) = &self.grace {
            grace.since(committed).map_err(|e| Refusal::Kernel(e.to_string()))?;
            self.open();
            return Ok(());
        }
        let behind = self.region.live_lcores().find(|(_, l)| l.acknowledged() < committed);
        if let Some((lcore, status)) = behind {
            let at = status.acknowledged();
            return Err(Refusal::Unacknowledged { lcore, at, committed });
        }
        self.open();
        Ok(())
    }

    /// Nobody reads the generation before the committed one.
    fn open(&mut self) {
        self.reuse_entries();
        self.known.arena.reuse();
        self.reuse_next_hops();
        self.open = true;
    }

    /// Publishes what was prepared, and returns the committed generation: the same as before when
    /// nothing was changed. Lcores are to be told by their rings.
    pub fn commit(&mut self) -> Result<u32, Refusal> {
        if self.committed == 0 {
            // An empty table set is one as well: lcores have something to acknowledge.
            self.begin()?;
        }
        if self.changes == self.published {
            return Ok(self.committed);
        }
        let kinds: FrontendKinds = self.known.kinds.summary();
        self.put_twin(Section::FrontendKinds, self.parts.kinds, 0, kinds)?;
        let next = self.next();
        let header = self.region.header();
        self.pen.long(&header.slow.sums[(next & 1) as usize], self.sum);
        self.pen.publish(&header.slow.generation, next);
        self.committed = next;
        self.open = false;
        self.published = self.changes;
        Ok(next)
    }

    /// Forgets what was prepared since the last commit.
    pub fn abort(&mut self) -> Result<(), RegionError> {
        if self.changes != self.published { self.recover() } else { Ok(()) }
    }

    /// Makes ids of removed services and backends free again, where no flow refers to them. Only
    /// ids that no generation in use sees are asked for. Returns how many became free.
    pub fn reclaim(&mut self, refers: impl Fn(Referred) -> bool) -> usize {
        if !self.acknowledged(self.committed) {
            return 0;
        }
        let committed = self.committed;
        let freed = self.known.services.reclaim(committed, |id| refers(Referred::Service(id)));
        for id in &freed {
            self.parts.notes[*id as usize].rename(&self.pen, "");
        }
        let backends = self.known.backends.reclaim(committed, |id| refers(Referred::Backend(id)));
        let backends: HashSet<u32> = backends.into_iter().collect();
        if !backends.is_empty() {
            self.known.places.retain(|_, id| !backends.contains(id));
        }
        freed.len() + backends.len()
    }

    /// Ids of removed services and backends that wait for [`Writer::reclaim`].
    pub fn retired(&self) -> impl Iterator<Item = Referred> {
        let services = self.known.services.retired().map(Referred::Service);
        services.chain(self.known.backends.retired().map(Referred::Backend))
    }

    /// Puts a gateway tunnel under its id, below `sizes.tunnels`.
    pub fn put_tunnel(&mut self, id: u32, tunnel: &Tunnel) -> Result<(), Refusal> {
        self.put_twin(Section::Tunnels, self.parts.tunnels, id, *tunnel)
    }

    /// Removes a gateway tunnel; one that isn't there is no trouble.
    pub fn remove_tunnel(&mut self, id: u32) -> Result<(), Refusal> {
        self.remove_twin(Section::Tunnels, self.parts.tunnels, id)
    }

    /// Puts what holds for all. More NAT addresses of one family than there are port maps for each
    /// backend are refused.
    pub fn put_settings(&mut self, settings: &Settings) -> Result<(), Refusal> {
        let used = settings.nat.iter().take_while(|nat| nat.addr != Addr::UNSPECIFIED);
        let v4 = used.clone().filter(|nat| nat.addr.is_v4()).count();
        let most = v4.max(used.count() - v4) as u32;
        if most > self.nat_stride() {
            return Err(Refusal::NatMaps { addresses: most, maps: self.region.sizes().nat_maps });
        }
        self.put_twin(Section::Settings, self.parts.settings, 0, *settings)
    }

    /// Port maps of each backend: one for each NAT address of its family.
    fn nat_stride(&self) -> u32 {
        let sizes = self.region.sizes();
        sizes.nat_maps / sizes.backends
    }

    /// Writes one record for the next generation, unless it sees just that already.
    fn put_twin<T: Record + PartialEq>(
        &mut self,
        section: Section,
        twins: &'r [Twin<T>],
        id: u32,
        record: T,
    ) -> Result<(), Refusal> {
        let twin = self.twin(section, twins, id)?;
        self.put_record(section, twin, id, record)
    }

    fn put_record<T: Record + PartialEq>(
        &mut self,
        section: Section,
        twin: &Twin<T>,
        id: u32,
        record: T,
    ) -> Result<(), Refusal> {
        if twin.get(self.next()) == Some(&record) {
            return Ok(());
        }
        self.begin()?;
        let next = self.next();
        if let Some(before) = twin.get(next) {
            self.sum ^= sum(section, id, before);
        }
        twin.put(&self.pen, next, record);
        self.sum ^= sum(section, id, &record);
        Ok(())
    }

    fn remove_twin<T: Record>(
        &mut self,
        section: Section,
        twins: &'r [Twin<T>],
        id: u32,
    ) -> Result<(), Refusal> {
        let twin = self.twin(section, twins, id)?;
        self.remove_record(section, twin, id)
    }

    fn remove_record<T: Record>(
        &mut self,
        section: Section,
        twin: &Twin<T>,
        id: u32,
    ) -> Result<(), Refusal> {
        if twin.get(self.next()).is_none() {
            return Ok(());
        }
        self.begin()?;
        let next = self.next();
        if let Some(before) = twin.get(next) {
            self.sum ^= sum(section, id, before);
        }
        twin.remove(&self.pen, next);
        Ok(())
    }

    fn twin<T>(
        &self,
        section: Section,
        twins: &'r [Twin<T>],
        id: u32,
    ) -> Result<&'r Twin<T>, Refusal> {
        twins.get(id as usize).ok_or_else(|| {
            let term = self.region.layout().term(section);
            Refusal::NoSuchId { what: term.name, id, count: term.count as u32 }
        })
    }
}

/// The checksum of one record at its place.
fn sum<T: Record>(section: Section, id: u32, record: &T) -> u64 {
    // SAFETY: a `Record` has no padding, so that all its bytes are initialised.
    #[expect(unsafe_code, reason = "the bytes of a plain record")]
    let bytes = unsafe {
        std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<T>())
    };
    checksum(place(section, id), bytes)
}

/// What keeps equal records at different places from cancelling each other out.
const fn place(section: Section, id: u32) -> u64 {
    (section as u64) << 32 | id as u64
}

impl Region {
    /// The checksum over the table set of `generation` as its writer stored it.
    fn stored_sum(&self, generation: u32) -> u64 {
        self.header().slow.sums[(generation & 1) as usize].load(Ordering::Acquire)
    }
}
