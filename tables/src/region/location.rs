//! `RegionLocation`: location of a region, in a file or in kernel maps pinned in a folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::access::{self, LOCKS};
use super::header::{self, FIXED_BYTES};
use super::memory::{self, Memory};
use super::role::is_locked;
use super::{RegionError, Role, maps};
use crate::layout::Layout;

/// Name of the folder within a region of maps in which the loader pins the links of attached
/// programs.
const LINKS: &str = "links";

/// Location of a region. A path converts to `File`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegionLocation {
    /// A file on hugetlbfs or tmpfs.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Id of a group with write access besides the owner; `None` for root only.
        group: Option<u32>,
    },
    /// Kernel maps, pinned in this folder of a BPF file system.
    Maps(PathBuf),
}

impl From<&Path> for RegionLocation {
    fn from(path: &Path) -> RegionLocation {
        RegionLocation::File { path: path.to_path_buf(), group: None }
    }
}

impl From<&PathBuf> for RegionLocation {
    fn from(path: &PathBuf) -> RegionLocation {
        RegionLocation::File { path: path.clone(), group: None }
    }
}

impl From<&RegionLocation> for RegionLocation {
    fn from(location: &RegionLocation) -> RegionLocation {
        location.clone()
    }
}

impl RegionLocation {
    /// Path of the file or folder.
    pub fn path(&self) -> &Path {
        let (RegionLocation::File { path, .. } | RegionLocation::Maps(path)) = self;
        path
    }

    /// Returns whether the file or folder exists.
    pub fn exists(&self) -> bool {
        self.path().exists()
    }

    /// Returns a role that a process currently holds in the region, if any and if it can be
    /// determined. The locks are the same in all versions of the format.
    pub fn holder(&self) -> Option<Role> {
        let file = access::open(&self.lock_path(), self.group(), false).ok()?;
        [Role::Fastpath, Role::Slowpath].into_iter().find(|role| is_locked(&file, *role))
    }

    /// Removes the region. Processes that have it open keep their mapping.
    pub fn remove(&self) -> Result<(), RegionError> {
        match self {
            RegionLocation::File { path, .. } => {
                std::fs::remove_file(path).map_err(|source| RegionError::open(path, source))
            }
            RegionLocation::Maps(folder) => {
                maps::unpin(folder)?;
                // The folder remains if it contains other files.
                let _ = std::fs::remove_dir(folder);
                Ok(())
            }
        }
    }

    /// Folder of the pinned links of programs that use the region's maps; `None` for a file.
    pub fn links(&self) -> Option<PathBuf> {
        match self {
            RegionLocation::File { .. } => None,
            RegionLocation::Maps(folder) => Some(folder.join(LINKS)),
        }
    }

    /// Returns whether programs are attached, which may write flows while no process runs.
    pub(super) fn has_links(&self) -> bool {
        let pinned = self.links().and_then(|links| std::fs::read_dir(links).ok());
        pinned.is_some_and(|mut pinned| pinned.next().is_some())
    }

    /// Path of the file with the locks for creation and roles. Files in a BPF file system cannot be
    /// locked.
    fn lock_path(&self) -> PathBuf {
        match self {
            RegionLocation::File { path, .. } => path.clone(),
            RegionLocation::Maps(_) => self.beside("lock"),
        }
    }

    /// Path of a file for state beside the region that outlives processes but not a reboot.
    pub fn beside(&self, kind: &str) -> PathBuf {
        let name = self.path().to_string_lossy().trim_matches('/').replace('/', ":");
        Path::new(LOCKS).join(format!("{name}.{kind}"))
    }

    /// Opens the file with the locks; `create` creates it.
    pub(super) fn lock_file(&self, create: bool) -> Result<File, RegionError> {
        let path = self.lock_path();
        if let (RegionLocation::Maps(folder), false) = (self, create)
            && !folder.exists()
        {
            return Err(RegionError::open(folder, io::ErrorKind::NotFound.into()));
        }
        let create = create || matches!(self, RegionLocation::Maps(_));
        if matches!(self, RegionLocation::Maps(_)) {
            access::make_locks_folder()?;
        }
        access::open(&path, self.group(), create)
    }

    fn group(&self) -> Option<u32> {
        match self {
            RegionLocation::File { group, .. } => *group,
            RegionLocation::Maps(_) => None,
        }
    }

    /// Returns the region's first bytes; zeros if its creation has not begun. `file` is the one
    /// with the locks.
    pub(super) fn head(&self, file: &File) -> Result<[u8; FIXED_BYTES], RegionError> {
        match self {
            RegionLocation::File { path, .. } => header::head_of_file(file, path),
            RegionLocation::Maps(folder) => maps::head(folder),
        }
    }

    /// Allocates memory for a new region.
    pub(super) fn make(&self, file: &File, layout: &Layout) -> Result<Memory, RegionError> {
        match self {
            RegionLocation::File { path, .. } => {
                let bytes = memory::size_file(file, path, layout.bytes())?;
                Memory::map(file, path, bytes)
            }
            RegionLocation::Maps(folder) => maps::create(folder, layout),
        }
    }

    /// Maps the memory of an existing region.
    pub(super) fn map(&self, file: &File, layout: &Layout) -> Result<Memory, RegionError> {
        let RegionLocation::File { path, .. } = self else {
            return maps::open(self.path(), layout);
        };
        let (bytes, wanted) = (memory::file_bytes(file, path)?, layout.bytes());
        if bytes < wanted {
            return Err(RegionError::Size { path: path.clone(), found: bytes, wanted });
        }
        Memory::map(file, path, bytes)
    }
}
