//! The region's first page: its format, its layout, and the committed generation.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::memory::Memory;
use super::{RegionError, Role};
use crate::checksum::checksum;
use crate::layout::{Layout, MAX_LCORES, MAX_TUNNELS, SECTIONS, Sizes, VERSION};

/// Magic number: the bytes "WEIRTABL".
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"WEIRTABL");

/// Size of a label in bytes.
const LABEL_BYTES: usize = 64;

/// Text fields of the header, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Label {
    /// Name of the appliance; written by slowpath.
    Appliance = 0,
    /// Device of the ingress port; written by fastpath.
    Ingress = 1,
    /// Device of the egress port; written by fastpath.
    Egress = 2,
    /// Version and plane of fastpath; written by fastpath.
    Fastpath = 3,
}

/// Part of the header that does not change after the region's creation. The field `checksum` covers
/// all fields before it.
#[repr(C)]
#[derive(Clone, Copy)]
struct ConstantPart {
    magic: u64,
    version: u32,
    header_bytes: u32,
    hash_seed: u64,
    sizes: Sizes,
    /// Offset and size in bytes of each section.
    sections: [[u64; 2]; SECTIONS.len()],
    checksum: u64,
}

/// Size of [`ConstantPart`] in bytes.
pub(super) const CONSTANT_BYTES: usize = size_of::<ConstantPart>();

/// Cache line that slowpath writes.
#[repr(C, align(64))]
pub(crate) struct SlowLine {
    pub(crate) generation: AtomicU32,
    epoch: AtomicU32,
    pid: AtomicU32,
    /// 1 while the operator requests draining, else 0.
    pub(super) draining: AtomicU32,
    /// Checksums of the table sets of the last two generations, indexed by the generation's lowest
    /// bit.
    pub(crate) sums: [AtomicU64; 2],
}

/// Cache line that fastpath writes.
#[repr(C, align(64))]
pub(crate) struct FastLine {
    epoch: AtomicU32,
    pid: AtomicU32,
    /// Epoch of the process that wrote the next two fields; 0 before the first.
    usage_epoch: AtomicU32,
    /// CPU time of the process in milliseconds.
    cpu_ms: AtomicU64,
    /// Resident memory of the process in bytes.
    resident_bytes: AtomicU64,
}

/// CPU time and memory of the data plane's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessUsage {
    /// User and system time in milliseconds.
    pub cpu_ms: u64,
    /// Resident memory in bytes, without huge pages.
    pub resident_bytes: u64,
}

/// The header page.
#[repr(C, align(4096))]
pub(crate) struct Header {
    /// [`ConstantPart`] as atomic words: reading it is sound even if a foreign process writes it.
    constant: [AtomicU64; CONSTANT_BYTES / 8],
    pub(crate) slow: SlowLine,
    fast: FastLine,
    labels: [[AtomicU8; LABEL_BYTES]; 4],
}

const _: () = assert!(size_of::<Header>() == 4096);
const _: () = assert!(
    CONSTANT_BYTES.is_multiple_of(8) && CONSTANT_BYTES == 8 + 8 + 8 + 64 + 16 * SECTIONS.len() + 8
);

impl ConstantPart {
    fn new(layout: &Layout, hash_seed: u64) -> ConstantPart {
        let sections = layout.terms().map(|term| [term.offset as u64, term.bytes as u64]);
        let mut constant = ConstantPart {
            magic: MAGIC,
            version: VERSION,
            header_bytes: size_of::<Header>() as u32,
            hash_seed,
            sizes: *layout.sizes(),
            sections,
            checksum: 0,
        };
        constant.checksum = constant.sum();
        constant
    }

    fn sum(&self) -> u64 {
        let bytes: &[u8; CONSTANT_BYTES] = self.bytes();
        checksum(MAGIC, &bytes[..CONSTANT_BYTES - 8])
    }

    fn bytes(&self) -> &[u8; CONSTANT_BYTES] {
        // SAFETY: `ConstantPart` is `repr(C)` integers without padding (asserted above).
        #[expect(unsafe_code, reason = "the header's own bytes for its checksum")]
        unsafe {
            &*std::ptr::from_ref(self).cast()
        }
    }

    fn from_bytes(bytes: &[u8; CONSTANT_BYTES]) -> ConstantPart {
        // SAFETY: `ConstantPart` is `repr(C)` integers without padding: any bytes are a value.
        #[expect(unsafe_code, reason = "the header as read from the file")]
        unsafe {
            bytes.as_ptr().cast::<ConstantPart>().read_unaligned()
        }
    }
}

impl Header {
    /// Writes a new header except its magic number, while no other process has the region. If the
    /// creator is killed from now on, the region counts as unfinished.
    pub(super) fn begin(&self, layout: &Layout, hash_seed: u64) {
        let unfinished = ConstantPart { magic: 0, ..ConstantPart::new(layout, hash_seed) };
        let (words, _) = unfinished.bytes().as_chunks::<8>();
        for (cell, word) in self.constant.iter().zip(words) {
            cell.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Writes the magic number, which makes the region available to other processes.
    pub(super) fn finish(&self) {
        self.constant[0].store(MAGIC, Ordering::Release);
    }

    /// Current bytes of the constant part.
    fn head(&self) -> [u8; CONSTANT_BYTES] {
        let mut head = [0; CONSTANT_BYTES];
        let (words, _) = head.as_chunks_mut::<8>();
        for (word, cell) in words.iter_mut().zip(&self.constant) {
            *word = cell.load(Ordering::Acquire).to_ne_bytes();
        }
        head
    }

    pub(super) fn epoch(&self, role: Role) -> &AtomicU32 {
        match role {
            Role::Fastpath => &self.fast.epoch,
            Role::Slowpath => &self.slow.epoch,
        }
    }

    pub(super) fn pid(&self, role: Role) -> &AtomicU32 {
        match role {
            Role::Fastpath => &self.fast.pid,
            Role::Slowpath => &self.slow.pid,
        }
    }

    /// Writes the usage of the data plane's process. Only the holder of the role calls it.
    pub(super) fn set_usage(&self, usage: ProcessUsage) {
        self.fast.cpu_ms.store(usage.cpu_ms, Ordering::Relaxed);
        self.fast.resident_bytes.store(usage.resident_bytes, Ordering::Relaxed);
        let epoch = self.fast.epoch.load(Ordering::Relaxed);
        self.fast.usage_epoch.store(epoch, Ordering::Release);
    }

    /// Returns the usage that the process with the current epoch of the data plane has written.
    pub(super) fn usage(&self) -> Option<ProcessUsage> {
        let epoch = self.fast.usage_epoch.load(Ordering::Acquire);
        (epoch != 0 && epoch == self.fast.epoch.load(Ordering::SeqCst)).then(|| ProcessUsage {
            cpu_ms: self.fast.cpu_ms.load(Ordering::Relaxed),
            resident_bytes: self.fast.resident_bytes.load(Ordering::Relaxed),
        })
    }

    pub(super) fn label(&self, label: Label) -> String {
        let bytes = self.labels[label as usize].each_ref().map(|b| b.load(Ordering::Relaxed));
        let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
        match std::str::from_utf8(text) {
            Ok(text) => text.to_owned(),
            Err(bad) => String::from_utf8_lossy(&text[..bad.valid_up_to()]).into_owned(),
        }
    }

    pub(super) fn set_label(&self, label: Label, text: &str) {
        let mut bytes = text.bytes();
        for cell in &self.labels[label as usize] {
            cell.store(bytes.next().unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// Returns the first bytes of a file, padded with zeros.
pub(super) fn head_of_file(file: &File, path: &Path) -> Result<[u8; CONSTANT_BYTES], RegionError> {
    let mut raw = [0; CONSTANT_BYTES];
    let read = raw.len().min(super::memory::file_bytes(file, path)?);
    file.read_exact_at(&mut raw[..read], 0).map_err(|source| RegionError::open(path, source))?;
    Ok(raw)
}

/// Returns the first bytes of mapped memory, which has at least one page.
pub(super) fn head_of(memory: &Memory) -> [u8; CONSTANT_BYTES] {
    // SAFETY: the mapping is page-aligned and at least as long as a header, which consists of
    // atomics only: any bytes are valid, and other processes may change them concurrently.
    #[expect(unsafe_code, reason = "the header before its validation")]
    let header = unsafe { &*memory.start().cast::<Header>() };
    header.head()
}

/// Returns whether the magic number is missing: the file is empty, or its creator was killed before
/// it finished.
pub(super) fn is_unfinished(raw: &[u8; CONSTANT_BYTES]) -> bool {
    raw[..8] == [0; 8]
}

/// Verifies magic number, version, checksum and offsets, and returns layout and seed.
pub(super) fn verify(
    raw: &[u8; CONSTANT_BYTES],
    path: &Path,
) -> Result<(Layout, u64), RegionError> {
    let constant = ConstantPart::from_bytes(raw);
    let path = || path.to_path_buf();
    if constant.magic == 0 {
        return Err(RegionError::Unfinished { path: path() });
    }
    if constant.magic != MAGIC {
        return Err(RegionError::NotARegion { path: path(), found: constant.magic });
    }
    if constant.version != VERSION {
        let (found, known) = (constant.version, VERSION);
        return Err(RegionError::Version { path: path(), found, known });
    }
    let (found, wanted) = (constant.sum(), constant.checksum);
    if found != wanted {
        return Err(RegionError::Checksum { path: path(), part: "header", found, wanted });
    }
    constant.sizes.check()?;
    let layout = Layout::new(&constant.sizes);
    if ConstantPart::new(&layout, constant.hash_seed).sections != constant.sections {
        // Equal version with other offsets: a development build between two versions created the
        // region.
        let (found, known) = (constant.version, VERSION);
        return Err(RegionError::Version { path: path(), found, known });
    }
    Ok((layout, constant.hash_seed))
}

/// Returns a random seed, for a region whose hashes need not equal those of other appliances.
pub(super) fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Fails if a region was created with sizes other than the configured ones.
pub(super) fn same_sizes(path: &Path, found: &Sizes, wanted: &Sizes) -> Result<(), RegionError> {
    for ((setting, found), (_, wanted)) in found.settings().into_iter().zip(wanted.settings()) {
        if found != wanted {
            return Err(RegionError::Sizes { path: path.to_path_buf(), setting, found, wanted });
        }
    }
    Ok(())
}

impl Sizes {
    /// Each size with its configuration key.
    pub fn settings(&self) -> [(&'static str, u32); 16] {
        [
            ("gateway", self.tunnels),
            ("region.max_services", self.services),
            ("region.max_frontends", self.frontends),
            ("region.max_backends", self.backends),
            ("region.max_next_hops", self.next_hops),
            ("region.slots", self.slots),
            ("fastpath.lcores", self.lcores),
            ("region.ring_slots", self.ring_slots),
            ("region.max_flows", self.flows),
            ("region.option_slabs", self.option_slabs),
            ("region.max_fragments", self.fragments),
            ("region.nat_maps", self.nat_maps),
            ("region.max_scopes", self.scopes),
            ("region.max_affinities", self.affinities),
            ("region.counted_services", self.counted_services),
            ("region.counted_backends", self.counted_backends),
        ]
    }

    /// Checks the sizes, and reports the first configuration key whose value is out of range.
    pub fn check(&self) -> Result<(), RegionError> {
        for (setting, found) in self.settings() {
            let (min, max) = match setting {
                "gateway" => (1, MAX_TUNNELS),
                "fastpath.lcores" => (1, MAX_LCORES),
                "region.ring_slots" => (2, 1 << 20),
                "region.option_slabs" | "region.nat_maps" => (0, 1 << 24),
                "region.counted_services" | "region.counted_backends" => (0, 1 << 26),
                "region.slots" => (0, 1 << 30),
                _ => (1, 1 << 26),
            };
            let power = setting == "region.ring_slots";
            if found < min || found > max || (power && !found.is_power_of_two()) {
                return Err(RegionError::Limit { setting, found, min, max, power });
            }
        }
        Ok(())
    }
}
