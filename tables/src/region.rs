//! The shared memory, a file or kernel maps: created once, mapped by everybody, claimed by one
//! process per role.

mod access;
mod bpf;
mod claim;
mod cut;
mod error;
mod header;
mod maps;
mod memory;
mod place;
mod recover;
mod role;
mod take_over;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub use access::make_folder;
pub(crate) use bpf::Grace;
pub use claim::Claim;
pub use error::RegionError;
pub use header::Label;
use header::{FIXED_BYTES, Header, MAGIC};
use memory::{FileLock, Memory};
use packet::flow::HashKey;
pub use place::Place;
pub use role::Role;
pub use take_over::TakeOver;

use crate::layout::{Layout, Section, Sizes, VERSION};
use crate::lcore::LcoreStatus;
pub(crate) use crate::rows::Shared;

/// A mapped region. Everything in it may be changed by other processes at any time, so that it is
/// read by atomics, or by the rules of `versioned`.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    layout: Layout,
    /// Where it lies, and the file that has its locks: its own, where it lies in one.
    place: Option<(File, Place)>,
    /// The seed of flow hashes as it was when the header was checked.
    seed: u64,
    claimed: [AtomicBool; 2],
}

impl Region {
    /// Opens the region at `place`, or creates it there with these sizes and this seed of flow
    /// hashes. Whoever comes first creates it; the other waits for that. A region that was made
    /// with others is refused: its flows lie where the old seed put them, and nobody moves them.
    pub fn create_or_open(
        place: impl Into<Place>,
        sizes: &Sizes,
        seed: u64,
    ) -> Result<Region, RegionError> {
        Region::create_filled(place.into(), sizes, seed, |_| Ok(())).map(|(region, ..)| region)
    }

    /// As [`Region::create_or_open`], where `fill` fills a new region before others have it.
    /// Returns also what `fill` returned, `None` where the region existed, and the lock under
    /// which regions are created at that place.
    fn create_filled<T>(
        place: Place,
        sizes: &Sizes,
        seed: u64,
        fill: impl FnOnce(&Region) -> Result<T, RegionError>,
    ) -> Result<(Region, Option<T>, FileLock), RegionError> {
        sizes.check()?;
        let file = place.lock_file(true)?;
        let creating = memory::lock_file(&file, place.path())?;
        let head = place.head(&file)?;
        if !header::is_unfinished(&head) {
            let region = Region::map(file, &place, &head)?;
            header::same_sizes(place.path(), region.sizes(), sizes)?;
            if region.hash_seed() != seed {
                return Err(RegionError::Seed { path: place.path().to_path_buf() });
            }
            return Ok((region, None, creating));
        }
        let layout = Layout::new(sizes);
        let memory = place.make(&file, &layout)?;
        let region = Region::over(memory, layout, seed, Some((file, place)));
        region.header().begin(&region.layout, seed);
        let filled = fill(&region)?;
        region.header().finish();
        Ok((region, Some(filled), creating))
    }

    /// Whether it lies in kernel maps.
    pub(crate) fn is_in_kernel_maps(&self) -> bool {
        matches!(&self.place, Some((_, Place::Maps(_))))
    }

    /// Whether it lies in a file, where the kernel's programs never are.
    pub(crate) fn is_in_file(&self) -> bool {
        matches!(&self.place, Some((_, Place::File { .. })))
    }

    /// Opens an existing region with whatever sizes it has.
    pub fn open(place: impl Into<Place>) -> Result<Region, RegionError> {
        let place = place.into();
        let file = place.lock_file(false)?;
        let _creating = memory::lock_file(&file, place.path())?;
        let head = place.head(&file)?;
        Region::map(file, &place, &head)
    }

    fn map(file: File, place: &Place, head: &[u8; FIXED_BYTES]) -> Result<Region, RegionError> {
        let (layout, seed) = header::verify(head, place.path())?;
        let memory = place.map(&file, &layout)?;
        Ok(Region::over(memory, layout, seed, Some((file, place.clone()))))
    }

    /// A region of this process alone, for tests and benchmarks, with a seed of its own.
    pub fn anonymous(sizes: &Sizes) -> Result<Region, RegionError> {
        Region::anonymous_with(sizes, header::random_seed())
    }

    /// As [`Region::anonymous`], which hashes as others with this seed do.
    pub fn anonymous_with(sizes: &Sizes, seed: u64) -> Result<Region, RegionError> {
        sizes.check()?;
        let layout = Layout::new(sizes);
        let region = Region::over(Memory::heap(layout.bytes()), layout, seed, None);
        region.header().begin(&region.layout, seed);
        region.header().finish();
        Ok(region)
    }

    /// Makes it what it was when it was new, for whoever plays case after case on a program that
    /// has its maps. Nobody else may work with it.
    pub fn renew(&self) {
        let seed = self.hash_seed();
        // SAFETY: all of the region's own bytes; nobody else looks at them, and `begin` writes what
        // has to be there.
        #[expect(unsafe_code, reason = "all bytes at once")]
        unsafe {
            self.memory.start().write_bytes(0, self.layout.bytes());
        }
        self.header().begin(&self.layout, seed);
        self.header().finish();
    }

    fn over(memory: Memory, layout: Layout, seed: u64, place: Option<(File, Place)>) -> Region {
        Region { memory, layout, place, seed, claimed: [const { AtomicBool::new(false) }; 2] }
    }

    /// Where it is; nothing for an anonymous one.
    pub fn path(&self) -> Option<&Path> {
        self.place.as_ref().map(|(_, place)| place.path())
    }

    /// What to wait by until XDP programs have let go of a generation; nothing where no program can
    /// read the region, but lcores that acknowledge.
    pub(crate) fn grace(&self) -> Result<Option<Grace>, RegionError> {
        let Some((_, Place::Maps(path))) = &self.place else { return Ok(None) };
        let made = Grace::new().map(Some);
        made.map_err(|source| RegionError::Kernel { path: path.clone(), source })
    }

    /// From now on this process ends with a message, and not by SIGBUS, when the region's file is
    /// cut. For the one region that a process works with; of kernel maps there is nothing to cut.
    pub fn explain_truncation(&self) {
        if let Some((_, Place::File { path, .. })) = &self.place {
            cut::watch(path, self.memory.start(), self.layout.bytes());
        }
    }

    /// True when it lies in huge pages.
    pub fn in_huge_pages(&self) -> bool {
        self.memory.page_bytes() > 4096
    }

    /// How much there is room for.
    pub fn sizes(&self) -> &Sizes {
        self.layout.sizes()
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Start and length in bytes of a section's elements (without the padding behind them). The
    /// start is aligned to `layout::SECTION_ALIGN`, and valid for as long as the region is.
    pub fn section_ptr(&self, section: Section) -> (*mut u8, usize) {
        let term = self.layout.term(section);
        (self.memory.start().wrapping_add(term.offset), term.count * term.bytes_each)
    }

    /// A section as elements of `T`; `T` has the size that the layout gives them.
    pub(crate) fn slice<T: Shared>(&self, section: Section) -> &[T] {
        let term = self.layout.term(section);
        debug_assert_eq!(term.bytes_each, size_of::<T>());
        let (start, bytes) = self.section_ptr(section);
        let count = bytes / size_of::<T>();
        // SAFETY: the section lies within the mapping, aligned to a page; `Shared` promises that
        // any bytes are a value and that changes by others are allowed.
        #[expect(unsafe_code, reason = "the one place where sections become records")]
        unsafe {
            std::slice::from_raw_parts(start.cast::<T>(), count)
        }
    }

    /// A section as words of 64 bits, whatever its elements are.
    pub(crate) fn words(&self, section: Section) -> &[AtomicU64] {
        let (start, bytes) = self.section_ptr(section);
        // SAFETY: the section lies within the mapping, aligned to a page; any bytes are a word.
        #[expect(unsafe_code, reason = "counters are words, a page of them per lcore")]
        unsafe {
            std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8)
        }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping begins with a header's room, page-aligned; `Header` is `Shared`.
        #[expect(unsafe_code, reason = "the region begins with its header")]
        unsafe {
            &*self.memory.start().cast::<Header>()
        }
    }

    /// The committed generation; 0 before the first commit.
    pub fn generation(&self) -> u32 {
        self.header().slow.generation.load(Ordering::SeqCst)
    }

    /// The seed of all flow hashes, as its creator was told; it never changes.
    pub fn hash_seed(&self) -> u64 {
        self.seed
    }

    /// The same seed, made ready.
    pub fn hash_key(&self) -> HashKey {
        HashKey::new(self.hash_seed())
    }

    /// How many scopes there may be.
    pub(crate) fn max_scopes(&self) -> u32 {
        self.sizes().scopes
    }

    /// How many times the role was claimed: the epoch of its present or last process.
    pub fn epoch(&self, role: Role) -> u32 {
        self.header().epoch(role).load(Ordering::SeqCst)
    }

    /// Status of all lcores that there is room for.
    pub fn lcores(&self) -> &[LcoreStatus] {
        self.slice(Section::Lcores)
    }

    /// Lcores that poll, of the fastpath that is alive now.
    pub fn live_lcores(&self) -> impl Iterator<Item = (usize, &LcoreStatus)> {
        let epoch = self.is_claimed(Role::Fastpath).then(|| self.epoch(Role::Fastpath));
        self.lcores().iter().enumerate().filter(move |(_, lcore)| lcore.is_live(epoch))
    }

    /// Path MTU towards a next hop as the fastpath learned it, in bytes; 0 for unknown.
    pub fn path_mtu(&self, next_hop: u32) -> Option<&AtomicU32> {
        self.path_mtus().get(next_hop as usize)
    }

    /// All of them by next hop.
    pub fn path_mtus(&self) -> &[AtomicU32] {
        self.slice(Section::PathMtus)
    }

    /// Whether the operator wants no new traffic. It lies here because it must outlive the slowpath
    /// that was told; a reboot, which ends the region, ends it too.
    pub fn draining(&self) -> bool {
        self.header().slow.draining.load(Ordering::Relaxed) != 0
    }

    /// Remembers what the operator wants; slowpath writes it.
    pub fn set_draining(&self, on: bool) {
        self.header().slow.draining.store(u32::from(on), Ordering::Relaxed);
    }

    /// A label as its writer left it, cut at the first byte that is no UTF-8.
    pub fn label(&self, label: Label) -> String {
        self.header().label(label)
    }

    /// Labels the region for `weir status`; longer text is cut.
    pub fn set_label(&self, label: Label, text: &str) {
        self.header().set_label(label, text);
    }

    /// The region's clock: seconds of the machine's monotonic clock, the same for all processes.
    pub fn now_s(&self) -> u32 {
        memory::monotonic_s()
    }

    /// The same clock in milliseconds.
    pub fn now_ms(&self) -> u64 {
        memory::monotonic_ms()
    }

    /// True when `magic` and `version` are ours; for messages of `weir check`.
    pub const fn format() -> (u64, u32) {
        (MAGIC, VERSION)
    }
}
