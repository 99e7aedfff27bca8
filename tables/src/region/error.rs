//! What can be wrong with a region, and what to type then.

use std::io;
use std::path::{Path, PathBuf};

use super::Role;
use crate::layout::SECTION_ALIGN;

/// Why a region can't be had.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The file can't be opened or created.
    #[error("{}: {source}{}", path.display(), open_hint(source, path))]
    Open {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A system call on it failed.
    #[error("{}: {call}: {source}", path.display())]
    System {
        /// Which file.
        path: PathBuf,
        /// Which call.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// There is not enough memory of its kind.
    #[error(
        "{}: {needed} bytes in pages of {page} bytes can't be had: {source}; {}",
        path.display(), memory_hint(*page)
    )]
    Memory {
        /// Which file.
        path: PathBuf,
        /// Bytes.
        needed: usize,
        /// Bytes of a page there.
        page: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Others than Weir's processes can change it.
    #[error("{}: {what}; {remedy}", path.display())]
    Unsafe {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// It is something else.
    #[error(
        "{}: not a region of Weir (it begins with {found:#018x}); set {} to another {}",
        path.display(), key(path), if path.is_dir() { "folder" } else { "file" }
    )]
    NotARegion {
        /// Which file.
        path: PathBuf,
        /// Its first eight bytes.
        found: u64,
    },
    /// Nobody has made a region there yet, or its maker died while it did.
    #[error("{}: the region isn't made yet; start fastpath or slowpath first", path.display())]
    Unfinished {
        /// Which file.
        path: PathBuf,
    },
    /// Another Weir made it.
    #[error(
        "{0}: the region has format {found}, this program knows format {known}; stop fastpath and \
         slowpath of the other version, then type `{1}` (flows are lost)",
        path.display(), removal(path)
    )]
    Version {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The header is damaged.
    #[error(
        "{0}: the checksum over the region's {part} is {found:#018x}, it should be {wanted:#018x}; \
         stop fastpath and slowpath, then type `{1}` (flows are lost)",
        path.display(), removal(path)
    )]
    Checksum {
        /// Which file.
        path: PathBuf,
        /// Header or table set.
        part: &'static str,
        /// Computed.
        found: u64,
        /// Stored.
        wanted: u64,
    },
    /// The file was cut.
    #[error(
        "{0}: the region is {found} bytes long, its header says {wanted}; stop fastpath and \
         slowpath, then type `{1}` (flows are lost)", path.display(), removal(path)
    )]
    Size {
        /// Which file.
        path: PathBuf,
        /// Bytes.
        found: usize,
        /// Bytes.
        wanted: usize,
    },
    /// It exists with other sizes than the configuration asks for.
    #[error(
        "{0}: {setting} is {wanted}, the existing region was made for {found}; set {setting} = \
         {found}, or stop fastpath and slowpath and type `{1}` (flows are lost)",
        path.display(), removal(path)
    )]
    Sizes {
        /// Which file.
        path: PathBuf,
        /// The setting.
        setting: &'static str,
        /// In the region.
        found: u32,
        /// In the configuration.
        wanted: u32,
    },
    /// Its flows lie where another seed put them. (The seeds aren't shown: who knows them can aim
    /// at a bucket of the flow table.)
    #[error(
        "{0}: the flows of the existing region are filed under another tables.seed than the \
         configuration's; set tables.seed back to what it was, or stop fastpath and slowpath and \
         type `{1}` (flows are lost)", path.display(), removal(path)
    )]
    Seed {
        /// Which file.
        path: PathBuf,
    },
    /// A size that no region can have.
    #[error("{setting} is {found}; allowed are {least} to {most}{}", power_hint(*power))]
    Limit {
        /// The setting.
        setting: &'static str,
        /// Its value.
        found: u32,
        /// Least.
        least: u32,
        /// Most.
        most: u32,
        /// Only powers of two.
        power: bool,
    },
    /// Another process has the role.
    #[error(
        "another {role} (process {pid}) uses {}; stop it first, or give this one another {}",
        path.display(), key(path)
    )]
    Taken {
        /// Which file.
        path: PathBuf,
        /// Which role.
        role: Role,
        /// Process id of the other.
        pid: u32,
    },
    /// A map can't be had.
    #[error("{}: {source}{}", path.display(), kernel_hint(source))]
    Kernel {
        /// Which map or folder.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The folder of the maps isn't where maps can be pinned.
    #[error(
        "region.maps = \"{}\" is in no BPF file system; type `mount -t bpf bpf /sys/fs/bpf` and \
         choose a folder in there", path.display()
    )]
    NoBpffs {
        /// Which folder.
        path: PathBuf,
    },
    /// Somebody works with the region that is to be taken over.
    #[error(
        "a {role} of the other plane still works with {}: stop it first, its flows are taken over \
         then", path.display()
    )]
    OtherPlane {
        /// Where the other plane's region is.
        path: PathBuf,
        /// Who.
        role: Role,
    },
    /// XDP programs work with the region that is to be taken over.
    #[error(
        "XDP programs still work with the maps in {}: type `ebpf-fallback --detach` first, their \
         flows are taken over then", path.display()
    )]
    Attached {
        /// Where the maps are.
        path: PathBuf,
    },
}

impl RegionError {
    pub(super) fn open(path: &Path, source: io::Error) -> RegionError {
        RegionError::Open { path: path.to_path_buf(), source }
    }

    pub(super) fn last(path: &Path, call: &'static str) -> RegionError {
        RegionError::System { path: path.to_path_buf(), call, source: io::Error::last_os_error() }
    }
}

/// The setting that says where a region lies.
fn key(path: &Path) -> &'static str {
    if path.is_dir() { "region.maps" } else { "region.path" }
}

/// What removes a region.
fn removal(path: &Path) -> String {
    format!("rm {}{}", if path.is_dir() { "-r " } else { "" }, path.display())
}

fn kernel_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => {
            "; kernel maps take CAP_BPF, and before Linux 5.11 room in `ulimit -l`: run it as root"
        }
        Some(libc::ENOENT) => "; the region was removed in part: type `rm -r` for its folder",
        Some(libc::EINVAL | libc::ENOSYS) => "; plane = \"xdp\" takes Linux 5.18 or later",
        _ => "",
    }
}

fn memory_hint(page: usize) -> &'static str {
    if page > SECTION_ALIGN {
        "type `weir hugepages apply`, or set region.path to a file in /dev/shm"
    } else {
        "type `weir hugepages plan` to see what takes how much, and lower it (region.max_flows, \
         region.slots), or `mount -o remount,size=...` the file system"
    }
}

fn power_hint(power: bool) -> &'static str {
    if power { ", a power of two" } else { "" }
}

fn open_hint(source: &io::Error, path: &Path) -> String {
    let directory = path.parent().unwrap_or(Path::new("/")).display();
    match source.kind() {
        io::ErrorKind::NotFound => format!("; type `mkdir -p {directory}`, or start Weir first"),
        io::ErrorKind::PermissionDenied => "; run it as root".to_owned(),
        _ => String::new(),
    }
}
