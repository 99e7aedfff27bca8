//! Opening of a region's file and its lock files, and checks of the folder of its maps, with
//! protection against other users of the machine.
//!
//! A process that can write to the region decides where packets go, and truncation of the file ends
//! every process that has it mapped. Therefore the file and each folder in its path must belong to
//! root, to the user of this process or to the user of the services, and no other user may have
//! write access.
//! The same holds for the folders in the path of pinned maps, because write access to one of them
//! is sufficient to replace the maps.
//! `/dev/shm` is writable by all users; its sticky bit prevents them from replacing a file but not
//! from creating it first, and such a file is rejected.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::RegionError;

/// Folder of the lock files of regions in kernel maps, which cannot be locked themselves.
pub const LOCKS: &str = "/run/weir";

/// Folder of converted copies of regions. Memory, like the region: a copy on a disk would survive a
/// reboot, which ends all flows.
pub(super) const COPIES: &str = "/dev/shm/weir";

/// Mode bits that a region's file may have: read and write for owner and group.
const MAX_MODE: u32 = 0o660;
/// Mode of a folder of the region, if the services share it.
const FOLDER_MODE: u32 = 0o770;
/// Mode of the folder of the lock files, if the services share it. Others may list it, because it
/// contains the control socket; with the sticky bit, members of the group replace only files of
/// their own.
const LOCKS_MODE: u32 = 0o1775;
/// All mode bits except the file type.
const MODE_BITS: u32 = 0o7777;
const STICKY: u32 = 0o1000;

/// Users besides root that may own and access a region: those of Weir's services. The default is no
/// other user than that of the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Owners {
    /// Id of the user as which slowpath runs.
    pub user: Option<u32>,
    /// Id of the group with read and write access.
    pub group: Option<u32>,
}

/// Opens the file for reading and writing. `create` creates it if it is missing and assigns it to
/// the owners' group. Besides the owner, only root's group or that group may have access.
pub(super) fn open(path: &Path, owners: Owners, create: bool) -> Result<File, RegionError> {
    let failed = |source| RegionError::open(path, source);
    let mut options = OpenOptions::new();
    // O_NONBLOCK prevents a hang on a FIFO; it has no effect on regular files.
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    loop {
        check_path(path, owners)?;
        match options.open(path) {
            Ok(file) => {
                let about = file.metadata().map_err(failed)?;
                check_file(path, &about, owners)?;
                if create {
                    set_group(&file, &about, owners).map_err(failed)?;
                }
                return Ok(file);
            }
            Err(gone) if gone.kind() == io::ErrorKind::NotFound && create => {
                match options.clone().create_new(true).mode(0o600).open(path) {
                    Ok(file) => {
                        let about = file.metadata().map_err(failed)?;
                        set_group(&file, &about, owners).map_err(failed)?;
                        return Ok(file);
                    }
                    // Another process created it first: its file is checked.
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(failed(e)),
                }
            }
            Err(e) => {
                // Reports a symbolic link or a special file as such.
                if let Ok(about) = path.symlink_metadata() {
                    check_file(path, &about, owners)?;
                }
                return Err(failed(e));
            }
        }
    }
}

/// Creates the folder of a region's file if it is missing, accessible by its owner and by the
/// owners' group if given. An existing folder is not changed; [`super::Region`] checks it on
/// opening.
///
/// # Errors
/// Returns the error of a failed system call.
pub fn make_folder(folder: &Path, owners: Owners) -> io::Result<()> {
    if folder.symlink_metadata().is_ok() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    share(folder, owners, FOLDER_MODE)
}

/// Creates [`COPIES`], or gives an existing folder of this user the access of these owners: the
/// configuration may have changed since it was created.
///
/// # Errors
/// Returns the error of a failed system call.
pub(super) fn make_copies_folder(owners: Owners) -> io::Result<()> {
    let folder = Path::new(COPIES);
    make_folder(folder, owners)?;
    if owners.group.is_some() {
        return share(folder, owners, FOLDER_MODE);
    }
    let about = folder.symlink_metadata()?;
    if about.is_dir() && about.uid() == user() && about.mode() & 0o077 != 0 {
        std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Creates the folder of the lock files, and opens it to the owners' group. All users may list the
/// folder, because it contains the control socket as well; only root and the group may write to it.
///
/// # Errors
/// Returns an error if the folder cannot be created or changed.
pub fn make_locks_folder(owners: Owners) -> Result<(), RegionError> {
    let folder = Path::new(LOCKS);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    let shared = made.and_then(|()| share(folder, owners, LOCKS_MODE));
    shared.map_err(|source| RegionError::open(folder, source))
}

/// Assigns a folder or a pinned map to the owners' group, if there is one, with `mode`. Changes
/// only paths of this process's user, as root also those of the owners' user; no symbolic links.
fn share(path: &Path, owners: Owners, mode: u32) -> io::Result<()> {
    let Some(gid) = owners.group else { return Ok(()) };
    // The group may replace the path meanwhile; the descriptor keeps what was checked.
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    let is_own = about.uid() == user() || (user() == 0 && Some(about.uid()) == owners.user);
    if about.is_symlink() || !is_own || (about.gid() == gid && about.mode() & MODE_BITS == mode) {
        return Ok(());
    }
    // fchown and fchmod do not accept a descriptor of O_PATH.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let shared = std::os::unix::fs::chown(&path, None, owners.group)
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(mode)));
    match shared {
        // Root without the capability to change files of others: their owner has shared them.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && about.uid() != user() => {
            Ok(())
        }
        shared => shared,
    }
}

/// Opens the folder of a region in kernel maps to the owners' group.
pub(super) fn share_folder(folder: &Path, owners: Owners) -> io::Result<()> {
    share(folder, owners, FOLDER_MODE)
}

/// Opens a pinned map to the owners' group.
pub(super) fn share_map(path: &Path, owners: Owners) -> io::Result<()> {
    share(path, owners, MAX_MODE)
}

/// Assigns a file owned by this process's user to the owners' group, if there is one, and permits
/// the group to read and write it.
fn set_group(file: &File, about: &Metadata, owners: Owners) -> io::Result<()> {
    let Some(gid) = owners.group else { return Ok(()) };
    if about.uid() != user() || (about.gid() == gid && about.mode() & MODE_BITS == MAX_MODE) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, None, owners.group)?;
    file.set_permissions(Permissions::from_mode(MAX_MODE))
}

/// Checks the folders in a file's path, both as written and with links resolved: a folder that
/// another user can change could redirect this process or the next one to another file.
pub(super) fn check_path(path: &Path, owners: Owners) -> Result<(), RegionError> {
    let failed = |source| RegionError::open(path, source);
    let written = std::path::absolute(path).map_err(failed)?;
    let Some(folder) = written.parent() else { return Ok(()) };
    let resolved = folder.canonicalize().map_err(failed)?;
    for entry in folder.ancestors().chain(resolved.ancestors()) {
        let about = entry.symlink_metadata().map_err(failed)?;
        check_folder(path, entry, &about, owners)?;
    }
    Ok(())
}

fn check_folder(
    path: &Path,
    folder: &Path,
    about: &Metadata,
    owners: Owners,
) -> Result<(), RegionError> {
    let reject = |what: String| {
        let folder = folder.display();
        Err(unsafe_to_use(
            path,
            format!("its parent folder {folder} {what}"),
            format!("make only root its writer: `chown root: {folder}`, `chmod go-w {folder}`"),
        ))
    };
    if !is_trusted(about.uid(), owners) {
        return reject(format!("belongs to {}", user_name(about.uid())));
    }
    let mode = about.mode();
    // A link's own mode has no meaning, and in a sticky folder only the owner of a file or of the
    // folder can replace the file.
    if about.is_symlink() || mode & STICKY != 0 {
        return Ok(());
    }
    if mode & 0o002 != 0 {
        return reject("is writable by all users".to_owned());
    }
    if mode & 0o020 != 0 && !of_group(about.gid(), owners.group) {
        return reject(format!("is writable by the group {}", group_name(about.gid())));
    }
    Ok(())
}

fn check_file(path: &Path, about: &Metadata, owners: Owners) -> Result<(), RegionError> {
    let file = path.display();
    let remove = || format!("find out which program made it, then `rm {file}`");
    let reject = |what: String, remedy: String| Err(unsafe_to_use(path, what, remedy));
    if about.is_symlink() {
        let owner = user_name(about.uid());
        return reject(format!("it is a symbolic link of {owner}"), remove());
    }
    if !about.is_file() {
        return reject("it is not a regular file".to_owned(), remove());
    }
    if !is_trusted(about.uid(), owners) {
        let owner = user_name(about.uid());
        let what = format!(
            "it belongs to {owner}, not to root, this process's user or the user region.user"
        );
        return reject(what, remove());
    }
    if about.nlink() > 1 {
        let what = format!("it has {} names (hard links)", about.nlink());
        return reject(what, remove());
    }
    let mode = about.mode() & MODE_BITS;
    if mode & !MAX_MODE != 0 {
        let what = format!("its mode is {mode:04o}; at most {MAX_MODE:04o} is allowed");
        return reject(what, format!("`chmod 0600 {file}`"));
    }
    if mode & 0o060 != 0 && !of_group(about.gid(), owners.group) {
        let what = format!("the group {} has access to it", group_name(about.gid()));
        return reject(what, format!("`chmod 0600 {file}`, or name that group in region.group"));
    }
    Ok(())
}

fn unsafe_to_use(path: &Path, what: String, remedy: String) -> RegionError {
    RegionError::Unsafe { path: path.to_path_buf(), what, remedy }
}

/// Returns whether the user is root, the user of this process or that of the services.
fn is_trusted(uid: u32, owners: Owners) -> bool {
    uid == 0 || uid == user() || Some(uid) == owners.user
}

/// Returns whether access by the group is acceptable: root's group has no other members, and
/// `group` is that of the services.
fn of_group(gid: u32, group: Option<u32>) -> bool {
    gid == 0 || Some(gid) == group
}

/// Effective user id of this process.
fn user() -> u32 {
    // SAFETY: `geteuid` takes no arguments and cannot fail.
    #[expect(unsafe_code, reason = "a system call that std lacks")]
    unsafe {
        libc::geteuid()
    }
}

fn user_name(uid: u32) -> String {
    name_in("/etc/passwd", uid).map_or(format!("user {uid}"), |name| format!("{name} (uid {uid})"))
}

fn group_name(gid: u32) -> String {
    name_in("/etc/group", gid).map_or(gid.to_string(), |name| format!("{name} (gid {gid})"))
}

/// Returns the name for a number in `/etc/passwd` or `/etc/group`, whose first field is the name
/// and whose third is the number.
fn name_in(file: &str, number: u32) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    })
}
