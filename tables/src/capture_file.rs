//! The file through which a data plane passes captured packets to slowpath.
//!
//! slowpath creates the file beside the region's lock files when a capture starts, and removes it
//! when the capture ends. The data plane looks for it, maps it, and fills its rings while the
//! capture's lease lasts, which slowpath renews. Both sides keep to the rules of the region: what
//! the other one wrote is checked before use.
//!
//! ```text
//!   page 0        magic, version, number of rings, slots per ring, filter | lease | writers
//!   status lines  64 bytes per ring: whether an lcore writes to it, records lost by arm
//!   rings         one per lcore (`ring`); a record is a head and up to four messages of bytes
//! ```

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::{CaptureFilter, FILTER_WORDS, HEAD_WORDS, MAX_CAPTURES, MAX_SNAP, RecordHead};
use crate::layout::{MAX_LCORES, SECTION_ALIGN};
use crate::region::{Memory, Region, RegionError, RegionLocation, make_locks_folder, monotonic_ms};
use crate::ring::{Consumer, Message, Producer, SharedSlots, Slots};

/// Milliseconds for which a lease lasts after its renewal.
pub const LEASE_MS: u64 = 1000;

/// Milliseconds after the end of a capture within which the data plane writes its last records: an
/// lcore those of its current burst, the loader of XDP programs those that it takes in its next
/// iteration.
pub const FLUSH_MS: u64 = 50;

const MAGIC: u64 = u64::from_le_bytes(*b"weircap\0");
/// Version of the file's format. Both sides must have the same.
const VERSION: u64 = 1;
/// Maximum number of messages in a ring.
const MAX_SLOTS: usize = 32_768;
/// Maximum size of all rings of a file in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Size of a status line in bytes.
const LINE: usize = 64;
/// Number of messages with bytes in a record, at most.
const MAX_PARTS: usize = MAX_SNAP as usize / size_of::<Message>();

/// Words of the first page.
const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_RINGS: usize = 2;
const AT_SLOTS: usize = 3;
const AT_FILTER: usize = 4;
/// Time until which the data plane may copy packets, in milliseconds of the monotonic clock; 0 when
/// the capture has ended. In a cache line of its own.
const AT_LEASE: usize = 32;
/// Number of rings that the data plane will write to; 0 until it has mapped the file.
const AT_WRITERS: usize = 40;
/// Number of words that are read before the file is mapped.
const HEAD: usize = 64;

/// Words of a status line.
const WRITES: usize = 0;
const LOST: usize = 1;

/// A mapped capture file.
#[derive(Debug)]
pub struct CaptureFile {
    memory: Memory,
    number: u8,
    rings: usize,
    slots: usize,
    filter: CaptureFilter,
}

/// Returns the path of the file of capture `number`.
pub fn path(location: &RegionLocation, number: usize) -> PathBuf {
    location.beside(&format!("capture{number}"))
}

/// Returns the number of slots per ring, so that all rings fit in [`MAX_BYTES`].
fn slots_for(rings: usize) -> usize {
    let fits = MAX_BYTES / rings.max(1) / size_of::<Message>();
    let fits = if fits.is_power_of_two() { fits } else { fits.next_power_of_two() / 2 };
    fits.min(MAX_SLOTS)
}

/// Returns the offset of the first ring.
fn rings_at(rings: usize) -> usize {
    SECTION_ALIGN + (rings * LINE).next_multiple_of(SECTION_ALIGN)
}

fn file_bytes(rings: usize, slots: usize) -> usize {
    rings_at(rings) + rings * SharedSlots::bytes(slots)
}

impl CaptureFile {
    /// Creates the file of capture `number` and replaces an old one. The lease has not begun.
    fn create(
        location: &RegionLocation,
        number: usize,
        filter: &CaptureFilter,
        rings: usize,
    ) -> Result<(CaptureFile, PathBuf), RegionError> {
        make_locks_folder(location.owners())?;
        let path = path(location, number);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(RegionError::open(&path, source));
            }
            _ => {}
        }
        let rings = rings.clamp(1, MAX_LCORES as usize);
        let slots = slots_for(rings);
        let memory = location.create_beside(&path, file_bytes(rings, slots))?;
        let file = CaptureFile { memory, number: number as u8, rings, slots, filter: *filter };
        let words = [(AT_VERSION, VERSION), (AT_RINGS, rings as u64), (AT_SLOTS, slots as u64)];
        let filter = (AT_FILTER..).zip(filter.words());
        words.into_iter().chain(filter).for_each(|(at, word)| {
            file.word(at).store(word, Ordering::Relaxed);
        });
        file.word(AT_MAGIC).store(MAGIC, Ordering::Release);
        Ok((file, path))
    }

    /// Opens the file of capture `number` if there is one with a valid lease.
    fn open(location: &RegionLocation, number: usize) -> Result<Option<CaptureFile>, RegionError> {
        let path = path(location, number);
        if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Ok(None);
        }
        let file = match location.open_beside(&path) {
            Ok(file) => file,
            // Removed in this moment.
            Err(RegionError::Open { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let head = read_head(&file).map_err(|source| RegionError::open(&path, source))?;
        let Some(head) = head else { return Ok(None) };
        if head[AT_MAGIC] != MAGIC || head[AT_LEASE] < monotonic_ms() {
            return Ok(None);
        }
        let (rings, slots) = (head[AT_RINGS] as usize, head[AT_SLOTS] as usize);
        let fits = (1..=MAX_LCORES as usize).contains(&rings) && slots == slots_for(rings);
        if head[AT_VERSION] != VERSION || !fits {
            let found = format!("version {} with {rings} rings of {slots}", head[AT_VERSION]);
            let text = format!(
                "unknown format of a capture ({found}, expected version {VERSION}); run slowpath \
                 and the data plane of the same version"
            );
            return Err(RegionError::open(&path, io::Error::new(ErrorKind::InvalidData, text)));
        }
        let memory = location.map_beside(&file, &path, file_bytes(rings, slots))?;
        let mut words = [0; FILTER_WORDS];
        words.copy_from_slice(&head[AT_FILTER..AT_FILTER + FILTER_WORDS]);
        let filter = CaptureFilter::from_words(&words);
        Ok(Some(CaptureFile { memory, number: number as u8, rings, slots, filter }))
    }

    fn words_at(&self, offset: usize, words: usize) -> &[AtomicU64] {
        debug_assert!(offset + words * 8 <= file_bytes(self.rings, self.slots));
        let start = self.memory.start().wrapping_add(offset).cast::<AtomicU64>();
        // SAFETY: callers pass ranges of the first page or of the status lines, which the file has
        // (its size was set or checked when it was mapped); the start is aligned to 64 bytes, and
        // any bytes are words. The memory lives as long as `self`.
        #[expect(unsafe_code, reason = "a view over mapped memory")]
        unsafe {
            std::slice::from_raw_parts(start, words)
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words_at(0, HEAD)[at]
    }

    fn line(&self, ring: usize) -> &[AtomicU64] {
        self.words_at(SECTION_ALIGN + ring.min(self.rings - 1) * LINE, LINE / 8)
    }

    fn ring(&self, ring: usize) -> SharedSlots<'_> {
        let at = rings_at(self.rings) + ring.min(self.rings - 1) * SharedSlots::bytes(self.slots);
        // SAFETY: within the file, behind the status lines; the rings begin at a page, and their
        // size is a multiple of 128 bytes. Nothing else uses this memory, which lives as long as
        // `self`.
        #[expect(unsafe_code, reason = "a view over mapped memory")]
        unsafe {
            SharedSlots::from_raw(self.memory.start().add(at), self.slots)
        }
    }

    /// Filter of the capture.
    pub fn filter(&self) -> &CaptureFilter {
        &self.filter
    }

    /// Number of the capture.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns whether the data plane may copy packets at this time, in milliseconds of the
    /// region's clock.
    #[inline]
    pub fn is_active(&self, now_ms: u64) -> bool {
        self.word(AT_LEASE).load(Ordering::Relaxed) >= now_ms
    }

    /// Records how many rings the data plane will write to. Called before their writers are made.
    pub fn set_writers(&self, writers: usize) {
        self.word(AT_WRITERS).store(writers as u64, Ordering::Release);
    }
}

/// Reads the first words of a file; `None` if it is shorter.
fn read_head(mut file: &File) -> io::Result<Option<[u64; HEAD]>> {
    let mut bytes = [0; HEAD * 8];
    match file.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(short) if short.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (words, _) = bytes.as_chunks::<8>();
    Ok(Some(std::array::from_fn(|at| u64::from_ne_bytes(words[at]))))
}

/// One ring of a file.
struct FileRing {
    file: Arc<CaptureFile>,
    ring: usize,
}

impl FileRing {
    #[inline(always)]
    fn slots(&self) -> SharedSlots<'_> {
        self.file.ring(self.ring)
    }
}

impl Slots for FileRing {
    #[inline]
    fn capacity(&self) -> u64 {
        self.slots().capacity()
    }
    #[inline]
    fn tail(&self) -> u64 {
        self.slots().tail()
    }
    #[inline]
    fn set_tail(&self, tail: u64) {
        self.slots().set_tail(tail);
    }
    #[inline]
    fn head(&self) -> u64 {
        self.slots().head()
    }
    #[inline]
    fn set_head(&self, head: u64) {
        self.slots().set_head(head);
    }
    #[inline]
    fn write(&self, n: u64, message: &Message) {
        self.slots().write(n, message);
    }
    #[inline]
    fn read(&self, n: u64) -> Message {
        self.slots().read(n)
    }
}

/// Writer of one lcore's records.
pub struct CaptureWriter {
    file: Arc<CaptureFile>,
    ring: usize,
    producer: Producer<FileRing>,
}

impl CaptureWriter {
    /// Creates the writer of ring `ring`. `None` beyond the file's number of rings.
    pub fn new(file: &Arc<CaptureFile>, ring: usize) -> Option<CaptureWriter> {
        (ring < file.rings).then(|| CaptureWriter {
            file: Arc::clone(file),
            ring,
            producer: Producer::attach(FileRing { file: Arc::clone(file), ring }),
        })
    }

    /// Continues where the ring's last writer stopped, and tells the reader that records of this
    /// lcore follow. Called on the lcore, when no other writer of the ring is in use.
    pub fn begin(&mut self) {
        self.producer =
            Producer::attach(FileRing { file: Arc::clone(&self.file), ring: self.ring });
        self.file.line(self.ring)[WRITES].store(1, Ordering::Release);
    }

    /// The file.
    #[inline]
    pub fn file(&self) -> &CaptureFile {
        &self.file
    }

    /// Filter of the capture.
    #[inline]
    pub fn filter(&self) -> &CaptureFilter {
        &self.file.filter
    }

    /// Writes a record of the frame's bytes, of which there are at most [`MAX_SNAP`]; the head's
    /// length is set to their number. If the ring is full, the record is lost and counted.
    pub fn write(&mut self, head: &RecordHead, bytes: &[u8]) -> bool {
        let bytes = &bytes[..bytes.len().min(usize::from(MAX_SNAP))];
        let head = RecordHead { len: bytes.len() as u16, ..*head };
        let mut messages = [Message::default(); 1 + MAX_PARTS];
        messages[0] = Message(head.words());
        for (at, eight) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            messages[1 + at / HEAD_WORDS].0[at % HEAD_WORDS] = u64::from_le_bytes(word);
        }
        let count = 1 + parts(bytes.len());
        let written = self.producer.push_group(&messages[..count]);
        if !written {
            self.count_lost(head.arm, 1);
        }
        written
    }

    /// Counts records that were lost before they reached this writer.
    pub fn count_lost(&self, arm: u8, records: u64) {
        let word = &self.file.line(self.ring)[LOST + usize::from(arm & 1)];
        // The writer is the only one.
        word.store(word.load(Ordering::Relaxed).wrapping_add(records), Ordering::Relaxed);
    }
}

/// Returns the number of messages that hold `bytes` bytes.
fn parts(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<Message>())
}

/// Reader of all rings of a capture; it owns the file. Dropping it ends the capture.
pub struct CaptureReader {
    file: Arc<CaptureFile>,
    path: PathBuf,
    rings: Vec<Consumer<FileRing>>,
    invalid: u64,
}

impl CaptureReader {
    /// Begins capture `number` on a region, with a lease of [`LEASE_MS`].
    ///
    /// # Errors
    /// Returns an error if the file cannot be created, or if the region is private to this process.
    pub fn begin(
        region: &Region,
        number: usize,
        filter: &CaptureFilter,
    ) -> Result<CaptureReader, RegionError> {
        let Some(location) = region.location() else {
            return Err(RegionError::open(Path::new(""), ErrorKind::Unsupported.into()));
        };
        CaptureReader::begin_at(location, number, filter, region.sizes().lcores as usize)
    }

    /// As [`CaptureReader::begin`], with a number of rings.
    pub fn begin_at(
        location: &RegionLocation,
        number: usize,
        filter: &CaptureFilter,
        rings: usize,
    ) -> Result<CaptureReader, RegionError> {
        let (file, path) = CaptureFile::create(location, number, filter, rings)?;
        let file = Arc::new(file);
        let rings = 0..file.rings;
        let attach = |ring| Consumer::attach(FileRing { file: Arc::clone(&file), ring });
        let rings = rings.map(attach).collect();
        let reader = CaptureReader { file, path, rings, invalid: 0 };
        reader.renew();
        Ok(reader)
    }

    /// Renews the lease.
    pub fn renew(&self) {
        self.lease_until(monotonic_ms() + LEASE_MS);
    }

    /// Sets the end of the lease in milliseconds of the region's clock; tests stop for longer than
    /// a lease.
    pub fn lease_until(&self, until_ms: u64) {
        self.file.word(AT_LEASE).store(until_ms, Ordering::Relaxed);
    }

    /// Returns whether all lcores of the data plane write records.
    pub fn is_attached(&self) -> bool {
        let writers = self.file.word(AT_WRITERS).load(Ordering::Acquire) as usize;
        let lines = (0..self.file.rings).map(|ring| self.file.line(ring));
        let writing = lines.filter(|line| line[WRITES].load(Ordering::Acquire) == 1).count();
        writers > 0 && writing >= writers
    }

    /// Takes up to `max` records of each ring, oldest first; returns their number.
    pub fn read(&mut self, max: usize, mut each: impl FnMut(&RecordHead, &[u8])) -> usize {
        let mut count = 0;
        for ring in &mut self.rings {
            for _ in 0..max {
                let Some(first) = ring.pop() else { break };
                let Some(head) = RecordHead::from_words(&first.0) else {
                    self.invalid += 1;
                    continue;
                };
                let mut messages = [Message::default(); MAX_PARTS];
                let parts = parts(usize::from(head.len));
                if ring.pop_into(&mut messages[..parts]) != parts {
                    self.invalid += 1;
                    continue;
                }
                let mut bytes = [0; MAX_SNAP as usize];
                let words = messages.iter().flat_map(|message| message.0);
                for (eight, word) in bytes.chunks_mut(8).zip(words) {
                    eight.copy_from_slice(&word.to_le_bytes());
                }
                each(&head, &bytes[..usize::from(head.len)]);
                count += 1;
            }
        }
        count
    }

    /// Returns the number of records that did not fit in a ring, by arm.
    pub fn lost(&self) -> [u64; 2] {
        let lines = (0..self.file.rings).map(|ring| self.file.line(ring));
        lines.fold([0; 2], |sum, line| {
            let lost = |arm: usize| line[LOST + arm].load(Ordering::Relaxed);
            [sum[0].wrapping_add(lost(0)), sum[1].wrapping_add(lost(1))]
        })
    }

    /// Returns the number of messages that belong to no record; zero unless a data plane is
    /// defective.
    pub fn invalid(&self) -> u64 {
        self.invalid
    }

    /// Ends the capture: the data plane copies no more packets. Records in the rings remain.
    pub fn end(&self) {
        self.lease_until(0);
    }
}

impl Drop for CaptureReader {
    fn drop(&mut self) {
        self.end();
        // A file that cannot be removed is replaced by the next capture.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the files of all captures. Called by slowpath when it starts, for those whose reader was
/// killed, and when it ends.
pub fn remove_all(location: &RegionLocation) {
    for number in 0..MAX_CAPTURES {
        // Nothing to remove is the usual case; what cannot be removed is replaced later.
        let _ = std::fs::remove_file(path(location, number));
    }
}

/// Finds captures for a data plane. Used by a thread that may block.
pub struct CaptureWatch {
    location: RegionLocation,
    files: [Option<Arc<CaptureFile>>; MAX_CAPTURES],
    /// The last error of each capture, which is reported once.
    failed: [Option<String>; MAX_CAPTURES],
}

impl CaptureWatch {
    /// Creates the watch of a region; `None` if it is private to this process.
    pub fn new(region: &Region) -> Option<CaptureWatch> {
        region.location().map(CaptureWatch::at)
    }

    /// Creates the watch of the region at a location.
    pub fn at(location: &RegionLocation) -> CaptureWatch {
        let (files, failed) = Default::default();
        CaptureWatch { location: location.clone(), files, failed }
    }

    /// Looks for captures that began or ended. Returns whether there are any. Errors are passed to
    /// `report` when they first occur.
    pub fn poll(&mut self, now_ms: u64, mut report: impl FnMut(&RegionError)) -> bool {
        let mut changed = false;
        for number in 0..MAX_CAPTURES {
            if let Some(file) = &self.files[number] {
                if file.is_active(now_ms) {
                    continue;
                }
                self.files[number] = None;
                changed = true;
            }
            match CaptureFile::open(&self.location, number) {
                Ok(None) => {}
                Ok(Some(file)) => {
                    self.files[number] = Some(Arc::new(file));
                    self.failed[number] = None;
                    changed = true;
                }
                Err(error) => {
                    let text = error.to_string();
                    if self.failed[number].as_ref() != Some(&text) {
                        report(&error);
                        self.failed[number] = Some(text);
                    }
                }
            }
        }
        changed
    }

    /// Returns the captures that are on, by number.
    pub fn files(&self) -> &[Option<Arc<CaptureFile>>; MAX_CAPTURES] {
        &self.files
    }
}

#[cfg(test)]
mod tests;
