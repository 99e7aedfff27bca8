//! `RegionLocation`: location of a region, in a file or in kernel maps pinned in a folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::access::{self, COPIES, LOCKS, Owners};
use super::header::{self, CONSTANT_BYTES};
use super::memory::{self, Memory};
use super::role::is_locked;
use super::{RegionError, Role, maps};
use crate::layout::Layout;

/// Name of the folder within a region of maps in which the loader pins the links of attached
/// programs.
const LINKS: &str = "links";

/// Location of a region. A `&Path` converts to the variant `File` without other owners.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegionLocation {
    /// A file on hugetlbfs or tmpfs.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Users with access besides root and the user of this process.
        owners: Owners,
    },
    /// Kernel maps.
    Maps {
        /// Folder of a BPF file system in which the maps are pinned.
        path: PathBuf,
        /// Users with access besides root and the user of this process.
        owners: Owners,
    },
}

impl From<&Path> for RegionLocation {
    fn from(path: &Path) -> RegionLocation {
        RegionLocation::File { path: path.to_path_buf(), owners: Owners::default() }
    }
}

impl From<&PathBuf> for RegionLocation {
    fn from(path: &PathBuf) -> RegionLocation {
        RegionLocation::File { path: path.clone(), owners: Owners::default() }
    }
}

impl From<&RegionLocation> for RegionLocation {
    fn from(location: &RegionLocation) -> RegionLocation {
        location.clone()
    }
}

impl RegionLocation {
    /// Returns the location of kernel maps without other owners.
    pub fn maps(path: PathBuf) -> RegionLocation {
        RegionLocation::Maps { path, owners: Owners::default() }
    }

    /// Path of the file or folder.
    pub fn path(&self) -> &Path {
        let (RegionLocation::File { path, .. } | RegionLocation::Maps { path, .. }) = self;
        path
    }

    /// Creates what a process that does not run as root needs to be the first to open this region:
    /// the folders, also that of converted copies, and an empty file, because its folder may be
    /// writable by root only. Keeps what exists.
    ///
    /// # Errors
    /// Returns an error if a path cannot be created, or is unsafe to use.
    pub fn prepare(&self) -> Result<(), RegionError> {
        access::make_copies_folder(self.owners())
            .map_err(|source| RegionError::open(Path::new(COPIES), source))?;
        match self {
            RegionLocation::File { path, owners } => {
                if let Some(folder) = path.parent() {
                    access::make_folder(folder, *owners)
                        .map_err(|source| RegionError::open(path, source))?;
                }
                access::open(path, *owners, true).map(drop)
            }
            RegionLocation::Maps { path, owners } => {
                self.lock_file(true)?;
                maps::prepare(path, *owners)?;
                maps::share(path, *owners)
            }
        }
    }

    /// Returns whether the file or folder exists.
    pub fn exists(&self) -> bool {
        self.path().exists()
    }

    /// Returns a role that a process currently holds in the region, if any and if it can be
    /// determined. The locks are the same in all versions of the format.
    pub fn holder(&self) -> Option<Role> {
        let file = access::open(&self.lock_path(), self.owners(), false).ok()?;
        [Role::Fastpath, Role::Slowpath].into_iter().find(|role| is_locked(&file, *role))
    }

    /// Removes the region. Processes that have it open keep their mapping.
    pub fn remove(&self) -> Result<(), RegionError> {
        match self {
            RegionLocation::File { path, .. } => {
                std::fs::remove_file(path).map_err(|source| RegionError::open(path, source))
            }
            RegionLocation::Maps { path: folder, .. } => {
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
            RegionLocation::Maps { path, .. } => Some(path.join(LINKS)),
        }
    }

    /// Returns whether programs are attached, which may write flows while no process runs. If this
    /// process may not list them, they count as attached.
    pub(super) fn has_links(&self) -> bool {
        let Some(links) = self.links() else { return false };
        match std::fs::read_dir(links) {
            Ok(mut pinned) => pinned.next().is_some(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Path of the file with the locks for creation and roles. Files in a BPF file system cannot be
    /// locked.
    fn lock_path(&self) -> PathBuf {
        match self {
            RegionLocation::File { path, .. } => path.clone(),
            RegionLocation::Maps { .. } => self.beside("lock"),
        }
    }

    /// Returns the path of a file that belongs to the region, in [`LOCKS`], with the extension
    /// `kind`. The file, like the region, outlives processes but not a reboot.
    pub fn beside(&self, kind: &str) -> PathBuf {
        Path::new(LOCKS).join(format!("{}.{kind}", self.file_name()))
    }

    /// Creates the file `path` of `bytes` bytes, all zero, which is accessible like the region's,
    /// and maps it.
    pub(crate) fn create_beside(&self, path: &Path, bytes: usize) -> Result<Memory, RegionError> {
        let file = access::open(path, self.owners(), true)?;
        let bytes = memory::size_file(&file, path, bytes)?;
        Memory::map(&file, path, bytes)
    }

    /// Opens a file that [`RegionLocation::create_beside`] created. It may be incomplete.
    pub(crate) fn open_beside(&self, path: &Path) -> Result<File, RegionError> {
        access::open(path, self.owners(), false)
    }

    /// Maps `bytes` bytes of an open file.
    pub(crate) fn map_beside(
        &self,
        file: &File,
        path: &Path,
        bytes: usize,
    ) -> Result<Memory, RegionError> {
        let found = memory::file_bytes(file, path)?;
        if found < bytes {
            return Err(RegionError::Size { path: path.to_path_buf(), found, wanted: bytes });
        }
        Memory::map(file, path, bytes)
    }

    /// Returns a name for files that belong to this region.
    pub(super) fn file_name(&self) -> String {
        self.path().to_string_lossy().trim_matches('/').replace('/', ":")
    }

    /// Opens the file with the locks; `create` creates it.
    pub(super) fn lock_file(&self, create: bool) -> Result<File, RegionError> {
        let (path, owners) = (self.lock_path(), self.owners());
        let RegionLocation::Maps { path: folder, .. } = self else {
            return access::open(&path, owners, create);
        };
        if !create && !folder.exists() {
            return Err(RegionError::open(folder, io::ErrorKind::NotFound.into()));
        }
        access::make_locks_folder(owners)?;
        access::open(&path, owners, true)
    }

    pub(crate) fn owners(&self) -> Owners {
        let (RegionLocation::File { owners, .. } | RegionLocation::Maps { owners, .. }) = self;
        *owners
    }

    /// Returns the region's first bytes; zeros if its creation has not begun. `file` is the one
    /// with the locks.
    pub(super) fn head(&self, file: &File) -> Result<[u8; CONSTANT_BYTES], RegionError> {
        match self {
            RegionLocation::File { path, .. } => header::head_of_file(file, path),
            RegionLocation::Maps { path, .. } => maps::head(path),
        }
    }

    /// Allocates memory for a new region.
    pub(super) fn make(&self, file: &File, layout: &Layout) -> Result<Memory, RegionError> {
        match self {
            RegionLocation::File { path, .. } => {
                let bytes = memory::size_file(file, path, layout.bytes())?;
                Memory::map(file, path, bytes)
            }
            RegionLocation::Maps { path, owners } => maps::create(path, *owners, layout),
        }
    }

    /// Maps the memory of an existing region.
    pub(super) fn map(&self, file: &File, layout: &Layout) -> Result<Memory, RegionError> {
        let path = match self {
            RegionLocation::File { path, .. } => path,
            RegionLocation::Maps { path, owners } => return maps::open(path, *owners, layout),
        };
        let (bytes, wanted) = (memory::file_bytes(file, path)?, layout.bytes());
        if bytes < wanted {
            return Err(RegionError::Size { path: path.clone(), found: bytes, wanted });
        }
        Memory::map(file, path, bytes)
    }
}
