//! Where a region lies: in a file, or in kernel maps that are pinned in a folder.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::access::{self, LOCKS};
use super::header::{self, FIXED_BYTES};
use super::memory::{self, Memory};
use super::role::is_locked;
use super::{RegionError, Role, maps};
use crate::layout::Layout;

/// The folder in a region of maps where whoever attaches programs keeps their links.
const LINKS: &str = "links";

/// Where a region lies. The path itself says `File`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// A file on hugetlbfs or a tmpfs.
    File {
        /// Where.
        path: PathBuf,
        /// Id of the group that may write it beside its owner; none for root's alone.
        group: Option<u32>,
    },
    /// Kernel maps, pinned in this folder of a BPF file system.
    Maps(PathBuf),
}

impl From<&Path> for Place {
    fn from(path: &Path) -> Place {
        Place::File { path: path.to_path_buf(), group: None }
    }
}

impl From<&PathBuf> for Place {
    fn from(path: &PathBuf) -> Place {
        Place::File { path: path.clone(), group: None }
    }
}

impl From<&Place> for Place {
    fn from(place: &Place) -> Place {
        place.clone()
    }
}

impl Place {
    /// The file, or the folder.
    pub fn path(&self) -> &Path {
        let (Place::File { path, .. } | Place::Maps(path)) = self;
        path
    }

    /// Whether there is something.
    pub fn exists(&self) -> bool {
        self.path().exists()
    }

    /// Who works with the region there now, if anybody does and it can be told: the locks are the
    /// same in regions of all versions.
    pub fn holder(&self) -> Option<Role> {
        let file = access::open(&self.lock_path(), self.group(), false).ok()?;
        [Role::Fastpath, Role::Slowpath].into_iter().find(|role| is_locked(&file, *role))
    }

    /// Removes the region. Who has it open keeps what he has.
    pub fn remove(&self) -> Result<(), RegionError> {
        match self {
            Place::File { path, .. } => {
                std::fs::remove_file(path).map_err(|source| RegionError::open(path, source))
            }
            Place::Maps(folder) => {
                maps::unpin(folder)?;
                // It stays while something of others is in it.
                let _ = std::fs::remove_dir(folder);
                Ok(())
            }
        }
    }

    /// Where programs that are attached with the region's maps have their links pinned.
    pub fn links(&self) -> Option<PathBuf> {
        match self {
            Place::File { .. } => None,
            Place::Maps(folder) => Some(folder.join(LINKS)),
        }
    }

    /// Whether programs are attached that may write flows with no process alive.
    pub(super) fn has_links(&self) -> bool {
        let pinned = self.links().and_then(|links| std::fs::read_dir(links).ok());
        pinned.is_some_and(|mut pinned| pinned.next().is_some())
    }

    /// The file whose locks say who creates the region, and who works with it. Files of a BPF file
    /// system can't be locked.
    fn lock_path(&self) -> PathBuf {
        match self {
            Place::File { path, .. } => path.clone(),
            Place::Maps(_) => self.beside("lock"),
        }
    }

    /// A file beside the region, for what outlives processes but not a boot.
    pub fn beside(&self, kind: &str) -> PathBuf {
        let name = self.path().to_string_lossy().trim_matches('/').replace('/', ":");
        Path::new(LOCKS).join(format!("{name}.{kind}"))
    }

    /// Opens that file; `create` makes it.
    pub(super) fn lock_file(&self, create: bool) -> Result<File, RegionError> {
        let path = self.lock_path();
        if let (Place::Maps(folder), false) = (self, create)
            && !folder.exists()
        {
            return Err(RegionError::open(folder, io::ErrorKind::NotFound.into()));
        }
        let create = create || matches!(self, Place::Maps(_));
        if matches!(self, Place::Maps(_)) {
            access::make_locks_folder()?;
        }
        access::open(&path, self.group(), create)
    }

    fn group(&self) -> Option<u32> {
        match self {
            Place::File { group, .. } => *group,
            Place::Maps(_) => None,
        }
    }

    /// The region's first bytes; zeros where it isn't begun. `file` is the one of the locks.
    pub(super) fn head(&self, file: &File) -> Result<[u8; FIXED_BYTES], RegionError> {
        match self {
            Place::File { path, .. } => header::head_of_file(file, path),
            Place::Maps(folder) => maps::head(folder),
        }
    }

    /// Memory for a new region.
    pub(super) fn make(&self, file: &File, layout: &Layout) -> Result<Memory, RegionError> {
        match self {
            Place::File { path, .. } => {
                let bytes = memory::size_file(file, path, layout.bytes())?;
                Memory::map(file, path, bytes)
            }
            Place::Maps(folder) => maps::create(folder, layout),
        }
    }

    /// The memory of a region that is there.
    pub(super) fn map(&self, file: &File, layout: &Layout) -> Result<Memory, RegionError> {
        let Place::File { path, .. } = self else { return maps::open(self.path(), layout) };
        let (bytes, wanted) = (memory::file_bytes(file, path)?, layout.bytes());
        if bytes < wanted {
            return Err(RegionError::Size { path: path.clone(), found: bytes, wanted });
        }
        Memory::map(file, path, bytes)
    }
}
