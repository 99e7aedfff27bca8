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
use super::access::{self, LOCKS};
use super::bpf::{self, Shape};
use super::header::{self, FIXED_BYTES};
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
pub(super) fn head(folder: &Path) -> Result<[u8; FIXED_BYTES], RegionError> {
    let path = folder.join(Section::Header.map_name());
    let map = match bpf::get(&path) {
        Ok(map) => map,
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok([0; FIXED_BYTES]),
        Err(source) => return Err(kernel_error(&path, source)),
    };
    let mut page = Memory::reserve(SECTION_ALIGN).map_err(|e| RegionError::open(&path, e))?;
    page.cover(0, SECTION_ALIGN, &map).map_err(|e| RegionError::open(&path, e))?;
    Ok(header::head_of(&page))
}

/// Creates all maps. Maps pinned under their names are removed: their region was never finished.
pub(super) fn create(folder: &Path, layout: &Layout) -> Result<Memory, RegionError> {
    prepare(folder)?;
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
        bpf::pin(&map, &path).map_err(|source| kernel_error(&path, source))?;
        Ok(map)
    };
    cover(folder, layout, make)
}

/// Maps all maps, which another process created.
pub(super) fn open(folder: &Path, layout: &Layout) -> Result<Memory, RegionError> {
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

/// Unpins all maps, which then exist until the last process or program closes them.
pub(super) fn unpin(folder: &Path) -> Result<(), RegionError> {
    for section in SECTIONS {
        let path = folder.join(section.map_name());
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(kernel_error(&path, source));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Creates the folder. It mounts the system's BPF file system if needed: most distributions do that
/// at boot, and programs that need it earlier mount it themselves.
fn prepare(folder: &Path) -> Result<(), RegionError> {
    if !on_bpffs(folder) {
        let _one_at_a_time = {
            let path = Path::new(LOCKS).join("bpf-mount.lock");
            memory::lock_file(&access::open(&path, None, true)?, &path)?
        };
        if !on_bpffs(folder) && (!folder.starts_with(SYSTEM) || !mount(SYSTEM)) {
            return Err(RegionError::NoBpffs { path: folder.to_path_buf() });
        }
    }
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| kernel_error(folder, source))
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
