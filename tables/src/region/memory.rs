//! Memory of a region: a mapped file, mapped kernel maps, or private memory.

use std::alloc::{Layout as HeapLayout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use super::RegionError;
use crate::layout::SECTION_ALIGN;

/// Owner of the memory, which is released on drop.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// Page size in bytes.
    page: usize,
    /// Whether the memory is a mapping; else it was allocated from the heap.
    mapped: bool,
}

// SAFETY: any thread accesses the bytes only through atomics and the rules of `versioned`; those of
// the header, which other processes may write at any time, through atomics only.
#[expect(unsafe_code, reason = "a raw pointer to shared memory")]
unsafe impl Send for Memory {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a raw pointer to shared memory")]
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn page_bytes(&self) -> usize {
        self.page
    }

    /// Maps the whole file and populates all pages.
    pub(super) fn map(file: &File, path: &Path, bytes: usize) -> Result<Memory, RegionError> {
        let page = page_bytes(file, path)?;
        let (protect, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address chosen by the kernel, which replaces no other.
        // Processes with write access to the file can change its contents (`access` ensures that
        // these are Weir's): no reference to plain memory is made from it, see `Send` above. If the
        // file is truncated later, a signal ends the process, and no other bytes are exposed.
        #[expect(unsafe_code, reason = "a system call that std lacks")]
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protect, flags, file.as_raw_fd(), 0) };
        match NonNull::new(at.cast::<u8>()) {
            Some(start) if at != libc::MAP_FAILED => {
                Ok(Memory { start, bytes, page, mapped: true })
            }
            _ => Err(no_memory(path, bytes, page)),
        }
    }

    /// Reserves an address range without memory, to be covered piece by piece.
    pub(super) fn reserve(bytes: usize) -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping of no file, address chosen by the kernel.
        #[expect(unsafe_code, reason = "a system call that std lacks")]
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        match NonNull::new(at.cast::<u8>()) {
            Some(start) if at != libc::MAP_FAILED => {
                Ok(Memory { start, bytes, page: SECTION_ALIGN, mapped: true })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Maps the values of an array map into the range. Offset and length are multiples of the page
    /// size.
    pub(super) fn cover(&mut self, offset: usize, bytes: usize, map: &OwnedFd) -> io::Result<()> {
        let within = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if !within || !self.mapped {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let at = self.start().wrapping_add(offset).cast();
        let (protect, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: replaces a part of this reservation (checked above) that is not in use yet
        // (`&mut self`), by a mapping that lives as long as the reservation.
        #[expect(unsafe_code, reason = "a system call that std lacks")]
        let mapped = unsafe { libc::mmap(at, bytes, protect, flags, map.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Allocates zeroed private memory.
    pub(super) fn heap(bytes: usize) -> Memory {
        let layout = heap_layout(bytes);
        // SAFETY: the size is not zero, because every region has a header.
        #[expect(unsafe_code, reason = "zeroed pages without touching them")]
        let at = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(at) else { handle_alloc_error(layout) };
        Memory { start, bytes, page: 4096, mapped: false }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped or allocated here with exactly this size; no reference outlives the region
        // that owns the memory.
        #[expect(unsafe_code, reason = "unmaps or frees the memory")]
        unsafe {
            if self.mapped {
                super::truncation::unwatch(self.start.as_ptr());
                libc::munmap(self.start.as_ptr().cast(), self.bytes);
            } else {
                dealloc(self.start.as_ptr(), heap_layout(self.bytes));
            }
        }
    }
}

fn heap_layout(bytes: usize) -> HeapLayout {
    HeapLayout::from_size_align(bytes, SECTION_ALIGN)
        .expect("a layout's size is far below isize::MAX")
}

fn no_memory(path: &Path, needed: usize, page: usize) -> RegionError {
    let source = io::Error::last_os_error();
    RegionError::Memory { path: path.to_path_buf(), needed, page, source }
}

/// Takes the lock under which a region is created, and waits for it if needed. Dropping the result
/// releases it.
pub(super) fn lock_file(file: &File, path: &Path) -> Result<FileLock, RegionError> {
    // A duplicated descriptor shares the lock with the original, and unlocking either releases it.
    let own = file.try_clone().map_err(|source| RegionError::open(path, source))?;
    own.lock().map_err(|source| RegionError::open(path, source))?;
    Ok(FileLock(own))
}

/// A lock on a whole file, released on drop.
pub(super) struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // If unlocking fails, the lock lasts until the process ends.
        let _ = self.0.unlock();
    }
}

pub(super) fn file_bytes(file: &File, path: &Path) -> Result<usize, RegionError> {
    let found = file.metadata().map_err(|source| RegionError::open(path, source))?;
    Ok(found.len() as usize)
}

/// Resizes the file to at least `bytes`, in whole pages of its file system, all zero.
pub(super) fn size_file(file: &File, path: &Path, bytes: usize) -> Result<usize, RegionError> {
    let page = page_bytes(file, path)?;
    let bytes = bytes.next_multiple_of(page);
    for len in [0, bytes as u64] {
        file.set_len(len).map_err(|source| RegionError::open(path, source))?;
    }
    // Memory is allocated now, so that a full /dev/shm is an error here instead of a SIGBUS later.
    // SAFETY: an open descriptor.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) };
    if rc != 0 {
        let failed = no_memory(path, bytes, page);
        // The file is emptied again, so that it does not appear to be a region.
        let _ = file.set_len(0);
        return Err(failed);
    }
    Ok(bytes)
}

/// Returns the free memory of the file system at `path` in bytes.
pub(super) fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a NUL-terminated string and a zeroed output structure.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let (rc, found) =
        unsafe { (libc::statfs(path.as_ptr(), found.as_mut_ptr()), found.assume_init()) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.f_bavail * found.f_bsize as u64)
}

fn page_bytes(file: &File, path: &Path) -> Result<usize, RegionError> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: an open descriptor and a zeroed output structure.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let (rc, found) =
        unsafe { (libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()), found.assume_init()) };
    if rc != 0 {
        return Err(RegionError::last(path, "fstatfs"));
    }
    let huge = found.f_type == libc::HUGETLBFS_MAGIC;
    Ok(if huge { found.f_bsize as usize } else { SECTION_ALIGN })
}

/// Seconds of the machine's monotonic clock.
pub(super) fn monotonic_s() -> u32 {
    (monotonic_ms() / 1000) as u32
}

/// Milliseconds of the machine's monotonic clock.
pub(crate) fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Nanoseconds of the machine's monotonic clock.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid output structure; this clock always exists.
    #[expect(unsafe_code, reason = "std's Instant is not comparable between processes")]
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now);
    }
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
