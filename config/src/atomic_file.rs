//! Files that are replaced as a whole: a reader finds either the old or the new contents, also
//! after a crash.
//!
//! [`read`] and [`replace`] are for small texts that every user of the machine may read. [`stage`]
//! is for files with other permissions, and for several files that change together.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Maximum size in bytes of a file that is read.
const MAX_BYTES: u64 = 64 << 10;

/// Returns the text of a file; `None` if it does not exist.
///
/// # Errors
/// Returns an error if the file cannot be read, is not a regular file, or exceeds 64 KiB.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    // O_NONBLOCK prevents a hang on a FIFO; it has no effect on regular files.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    let file = match opened {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut octets = Vec::new();
    // One more byte shows that the file is too long.
    file.take(MAX_BYTES + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!(
            "it is longer than the maximum of {MAX_BYTES} bytes"
        )));
    }
    let text = String::from_utf8(octets);
    text.map(Some).map_err(|_| io::Error::other("it is not text in UTF-8"))
}

/// Replaces a file by one with this text and mode 0644, whatever the umask of this process. Creates
/// its directory if it is missing.
///
/// # Errors
/// Returns the error of a failed system call; the file is then unchanged.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    stage(path, text.as_bytes(), Access { mode: 0o644, owner: None })?.replace()
}

/// Permissions of a new file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Mode, whatever the umask of this process.
    pub mode: u32,
    /// User and group; `None` for those of this process.
    pub owner: Option<(u32, u32)>,
}

impl Access {
    /// Returns the permissions of the file at `path`.
    ///
    /// # Errors
    /// Returns the error of a failed system call.
    pub fn of(path: &Path) -> io::Result<Access> {
        let about = std::fs::metadata(path)?;
        Ok(Access { mode: about.mode() & 0o777, owner: Some((about.uid(), about.gid())) })
    }
}

/// A complete file on disk beside the path that it is for. It is removed unless it is moved to that
/// path.
#[derive(Debug)]
#[must_use]
pub struct Staged {
    temporary: PathBuf,
    path: PathBuf,
}

/// Writes a file beside `path` and syncs it. Only the owner can read it until it is complete.
///
/// # Errors
/// Returns the error of a failed system call; nothing is left then.
pub fn stage(path: &Path, contents: &[u8], access: Access) -> io::Result<Staged> {
    let temporary = temporary(path, std::process::id()).ok_or(io::ErrorKind::InvalidInput)?;
    // A former process with the same ID may have left it.
    let _ = std::fs::remove_file(&temporary);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let staged = Staged { temporary, path: path.to_owned() };
    write(file, contents, access)?;
    Ok(staged)
}

/// Returns the path of the temporary file that the process `id` writes for `path`.
///
/// Programs that read a directory of drop-in files skip it: its name has a leading dot and none of
/// their suffixes.
pub fn temporary(path: &Path, id: u32) -> Option<PathBuf> {
    let name = path.file_name()?;
    Some(path.with_file_name(format!(".{}.new-{id}", name.to_string_lossy())))
}

/// Writes and syncs a new file. The caller opens it with `create_new`, which does not follow a
/// symbolic link: root also writes to directories in which the services' user may create files.
fn write(mut file: File, contents: &[u8], access: Access) -> io::Result<()> {
    file.write_all(contents)?;
    let about = file.metadata()?;
    if let Some((user, group)) = access.owner
        && (user, group) != (about.uid(), about.gid())
    {
        fchown(&file, Some(user), Some(group))?;
    }
    file.set_permissions(Permissions::from_mode(access.mode))?;
    // Without the sync, a machine that crashes after the rename could be left with an empty file.
    file.sync_all()
}

impl Staged {
    /// Moves the file to its path and replaces the file that is there.
    ///
    /// # Errors
    /// Returns the error of a failed system call; the path is then unchanged.
    pub fn replace(self) -> io::Result<()> {
        std::fs::rename(&self.temporary, &self.path)
    }

    /// Moves the file to its path, where there must be none.
    ///
    /// # Errors
    /// Returns the error of a failed system call, `AlreadyExists` if there is a file; the path is
    /// then unchanged.
    pub fn create(self) -> io::Result<()> {
        match renameat_with(CWD, &self.temporary, CWD, &self.path, RenameFlags::NOREPLACE) {
            // NFS, for example, has no such rename. A hard link does not replace a file either.
            Err(Errno::INVAL) => std::fs::hard_link(&self.temporary, &self.path),
            renamed => Ok(renamed?),
        }
    }
}

/// Returns the directory of the file or directory at `path`.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the creation, move or removal of a file at `path` durable.
///
/// # Errors
/// Returns the error of a failed system call.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Creates a directory, durably.
///
/// # Errors
/// Returns the error of a failed system call, `AlreadyExists` if there is something at `path`; no
/// directory was created then.
pub fn create_folder(path: &Path, access: Access) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    let completed = set_folder_access(path, access).and_then(|()| sync_folder(path));
    completed.inspect_err(|_| {
        // The error that is returned is that of the permissions, not of this removal.
        let _ = std::fs::remove_dir(path);
    })
}

/// Opens a directory. A symbolic link is an error: the directory above it may belong to a user that
/// must not choose what root writes to.
///
/// # Errors
/// Returns the error of a failed system call.
pub fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Sets the permissions of a directory. Symbolic links are not followed.
///
/// # Errors
/// Returns the error of a failed system call.
pub fn set_folder_access(path: &Path, access: Access) -> io::Result<()> {
    let folder = open_folder(path)?;
    let (user, group) = access.owner.unzip();
    fchown(&folder, user, group)?;
    folder.set_permissions(Permissions::from_mode(access.mode))
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a move there is no such file.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_links_in_its_directory_are_not_followed() {
        let folder = std::env::temp_dir().join(format!("weir-atomic-{}", std::process::id()));
        let (path, victim) = (folder.join("new/file"), folder.join("victim"));
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, "first").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&victim, "untouched").unwrap();
        let temporary = folder.join(format!("new/.file.new-{}", std::process::id()));
        std::os::unix::fs::symlink(&victim, &temporary).unwrap();
        replace(&path, "second").unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("second"));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);

        // A directory cannot be replaced by a file.
        assert!(replace(&folder.join("new"), "text").is_err());
        let names = std::fs::read_dir(&folder).unwrap();
        assert_eq!(names.count(), 2, "no temporary file remains");
        assert_eq!(std::fs::read_dir(folder.join("new")).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_staged_file_has_its_permissions_and_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("weir-staged-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("file");
        let access = Access { mode: 0o600, owner: None };
        let names = || std::fs::read_dir(&folder).unwrap().count();
        drop(stage(&path, b"a", access).unwrap());
        assert_eq!(names(), 0);
        stage(&path, b"b", access).unwrap().create().unwrap();
        let error = stage(&path, b"c", access).unwrap().create().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"b".to_vec(), 1));
        assert_eq!(Access::of(&path).unwrap().mode, 0o600);
        // A staged file already has its final mode.
        let staged = stage(&path, b"d", Access { mode: 0o640, owner: None }).unwrap();
        assert_eq!(Access::of(&staged.temporary).unwrap().mode, 0o640);
        staged.replace().unwrap();
        sync_folder(&path).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), names()), (b"d".to_vec(), 1));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_directory_has_its_permissions_and_is_created_once() {
        let folder = std::env::temp_dir().join(format!("weir-folder-{}", std::process::id()));
        let access = Access { mode: 0o751, owner: None };
        create_folder(&folder, access).unwrap();
        assert_eq!(Access::of(&folder).unwrap().mode, 0o751);
        let error = create_folder(&folder, Access { mode: 0o700, owner: None }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Access::of(&folder).unwrap().mode, 0o751);
        set_folder_access(&folder, Access { mode: 0o710, owner: None }).unwrap();
        assert_eq!(Access::of(&folder).unwrap().mode, 0o710);
        let link = folder.with_extension("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(set_folder_access(&link, Access { mode: 0o777, owner: None }).is_err());
        assert_eq!(Access::of(&folder).unwrap().mode, 0o710, "links are not followed");
        std::fs::remove_file(link).unwrap();
        assert_eq!(folder_of(Path::new("file")), Path::new("."));
        assert_eq!(folder_of(&folder.join("file")), folder);
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn directories_and_long_or_binary_files_are_errors() {
        let folder = std::env::temp_dir().join(format!("weir-atomic-read-{}", std::process::id()));
        let path = folder.join("file");
        let error = |octets: &[u8]| {
            std::fs::write(&path, octets).unwrap();
            read(&path).unwrap_err().to_string()
        };
        let text = "a".repeat(64 << 10);
        replace(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap(), Some(text.clone()));
        assert!(error((text + "a").as_bytes()).contains("maximum of 65536 bytes"));
        assert!(error(&[0xff]).contains("UTF-8"));
        assert!(read(&folder).unwrap_err().to_string().contains("not a regular file"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
