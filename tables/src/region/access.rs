//! Opening of a region's file and its lock files with protection against other users of the
//! machine.
//!
//! Weir's processes trust the contents of the region, and truncation of the file ends every process
//! that has it mapped. Therefore the file and each folder in its path must belong to root or to the
//! user of this process, and no other user may have write access. `/dev/shm` is writable by all
//! users; its sticky bit prevents them from replacing a file but not from creating it first, and
//! such a file is rejected.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::RegionError;

/// Folder of the locks of regions that cannot carry their own.
pub(super) const LOCKS: &str = "/run/weir";

/// Mode bits that a region's file may have: read and write for owner and group.
const MAX_MODE: u32 = 0o660;
/// All mode bits except the file type.
const MODE_BITS: u32 = 0o7777;
const STICKY: u32 = 0o1000;

/// Opens the file for reading and writing. `create` creates it if it is missing and assigns it to
/// `group`. Besides the owner, only root's group or `group` may have access.
pub(super) fn open(path: &Path, group: Option<u32>, create: bool) -> Result<File, RegionError> {
    let failed = |source| RegionError::open(path, source);
    let mut options = OpenOptions::new();
    // O_NONBLOCK prevents a hang on a FIFO; it has no effect on regular files.
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    loop {
        check_path(path, group)?;
        match options.open(path) {
            Ok(file) => {
                let about = file.metadata().map_err(failed)?;
                check_file(path, &about, group)?;
                if create {
                    set_group(&file, &about, group).map_err(failed)?;
                }
                return Ok(file);
            }
            Err(gone) if gone.kind() == io::ErrorKind::NotFound && create => {
                match options.clone().create_new(true).mode(0o600).open(path) {
                    Ok(file) => {
                        let about = file.metadata().map_err(failed)?;
                        set_group(&file, &about, group).map_err(failed)?;
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
                    check_file(path, &about, group)?;
                }
                return Err(failed(e));
            }
        }
    }
}

/// Creates the folder of a region's file if it is missing, accessible by its owner and readable by
/// `group` if given. An existing folder is not changed; [`super::Region`] checks it on opening.
///
/// # Errors
/// Returns the error of a failed system call.
pub fn make_folder(folder: &Path, group: Option<u32>) -> io::Result<()> {
    if folder.symlink_metadata().is_ok() {
        return Ok(());
    }
    let mode = if group.is_some() { 0o750 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(folder)?;
    match group {
        Some(_) => std::os::unix::fs::lchown(folder, None, group),
        None => Ok(()),
    }
}

/// Creates the folder of the locks. All users may list it, because it contains the control socket
/// as well; only root may write.
pub(super) fn make_locks_folder() -> Result<(), RegionError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(LOCKS);
    made.map_err(|source| RegionError::open(Path::new(LOCKS), source))
}

/// Assigns a file owned by this process's user to the group, if one is given, and permits the group
/// to read and write it.
fn set_group(file: &File, about: &Metadata, group: Option<u32>) -> io::Result<()> {
    let Some(gid) = group else { return Ok(()) };
    if about.uid() != user() || (about.gid() == gid && about.mode() & MODE_BITS == MAX_MODE) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, None, group)?;
    file.set_permissions(Permissions::from_mode(MAX_MODE))
}

/// Checks the folders in a file's path, both as written and with links resolved: a folder that
/// another user can change could redirect this process or the next one to another file.
fn check_path(path: &Path, group: Option<u32>) -> Result<(), RegionError> {
    let failed = |source| RegionError::open(path, source);
    let written = std::path::absolute(path).map_err(failed)?;
    let Some(folder) = written.parent() else { return Ok(()) };
    let real = folder.canonicalize().map_err(failed)?;
    for entry in folder.ancestors().chain(real.ancestors()) {
        let about = entry.symlink_metadata().map_err(failed)?;
        check_folder(path, entry, &about, group)?;
    }
    Ok(())
}

fn check_folder(
    path: &Path,
    folder: &Path,
    about: &Metadata,
    group: Option<u32>,
) -> Result<(), RegionError> {
    let refuse = |what: String| {
        let folder = folder.display();
        Err(unsafe_to_use(
            path,
            format!("its parent folder {folder} {what}"),
            format!("make only root its writer: `chown root: {folder}`, `chmod go-w {folder}`"),
        ))
    };
    if !trusted(about.uid()) {
        return refuse(format!("belongs to {}", user_name(about.uid())));
    }
    let mode = about.mode();
    // A link's own mode has no meaning, and in a sticky folder only the owner of a file or of the
    // folder can replace the file.
    if about.is_symlink() || mode & STICKY != 0 {
        return Ok(());
    }
    if mode & 0o002 != 0 {
        return refuse("is writable by all users".to_owned());
    }
    if mode & 0o020 != 0 && !of_group(about.gid(), group) {
        return refuse(format!("is writable by the group {}", group_name(about.gid())));
    }
    Ok(())
}

fn check_file(path: &Path, about: &Metadata, group: Option<u32>) -> Result<(), RegionError> {
    let file = path.display();
    let remove = || format!("find out which program made it, then `rm {file}`");
    let refuse = |what: String, remedy: String| Err(unsafe_to_use(path, what, remedy));
    if about.is_symlink() {
        let owner = user_name(about.uid());
        return refuse(format!("it is a symbolic link of {owner}"), remove());
    }
    if !about.is_file() {
        return refuse("it is not a regular file".to_owned(), remove());
    }
    if !trusted(about.uid()) {
        let owner = user_name(about.uid());
        let what = format!("it belongs to {owner}, not to root or this process's user");
        return refuse(what, remove());
    }
    if about.nlink() > 1 {
        let what = format!("it has {} names (hard links)", about.nlink());
        return refuse(what, remove());
    }
    let mode = about.mode() & MODE_BITS;
    if mode & !MAX_MODE != 0 {
        let what = format!("its mode is {mode:04o}; at most {MAX_MODE:04o} is allowed");
        return refuse(what, format!("`chmod 0600 {file}`"));
    }
    if mode & 0o060 != 0 && !of_group(about.gid(), group) {
        let what = format!("the group {} has access to it", group_name(about.gid()));
        return refuse(what, format!("`chmod 0600 {file}`, or name that group in region.group"));
    }
    Ok(())
}

fn unsafe_to_use(path: &Path, what: String, remedy: String) -> RegionError {
    RegionError::Unsafe { path: path.to_path_buf(), what, remedy }
}

/// Returns whether the user is root or the user of this process.
fn trusted(uid: u32) -> bool {
    uid == 0 || uid == user()
}

/// Returns whether access by the group is acceptable: root's group has no other members, and
/// `group` is that of the services.
fn of_group(gid: u32, group: Option<u32>) -> bool {
    gid == 0 || Some(gid) == group
}

/// Effective user id of this process.
fn user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
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
