//! Preparation as root of what Weir's processes share when slowpath runs as another user:
//! `slowpath --prepare`.
//!
//! The units run it before each start. It also hands over what an earlier slowpath left that was
//! started by hand as root: its control socket, files of captures, and files in the state
//! directory.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
};
use std::os::unix::net::UnixStream;
use std::path::Path;

use config::checked::Config;
use hugepages::{OpenError, group_id, region_locations, user_id};
use tables::capture::MAX_CAPTURES;
use tables::capture_file;
use tables::region::RegionLocation;

use super::StartError;

/// Mode of the state directory: fastpath, which runs as root without the capability to ignore
/// modes, may create the seed in it.
const STATE_MODE: u32 = 0o770;
/// Directories in the state directory: of the audit log and of the history of events.
const FOLDERS: [&str; 2] = ["audit", "events"];

/// Creates the folders of region and control socket and the region's file for the group of the
/// services, ends an upgrade that is no longer pending, removes the control socket and capture
/// files of a slowpath that has ended, and gives the state directory to the user of slowpath.
///
/// # Errors
/// Fails if a path can't be created or changed.
pub fn prepare(config: &Config) -> Result<(), StartError> {
    let (region, socket) = (&config.region, &config.control.socket);
    let user = user_id("region.user", region.user.as_deref()).map_err(OpenError::from)?;
    let group = group_id("region.group", region.group.as_deref()).map_err(OpenError::from)?;
    if let Err(error) = hugepages::upgrade::end_obsolete_pending(config) {
        tracing::warn!(
            event = "upgrade_state_left",
            %error,
            "state of an ended upgrade not removed"
        );
    }
    hugepages::prepare_region(config)?;
    remove_stale_socket(socket);
    if user.is_some() {
        let (location, _) = region_locations(config).map_err(OpenError::from)?;
        remove_captures_of_root(&location);
    }
    let (Some(folder), Some(user)) = (&config.control.state, user) else { return Ok(()) };
    hand_over(folder, user, group)
        .map_err(|source| StartError::State { path: folder.clone(), source })
}

/// Removes the socket if no process listens on it. If that fails, slowpath reports it.
fn remove_stale_socket(path: &Path) {
    let is_socket = path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the capture files of root, which another user can neither write nor remove. If that
/// fails, the next capture reports it.
fn remove_captures_of_root(location: &RegionLocation) {
    for number in 0..MAX_CAPTURES {
        let path = capture_file::path(location, number);
        if path.symlink_metadata().is_ok_and(|metadata| metadata.uid() == 0) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Creates a folder if it is missing, and gives it, the existing [`FOLDERS`] in it and root's
/// regular files in all of them to a user. A folder that is a link or belongs to a third user is
/// left as it is.
fn hand_over(folder: &Path, user: u32, group: Option<u32>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (directory, metadata) = open(folder)?;
    if !metadata.is_dir() || (metadata.uid() != 0 && metadata.uid() != user) {
        return Ok(());
    }
    give(&directory, user, group)?;
    // The path `folder` may lead elsewhere by now, so it is not used again.
    let checked = by_descriptor(&directory);
    std::fs::set_permissions(&checked, Permissions::from_mode(STATE_MODE))?;
    give_files(Path::new(&checked), user, group)?;
    for name in FOLDERS {
        let Ok((directory, metadata)) = open(&Path::new(&checked).join(name)) else { continue };
        if metadata.is_dir() && (metadata.uid() == 0 || metadata.uid() == user) {
            give(&directory, user, group)?;
            give_files(Path::new(&by_descriptor(&directory)), user, group)?;
        }
    }
    Ok(())
}

/// Gives root's regular files in a directory to a user, except files with several hard links: the
/// other ones may be outside the directory.
fn give_files(folder: &Path, user: u32, group: Option<u32>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let (file, metadata) = open(&entry?.path())?;
        if metadata.uid() == 0 && metadata.is_file() && metadata.nlink() == 1 {
            give(&file, user, group)?;
        }
    }
    Ok(())
}

/// Opens a path without following a link, so that the user can't replace what was checked.
fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn give(file: &File, user: u32, group: Option<u32>) -> io::Result<()> {
    chown(by_descriptor(file), Some(user), group)
}

/// Returns a path to an open file. fchown and fchmod do not accept descriptors of O_PATH.
fn by_descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::capture::CaptureFilter;
    use tables::capture_file::CaptureReader;

    /// Id of Debian's user `nobody` and group `nogroup`.
    const NOBODY: u32 = 65_534;

    #[test]
    fn capture_files_of_root_are_removed() {
        let name = format!("/weir-prepare-{}", std::process::id());
        let location = RegionLocation::from(Path::new(&name));
        let [of_root, of_user] = [0, 1].map(|number| {
            let begun = CaptureReader::begin_at(&location, number, &CaptureFilter::default(), 1);
            // As if its process had been killed: the file remains.
            std::mem::forget(begun.unwrap());
            capture_file::path(&location, number)
        });
        chown(&of_user, Some(NOBODY), Some(NOBODY)).unwrap();
        remove_captures_of_root(&location);
        assert!(!of_root.exists() && of_user.exists());
        std::fs::remove_file(&of_user).unwrap();
    }

    #[test]
    fn state_directory_and_files_of_root_are_given_to_the_user() {
        let name = format!("weir-hand-over-{}", std::process::id());
        let folder = Path::new("/dev/shm").join(name);
        let owner = |path: &Path| path.symlink_metadata().map(|m| (m.uid(), m.gid())).unwrap();
        hand_over(&folder, NOBODY, Some(NOBODY)).unwrap();
        assert_eq!(owner(&folder), (NOBODY, NOBODY));
        assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o7777, STATE_MODE);
        let [file, link, victim] = ["log", "link", "inner/victim"].map(|name| folder.join(name));
        std::fs::create_dir(folder.join("inner")).unwrap();
        for path in [&file, &victim] {
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        hand_over(&folder, NOBODY, Some(NOBODY)).unwrap();
        assert_eq!(owner(&file), (NOBODY, NOBODY));
        for path in [&victim, &link, &folder.join("inner")] {
            assert_eq!(owner(path), (0, 0), "{path:?}: files only, without following links");
        }
        // `events` is given although `audit` does not exist yet.
        for name in ["events", "audit"] {
            let (directory, file) = (folder.join(name), folder.join(name).join("lock"));
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(&file, "").unwrap();
            hand_over(&folder, NOBODY, Some(NOBODY)).unwrap();
            assert_eq!([owner(&directory), owner(&file)], [(NOBODY, NOBODY); 2], "{name}");
        }
        std::fs::hard_link(&victim, folder.join("hard")).unwrap();
        hand_over(&folder, NOBODY, Some(NOBODY)).unwrap();
        assert_eq!(owner(&victim), (0, 0), "the file has a name elsewhere");
        std::fs::remove_file(folder.join("hard")).unwrap();
        let linked = folder.with_extension("link");
        std::os::unix::fs::symlink(folder.join("inner"), &linked).unwrap();
        hand_over(&linked, NOBODY, Some(NOBODY)).unwrap();
        assert_eq!(owner(&victim), (0, 0), "the folder is a link");
        std::fs::remove_file(&linked).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
