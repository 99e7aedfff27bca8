//! Regions in kernel maps: one array map per section, pinned in a folder of a BPF file system, so
//! that XDP programs access the same memory as processes.
//!
//! The maps are mapped side by side into one address range, each at its section's offset. The
//! values of an array are contiguous and page-aligned, like the elements of a section, so all code
//! for regions in files works with these as well.

use std::ffi::CString;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::RegionError;
use super::access::{self, LOCKS, Owners};
use super::bpf::{self, Shape};
use super::header::{self, CONSTANT_BYTES};
use super::memory::{self, Memory};
use crate::layout::{Layout, SECTION_ALIGN, SECTIONS, Section, Term};

/// Mount point of the system's BPF file system.
const SYSTEM: &str = "/sys/fs/bpf";

/// Returns the shape of a section's map.
fn shape(term: &Term) -> Shape {
    let value = term.section.map_value_bytes();
    // A map has at least one value; a section may have no elements.
    Shape::array(value as u32, (term.count * term.bytes_each).div_ceil(value).max(1) as u32)
}

/// Returns the first bytes of the region in a folder; zeros if its creation has not begun.
pub(super) fn head(folder: &Path) -> Result<[u8; CONSTANT_BYTES], RegionError> {
    let path = folder.join(Section::Header.map_name());
    let map = match bpf::get(&path) {
        Ok(map) => map,
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok([0; CONSTANT_BYTES]),
        Err(source) => return Err(kernel_error(&path, source)),
    };
    let mut page = Memory::reserve(SECTION_ALIGN).map_err(|e| RegionError::open(&path, e))?;
    page.cover(0, SECTION_ALIGN, &map).map_err(|e| RegionError::open(&path, e))?;
    Ok(header::head_of(&page))
}

/// Reads the values of the map pinned at `path`: `bytes` bytes, a multiple of the page size.
pub(super) fn read(path: &Path, bytes: usize) -> Result<Vec<u8>, RegionError> {
    let failed = |source| kernel_error(path, source);
    let map = bpf::get(path).map_err(failed)?;
    // The kernel maps whole pages.
    let found = bpf::shape(&map).map_err(failed)?.bytes().next_multiple_of(SECTION_ALIGN);
    if found < bytes {
        return Err(RegionError::Size { path: path.to_path_buf(), found, wanted: bytes });
    }
    let mut memory = Memory::reserve(bytes.max(SECTION_ALIGN)).map_err(failed)?;
    let mut content = vec![0; bytes];
    if bytes > 0 {
        memory.cover(0, bytes, &map).map_err(failed)?;
        // SAFETY: the mapping has `bytes` bytes. Programs that write to the map meanwhile could
        // tear a value; callers have made sure that none is attached.
        #[expect(unsafe_code, reason = "the bytes of records of another format")]
        unsafe {
            std::ptr::copy_nonoverlapping(memory.start(), content.as_mut_ptr(), bytes);
        }
    }
    Ok(content)
}

/// Creates all maps. Maps pinned under their names are removed: their region was never finished.
pub(super) fn create(
    folder: &Path,
    owners: Owners,
    layout: &Layout,
) -> Result<Memory, RegionError> {
    prepare(folder, owners)?;
    unpin(folder)?;
    let make = |term: &Term| {
        let path = folder.join(term.section.map_name());
        let map =
            bpf::make(term.section.map_name(), &shape(term)).map_err(|source| {
                match source.raw_os_error() {
                    Some(libc::ENOMEM) => {
                        let (path, needed) = (folder.to_path_buf(), layout.bytes());
                        RegionError::Memory { path, needed, page: SECTION_ALIGN, source }
                    }
                    _ => kernel_error(&path, source),
                }
            })?;
        let pinned = bpf::pin(&map, &path).and_then(|()| access::share_map(&path, owners));
        pinned.map_err(|source| kernel_error(&path, source))?;
        Ok(map)
    };
    cover(folder, layout, make)
}

/// Maps the memory of all maps, which another process created. If this process's user owns them,
/// opens them to the owners' group, which may have been configured later.
pub(super) fn open(folder: &Path, owners: Owners, layout: &Layout) -> Result<Memory, RegionError> {
    check_folder(folder, owners)?;
    share(folder, owners)?;
    cover(folder, layout, |term| {
        let path = folder.join(term.section.map_name());
        let map = bpf::get(&path).map_err(|source| kernel_error(&path, source))?;
        let found = bpf::shape(&map).map_err(|source| kernel_error(&path, source))?;
        let expected = shape(term);
        if !found.fits(&expected) {
            let (found, wanted) = (found.bytes(), expected.bytes());
            return Err(RegionError::Size { path, found, wanted });
        }
        Ok(map)
    })
}

/// Reserves an address range and maps the map of each section, as `map_of` returns it, into it.
fn cover(
    folder: &Path,
    layout: &Layout,
    map_of: impl Fn(&Term) -> Result<OwnedFd, RegionError>,
) -> Result<Memory, RegionError> {
    let mapped = |source| RegionError::open(folder, source);
    let mut memory = Memory::reserve(layout.bytes()).map_err(mapped)?;
    for term in layout.terms() {
        let map = map_of(term)?;
        if term.bytes > 0 {
            memory.cover(term.offset, term.bytes, &map).map_err(mapped)?;
        }
    }
    Ok(memory)
}

/// Unpins all maps, also those of sections that only another format has. Each map then exists until
/// the last process or program closes it.
pub(super) fn unpin(folder: &Path) -> Result<(), RegionError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(kernel_error(folder, source)),
    };
    for entry in entries {
        let path = entry.map_err(|source| kernel_error(folder, source))?.path();
        if path.is_dir() {
            continue;
        }
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(kernel_error(&path, source));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Creates the folder, and mounts the system's BPF file system if needed: most distributions do so
/// at boot, but a program that runs earlier has to mount it.
pub(super) fn prepare(folder: &Path, owners: Owners) -> Result<(), RegionError> {
    if !on_bpffs(folder) {
        let _one_at_a_time = {
            let path = Path::new(LOCKS).join("bpf-mount.lock");
            memory::lock_file(&access::open(&path, owners, true)?, &path)?
        };
        if !on_bpffs(folder) && (!folder.starts_with(SYSTEM) || !may_mount() || !mount(SYSTEM)) {
            return Err(RegionError::NoBpffs { path: folder.to_path_buf() });
        }
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| kernel_error(folder, source))?;
    check_folder(folder, owners)?;
    access::share_folder(folder, owners).map_err(|source| kernel_error(folder, source))
}

/// Checks that no other user can replace the maps in the folder.
fn check_folder(folder: &Path, owners: Owners) -> Result<(), RegionError> {
    access::check_path(&folder.join(Section::Header.map_name()), owners)
}

/// Opens the folder and all pinned maps that belong to this process's user to the owners' group.
pub(super) fn share(folder: &Path, owners: Owners) -> Result<(), RegionError> {
    if owners.group.is_none() {
        return Ok(());
    }
    access::share_folder(folder, owners).map_err(|source| kernel_error(folder, source))?;
    for section in SECTIONS {
        let path = folder.join(section.map_name());
        match access::share_map(&path, owners) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(kernel_error(&path, source));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether the folder is, or would be, in a BPF file system.
fn on_bpffs(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|path| path.exists());
    let existing = existing.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let Some(path) = existing else { return false };
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a NUL-terminated string and a zeroed output structure.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let (rc, found) =
        unsafe { (libc::statfs(path.as_ptr(), found.as_mut_ptr()), found.assume_init()) };
    rc == 0 && found.f_type as u64 & 0xffff_ffff == libc::BPF_FS_MAGIC as u64 & 0xffff_ffff
}

/// Returns whether this process may mount file systems (CAP_SYS_ADMIN). Without it, the call could
/// end the process, because the system call filters of the units forbid it.
fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_none_or(|mask| mask >> CAP_SYS_ADMIN & 1 == 1)
}

fn mount(at: &str) -> bool {
    let Ok(at) = CString::new(at) else { return false };
    let (kind, options) = (c"bpf".as_ptr(), c"mode=0700".as_ptr().cast());
    // SAFETY: NUL-terminated strings.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    let rc = unsafe { libc::mount(kind, at.as_ptr(), kind, 0, options) };
    rc == 0
}

fn kernel_error(path: &Path, source: io::Error) -> RegionError {
    RegionError::Kernel { path: path.to_path_buf(), source }
}
