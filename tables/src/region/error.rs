//! `RegionError`: errors of opening and creating regions, with their remedies.

use std::io;
use std::path::{Path, PathBuf};

use super::Role;
use crate::layout::SECTION_ALIGN;

/// Error of opening, creating or claiming a region.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The file cannot be opened or created.
    #[error("{}: {source}{}", path.display(), open_hint(source, path))]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// A system call on the file failed.
    #[error("{}: {call}: {source}", path.display())]
    System {
        /// Path of the file.
        path: PathBuf,
        /// Name of the call.
        call: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// There is not enough memory of the required kind.
    #[error(
        "{}: cannot allocate {needed} bytes in pages of {page} bytes: {source}; {}",
        path.display(), memory_hint(*page)
    )]
    Memory {
        /// Path of the file.
        path: PathBuf,
        /// Required bytes.
        needed: usize,
        /// Page size in bytes.
        page: usize,
        /// Error of the system call.
        source: io::Error,
    },
    /// Processes other than Weir's can change the file.
    #[error("{}: {what}; {remedy}", path.display())]
    Unsafe {
        /// Path of the file.
        path: PathBuf,
        /// What is unsafe about it.
        what: String,
        /// Command that corrects it.
        remedy: String,
    },
    /// The file is not a region.
    #[error(
        "{}: not a region of Weir (it begins with {found:#018x}); set {} to another {}",
        path.display(), key(path), if path.is_dir() { "folder" } else { "file" }
    )]
    NotARegion {
        /// Path of the file.
        path: PathBuf,
        /// Its first eight bytes.
        found: u64,
    },
    /// The region does not exist yet, or its creator was killed before it finished.
    #[error(
        "{}: the region does not exist yet; start the data plane or slowpath first", path.display()
    )]
    Unfinished {
        /// Path of the file.
        path: PathBuf,
    },
    /// The region has the format of another version.
    #[error(
        "{0}: the region has format {found}, this program needs format {known}; run `weir upgrade \
         plan` to keep the flows, or stop the data plane and slowpath and type `{1}` to discard \
         them",
        path.display(), removal(path)
    )]
    Version {
        /// Path of the file.
        path: PathBuf,
        /// Format version of the region.
        found: u32,
        /// Format version of this program.
        known: u32,
    },
    /// The checksum of the header or of the table set does not match.
    #[error(
        "{0}: the checksum of the region's {part} is {found:#018x}, expected {wanted:#018x}; stop \
         the data plane and slowpath, then type `{1}` (flows are lost)",
        path.display(), removal(path)
    )]
    Checksum {
        /// Path of the file.
        path: PathBuf,
        /// Damaged part: header, table set, frontend chains or slot arena.
        part: &'static str,
        /// Computed checksum, or for chains and arena the inconsistent value.
        found: u64,
        /// Stored checksum, or the expected value.
        wanted: u64,
    },
    /// The file or map is shorter than its header or layout requires.
    #[error(
        "{0}: the region is {found} bytes long, its header says {wanted}; stop the data plane \
         and slowpath, then type `{1}` (flows are lost)", path.display(), removal(path)
    )]
    Size {
        /// Path of the file.
        path: PathBuf,
        /// Actual size in bytes.
        found: usize,
        /// Required size in bytes.
        wanted: usize,
    },
    /// The region exists with a size that differs from the configuration.
    #[error(
        "{0}: {setting} is {wanted}, the existing region was created with {found}; set {setting} = \
         {found}, or stop the data plane and slowpath and type `{1}` (flows are lost)",
        path.display(), removal(path)
    )]
    Sizes {
        /// Path of the file.
        path: PathBuf,
        /// Configuration key of the size.
        setting: &'static str,
        /// Value in the region.
        found: u32,
        /// Value in the configuration.
        wanted: u32,
    },
    /// The region was created with another seed, on which the positions of its flows depend. (The
    /// seeds are not shown: they would allow attacks on single buckets of the flow table.)
    #[error(
        "{0}: the existing region was created with another tables.seed; restore the former value, \
         or stop the data plane and slowpath and type `{1}` (flows are lost)",
        path.display(), removal(path)
    )]
    Seed {
        /// Path of the file.
        path: PathBuf,
    },
    /// A process uses the region that is to be converted.
    #[error("a {role} uses {}; stop it, then the region can be converted", path.display())]
    InUse {
        /// Location of the region.
        path: PathBuf,
        /// Role of the process.
        role: Role,
    },
    /// The region contains something that the other format cannot represent.
    #[error(
        "{}: cannot convert the region to format {to}, which cannot represent {what}; the region \
         is unchanged; to start with an empty one, stop the data plane and slowpath and type `{}` \
         (flows are lost)",
        path.display(), removal(path)
    )]
    NotConvertible {
        /// Location of the region.
        path: PathBuf,
        /// The other format.
        to: u32,
        /// What it cannot represent.
        what: &'static str,
    },
    /// A size is out of range.
    #[error("{setting} is {found}; set a value from {min} to {max}{}", power_hint(*power))]
    Limit {
        /// Configuration key of the size.
        setting: &'static str,
        /// Configured value.
        found: u32,
        /// Minimum.
        min: u32,
        /// Maximum.
        max: u32,
        /// Whether it must be a power of two.
        power: bool,
    },
    /// Another process holds the role.
    #[error(
        "another {role} (process {pid}) uses {}; stop it first, or give this one another {}",
        path.display(), key(path)
    )]
    Taken {
        /// Path of the file.
        path: PathBuf,
        /// The role.
        role: Role,
        /// Process id of the holder.
        pid: u32,
    },
    /// A kernel map cannot be created or opened.
    #[error("{}: {source}{}", path.display(), kernel_hint(source))]
    Kernel {
        /// Path of the map or folder.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The folder for the maps is not in a BPF file system.
    #[error(
        "region.maps = \"{}\" is not in a BPF file system; type `mount -t bpf bpf /sys/fs/bpf` \
         and choose a folder below it", path.display()
    )]
    NoBpffs {
        /// Path of the folder.
        path: PathBuf,
    },
    /// A process still uses the region that is to be taken over.
    #[error(
        "a {role} of the other plane still uses {}; stop it, then start this program again, which \
         takes over its flows",
        path.display()
    )]
    OtherPlane {
        /// Location of the other plane's region.
        path: PathBuf,
        /// Role of the process.
        role: Role,
    },
    /// XDP programs still use the region that is to be taken over.
    #[error(
        "XDP programs still use the maps in {}; type `ebpf-fallback --detach`, then start this \
         program again, which takes over their flows", path.display()
    )]
    Attached {
        /// Folder of the maps.
        path: PathBuf,
    },
}

impl RegionError {
    pub(crate) fn open(path: &Path, source: io::Error) -> RegionError {
        RegionError::Open { path: path.to_path_buf(), source }
    }

    pub(super) fn last(path: &Path, call: &'static str) -> RegionError {
        RegionError::System { path: path.to_path_buf(), call, source: io::Error::last_os_error() }
    }
}

/// Returns the configuration key for the region's location.
fn key(path: &Path) -> &'static str {
    if path.is_dir() { "region.maps" } else { "region.path" }
}

/// Returns the shell command that removes a region.
fn removal(path: &Path) -> String {
    format!("rm {}{}", if path.is_dir() { "-r " } else { "" }, path.display())
}

fn kernel_hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM) => {
            "; kernel maps need CAP_BPF, and before Linux 5.11 a large `ulimit -l`: \
             run the program as root"
        }
        Some(libc::ENOENT) => "; the region was partly removed: type `rm -r` for its folder",
        Some(libc::EINVAL | libc::ENOSYS) => "; plane = \"xdp\" requires Linux 5.18 or later",
        _ => "",
    }
}

fn memory_hint(page: usize) -> &'static str {
    if page > SECTION_ALIGN {
        "type `weir hugepages apply`, or set region.path to a file in /dev/shm"
    } else {
        "type `weir hugepages plan` to see the size of each part, and lower it (region.max_flows, \
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
        io::ErrorKind::PermissionDenied => "; run the program as root".to_owned(),
        _ => String::new(),
    }
}
