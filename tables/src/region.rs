//! The region: memory shared by Weir's processes, in a file or in kernel maps. It is created once,
//! mapped by every process, and claimed by one process per role.

mod access;
mod bpf;
mod claim;
mod convert;
mod error;
mod header;
mod location;
mod maps;
mod memory;
mod recover;
mod role;
mod steps;
mod take_over;
mod truncation;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

pub use access::{LOCKS, Owners, make_folder, make_locks_folder};
pub(crate) use bpf::Grace;
pub use claim::Claim;
pub(crate) use convert::UNVERIFIED_SUM;
pub use convert::{Converted, convertible};
pub use error::RegionError;
use header::{CONSTANT_BYTES, Header, MAGIC};
pub use header::{Label, ProcessUsage};
pub use location::RegionLocation;
use memory::FileLock;
pub use memory::monotonic_ns;
pub(crate) use memory::{Memory, monotonic_ms};
use packet::flow::HashKey;
pub use role::Role;
pub use take_over::TakeOver;

use crate::layout::{Layout, Section, Sizes, VERSION};
use crate::lcore::LcoreStatus;
pub(crate) use crate::rows::Shared;

/// A mapped region. Other processes may change its contents at any time, so it is accessed through
/// atomics or by the rules of `versioned`.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    layout: Layout,
    /// Location of the region, and the file that carries its locks: the region's own file if it has
    /// one.
    location: Option<(File, RegionLocation)>,
    /// Seed of the flow hashes, as read when the header was verified.
    seed: u64,
    /// Whether this process holds each role through this value; the file lock does not exclude
    /// claims through the same open file.
    claimed: [AtomicBool; 2],
}

impl Region {
    /// Opens the region at `location`, or creates it with these sizes and this seed of the flow
    /// hashes.
    ///
    /// The first process creates the region; others wait for that. An existing region with other
    /// sizes or another seed is an error: the positions of its flows depend on both, and are not
    /// changed.
    pub fn create_or_open(
        location: impl Into<RegionLocation>,
        sizes: &Sizes,
        seed: u64,
    ) -> Result<Region, RegionError> {
        Region::create_filled(location.into(), sizes, seed, |_| Ok(())).map(|(region, ..)| region)
    }

    /// As [`Region::create_or_open`], with a function that fills a new region before it becomes
    /// visible. Also returns the result of `fill`, which is `None` if the region existed, and the
    /// lock under which a region is created at this location.
    fn create_filled<T>(
        location: RegionLocation,
        sizes: &Sizes,
        seed: u64,
        fill: impl FnOnce(&Region) -> Result<T, RegionError>,
    ) -> Result<(Region, Option<T>, FileLock), RegionError> {
        sizes.check()?;
        let file = location.lock_file(true)?;
        let creating = memory::lock_file(&file, location.path())?;
        let head = location.head(&file)?;
        if !header::is_unfinished(&head) {
            let region = Region::map(file, &location, &head)?;
            region.check_parameters(location.path(), sizes, seed)?;
            return Ok((region, None, creating));
        }
        let layout = Layout::new(sizes);
        let memory = location.make(&file, &layout)?;
        let region = Region::over(memory, layout, seed, Some((file, location)));
        region.header().begin(&region.layout, seed);
        let filled = fill(&region)?;
        region.header().finish();
        Ok((region, Some(filled), creating))
    }

    /// Checks that the region at `path` was created with these sizes and this seed.
    ///
    /// # Errors
    /// Names the first parameter that differs.
    pub fn check_parameters(
        &self,
        path: &Path,
        sizes: &Sizes,
        seed: u64,
    ) -> Result<(), RegionError> {
        header::same_sizes(path, self.sizes(), sizes)?;
        if self.hash_seed() != seed {
            return Err(RegionError::Seed { path: path.to_path_buf() });
        }
        Ok(())
    }

    /// Returns whether the region is in kernel maps.
    pub(crate) fn is_in_kernel_maps(&self) -> bool {
        matches!(&self.location, Some((_, RegionLocation::Maps { .. })))
    }

    /// Returns whether the region is in a file, which BPF programs cannot access.
    pub(crate) fn is_in_file(&self) -> bool {
        matches!(&self.location, Some((_, RegionLocation::File { .. })))
    }

    /// Opens an existing region with the sizes in its header.
    pub fn open(location: impl Into<RegionLocation>) -> Result<Region, RegionError> {
        let location = location.into();
        let file = location.lock_file(false)?;
        let _creating = memory::lock_file(&file, location.path())?;
        let head = location.head(&file)?;
        Region::map(file, &location, &head)
    }

    fn map(
        file: File,
        location: &RegionLocation,
        head: &[u8; CONSTANT_BYTES],
    ) -> Result<Region, RegionError> {
        let (layout, seed) = header::verify(head, location.path())?;
        let memory = location.map(&file, &layout)?;
        Ok(Region::over(memory, layout, seed, Some((file, location.clone()))))
    }

    /// Creates a region private to this process, with a random seed, for tests and benchmarks.
    pub fn anonymous(sizes: &Sizes) -> Result<Region, RegionError> {
        Region::anonymous_with(sizes, header::random_seed())
    }

    /// As [`Region::anonymous`], with a given seed.
    pub fn anonymous_with(sizes: &Sizes, seed: u64) -> Result<Region, RegionError> {
        sizes.check()?;
        let layout = Layout::new(sizes);
        let region = Region::over(Memory::heap(layout.bytes()), layout, seed, None);
        region.header().begin(&region.layout, seed);
        region.header().finish();
        Ok(region)
    }

    /// Resets the region to its initial contents, for tests that run many cases on a program that
    /// uses its maps. The caller must be the only user of the region.
    pub fn renew(&self) {
        let seed = self.hash_seed();
        // SAFETY: these are the region's own bytes, which no other process accesses; `begin` writes
        // a valid header.
        #[expect(unsafe_code, reason = "all bytes at once")]
        unsafe {
            self.memory.start().write_bytes(0, self.layout.bytes());
        }
        self.header().begin(&self.layout, seed);
        self.header().finish();
    }

    fn over(
        memory: Memory,
        layout: Layout,
        seed: u64,
        location: Option<(File, RegionLocation)>,
    ) -> Region {
        Region { memory, layout, location, seed, claimed: [const { AtomicBool::new(false) }; 2] }
    }

    /// Path of the region; `None` for an anonymous one.
    pub fn path(&self) -> Option<&Path> {
        self.location.as_ref().map(|(_, location)| location.path())
    }

    /// Location of the region; `None` for an anonymous one.
    pub fn location(&self) -> Option<&RegionLocation> {
        self.location.as_ref().map(|(_, location)| location)
    }

    /// Returns a [`Grace`], which waits until XDP programs no longer read a generation. `None` if
    /// programs cannot read the region: its readers are then lcores, which acknowledge generations.
    pub(crate) fn grace(&self) -> Result<Option<Grace>, RegionError> {
        let Some((_, RegionLocation::Maps { path, .. })) = &self.location else {
            return Ok(None);
        };
        let made = Grace::new().map(Some);
        made.map_err(|source| RegionError::Kernel { path: path.clone(), source })
    }

    /// Installs a signal handler: if the region's file is truncated, the process exits with an
    /// error message instead of being killed by SIGBUS. Only one region of a process can have it.
    /// Does nothing for kernel maps, which cannot be truncated.
    pub fn explain_truncation(&self) {
        if let Some((_, RegionLocation::File { path, .. })) = &self.location {
            truncation::watch(path, self.memory.start(), self.layout.bytes());
        }
    }

    /// Returns whether the region is in huge pages.
    pub fn in_huge_pages(&self) -> bool {
        self.memory.page_bytes() > 4096
    }

    /// Capacities of the region.
    pub fn sizes(&self) -> &Sizes {
        self.layout.sizes()
    }

    /// Layout of the region.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the start of a section and the length of its elements in bytes, without the padding
    /// after them. The start is aligned to `layout::SECTION_ALIGN` and valid as long as the region
    /// is.
    pub fn section_ptr(&self, section: Section) -> (*mut u8, usize) {
        let term = self.layout.term(section);
        (self.memory.start().wrapping_add(term.offset), term.count * term.bytes_each)
    }

    /// Returns a section as elements of `T`, whose size must be the element size of the layout.
    pub(crate) fn slice<T: Shared>(&self, section: Section) -> &[T] {
        let term = self.layout.term(section);
        debug_assert_eq!(term.bytes_each, size_of::<T>());
        let (start, bytes) = self.section_ptr(section);
        let count = bytes / size_of::<T>();
        // SAFETY: the section lies within the mapping, aligned to a page; `Shared` promises that
        // any bytes are a value and that changes by others are allowed.
        #[expect(unsafe_code, reason = "the only conversion of sections to records")]
        unsafe {
            std::slice::from_raw_parts(start.cast::<T>(), count)
        }
    }

    /// Returns a section as 64-bit words, regardless of its element type.
    pub(crate) fn words(&self, section: Section) -> &[AtomicU64] {
        let (start, bytes) = self.section_ptr(section);
        // SAFETY: the section lies within the mapping, aligned to a page; any bytes are a word.
        #[expect(unsafe_code, reason = "counters are words, a page of them per lcore")]
        unsafe {
            std::slice::from_raw_parts(start.cast::<AtomicU64>(), bytes / 8)
        }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the mapping begins with the page of the header; `Header` consists of atomics.
        #[expect(unsafe_code, reason = "the region begins with its header")]
        unsafe {
            &*self.memory.start().cast::<Header>()
        }
    }

    /// The committed generation; 0 before the first commit.
    pub fn generation(&self) -> u32 {
        self.header().slow.generation.load(Ordering::SeqCst)
    }

    /// Seed of all flow hashes, set at creation.
    pub fn hash_seed(&self) -> u64 {
        self.seed
    }

    /// Hash key derived from the seed.
    pub fn hash_key(&self) -> HashKey {
        HashKey::new(self.hash_seed())
    }

    /// Maximum number of scopes.
    pub(crate) fn max_scopes(&self) -> u32 {
        self.sizes().scopes
    }

    /// Number of times that the role was claimed: the epoch of its current or last holder.
    pub fn epoch(&self, role: Role) -> u32 {
        self.header().epoch(role).load(Ordering::SeqCst)
    }

    /// Status of all configured lcores.
    pub fn lcores(&self) -> &[LcoreStatus] {
        self.slice(Section::Lcores)
    }

    /// Lcores that poll and belong to the running fastpath.
    pub fn live_lcores(&self) -> impl Iterator<Item = (usize, &LcoreStatus)> {
        let epoch = self.is_claimed(Role::Fastpath).then(|| self.epoch(Role::Fastpath));
        self.lcores().iter().enumerate().filter(move |(_, lcore)| lcore.is_live(epoch))
    }

    /// Path MTU towards a next hop as learned by fastpath, in bytes; the word is 0 if unknown.
    pub fn path_mtu(&self, next_hop: u32) -> Option<&AtomicU32> {
        self.path_mtus().get(next_hop as usize)
    }

    /// Path MTUs of all next hops.
    pub fn path_mtus(&self) -> &[AtomicU32] {
        self.slice(Section::PathMtus)
    }

    /// Returns whether the operator requested draining. The request is stored here to survive
    /// restarts of slowpath; a reboot removes the region, and with it the request.
    pub fn draining(&self) -> bool {
        self.header().slow.draining.load(Ordering::Relaxed) != 0
    }

    /// Stores whether the operator requested draining. Written by slowpath.
    pub fn set_draining(&self, on: bool) {
        self.header().slow.draining.store(u32::from(on), Ordering::Relaxed);
    }

    /// Returns a label, truncated at the first byte that is not valid UTF-8.
    pub fn label(&self, label: Label) -> String {
        self.header().label(label)
    }

    /// Stores a label for `weir status`; longer text is truncated.
    pub fn set_label(&self, label: Label, text: &str) {
        self.header().set_label(label, text);
    }

    /// The region's clock in seconds: the machine's monotonic clock, the same for all processes.
    pub fn now_s(&self) -> u32 {
        memory::monotonic_s()
    }

    /// The region's clock in milliseconds.
    pub fn now_ms(&self) -> u64 {
        memory::monotonic_ms()
    }

    /// Magic number and version of the format that this program uses.
    pub const fn format() -> (u64, u32) {
        (MAGIC, VERSION)
    }
}
