//! The state of an upgrade: the programs of the previous version, and whether the data plane still
//! has to be switched.
//!
//! The package's scripts write it. Until `weir upgrade apply` has switched the data plane, the
//! region has the format of the previous version, and only that version's programs can use it: a
//! daemon that is started meanwhile runs as that version ([`hand_over`]).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::Config;
use tables::region::Region;

use crate::open::region_locations;

/// Folder of the programs of the previous version, and of the record of a commit.
pub const STATE: &str = "/var/lib/weir-upgrade";
/// Exists while the region has the format of the previous version. A reboot removes it and the
/// region.
const PENDING: &str = "/run/weir-upgrade/pending";
/// Write permission of group and others.
const WRITABLE: u32 = 0o022;

/// The files of an upgrade.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upgrade {
    state: PathBuf,
    pending: PathBuf,
}

/// Format of the store of versions that do not name it.
const FIRST_STORE_FORMAT: u32 = 2;

/// A version of Weir with the formats of its region and its store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// Version of the package.
    pub version: String,
    /// Format of its region.
    pub format: u32,
    /// Format of its store of objects.
    pub store: u32,
}

impl Default for Upgrade {
    fn default() -> Upgrade {
        Upgrade { state: STATE.into(), pending: PENDING.into() }
    }
}

impl Upgrade {
    /// The files below another folder than `/`, for tests.
    pub fn below(root: &Path) -> Upgrade {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        Upgrade { state: below(STATE), pending: below(PENDING) }
    }

    /// Path of a program of the previous version.
    pub fn previous_program(&self, name: &str) -> PathBuf {
        self.state.join("previous").join(name)
    }

    /// The previous version, if its programs are there.
    pub fn previous(&self) -> Option<Version> {
        read(&self.state.join("previous"))
    }

    /// The version to which the appliance was committed, if it was.
    pub fn committed(&self) -> Option<Version> {
        read(&self.state.join("committed"))
    }

    /// Returns whether the data plane still has to be switched.
    pub fn is_pending(&self) -> bool {
        self.pending.exists()
    }

    /// Lets daemons run as the previous version again, because the switch failed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_pending(&self) -> io::Result<()> {
        self.pending.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(&self.pending, "")
    }

    /// Ends the state in which daemons run as the previous version.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn end_pending(&self) -> io::Result<()> {
        match fs::remove_file(&self.pending) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Records that there is no way back from this version, and removes the programs of the one
    /// before.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub fn commit(&self, version: &Version) -> io::Result<()> {
        let folder = self.state.join("committed");
        fs::create_dir_all(&folder)?;
        let Version { version, format, store } = version;
        config::atomic_file::replace(&folder.join("version"), &format!("{version}\n"))?;
        config::atomic_file::replace(&folder.join("store-format"), &format!("{store}\n"))?;
        config::atomic_file::replace(&folder.join("region-layout"), &format!("{format}\n"))?;
        match fs::remove_dir_all(self.state.join("previous")) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

fn read(folder: &Path) -> Option<Version> {
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let format = text("region-layout")?.trim().parse().ok()?;
    let store =
        text("store-format").map_or(Some(FIRST_STORE_FORMAT), |text| text.trim().parse().ok())?;
    Some(Version { version: text("version")?.trim().to_owned(), format, store })
}

/// Ends a pending upgrade if there is no region that only the previous version's programs can use:
/// it was removed, or switched. Must run as root.
///
/// # Errors
/// The file of the state cannot be removed.
pub fn end_obsolete_pending(config: &Config) -> io::Result<()> {
    let upgrade = Upgrade::default();
    let Ok((location, _)) = region_locations(config) else { return Ok(()) };
    match location.format() {
        Ok(format) if format.is_none_or(|format| format == Region::format().1) => {
            upgrade.end_pending()
        }
        _ => Ok(()),
    }
}

/// Runs the previous version in place of this process, with the same arguments, if an upgrade is
/// pending and the region has that version's format; does not return then. Returns `None` if these
/// conditions do not hold, or the reason for which the previous version cannot be run.
pub fn hand_over(config: &Config, program: &str) -> Option<String> {
    let upgrade = Upgrade::default();
    let (location, _) = region_locations(config).ok()?;
    let format = location.format().ok()??;
    let previous = upgrade.previous()?;
    if format == Region::format().1 || format != previous.format || !upgrade.is_pending() {
        return None;
    }
    let path = upgrade.previous_program(program);
    let Version { version, .. } = previous;
    eprintln!(
        "{program}: running as version {version}, because the region has its format {format}; \
         `weir upgrade apply` switches the data plane"
    );
    let error = match check_owner(&path) {
        Ok(()) => Command::new(&path).args(std::env::args_os().skip(1)).exec().to_string(),
        Err(what) => what,
    };
    Some(format!("{}: {error}", path.display()))
}

/// Checks that only root can change the program and the folders that lead to it.
fn check_owner(path: &Path) -> Result<(), String> {
    for path in path.ancestors() {
        let about = fs::symlink_metadata(path).map_err(|e| e.to_string())?;
        if about.uid() != 0 || about.mode() & WRITABLE != 0 || about.is_symlink() {
            return Err(format!("{}: others than root can change it", path.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_removes_the_version_before() {
        let root = std::env::temp_dir().join(format!("weir-upgrade-{}", std::process::id()));
        let upgrade = Upgrade::below(&root);
        assert_eq!((upgrade.previous(), upgrade.committed()), (None, None));
        let previous = root.join("var/lib/weir-upgrade/previous");
        fs::create_dir_all(&previous).unwrap();
        fs::write(previous.join("version"), "0.1.0\n").unwrap();
        fs::write(previous.join("region-layout"), "13\n").unwrap();
        fs::create_dir_all(root.join("run/weir-upgrade")).unwrap();
        fs::write(root.join("run/weir-upgrade/pending"), "").unwrap();
        let before = Version { version: "0.1.0".to_owned(), format: 13, store: 2 };
        assert_eq!(upgrade.previous(), Some(before));
        assert!(upgrade.is_pending());
        upgrade.end_pending().unwrap();
        upgrade.end_pending().unwrap();
        assert!(!upgrade.is_pending());
        upgrade.set_pending().unwrap();
        assert!(upgrade.is_pending());
        let now = Version { version: "0.2.0".to_owned(), format: 14, store: 3 };
        upgrade.commit(&now).unwrap();
        assert_eq!((upgrade.previous(), upgrade.committed()), (None, Some(now)));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_program_that_others_can_change_is_not_run() {
        let root = std::env::temp_dir().join(format!("weir-previous-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let error = check_owner(&root.join("fastpath")).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
        // /tmp is writable by all users.
        fs::write(root.join("fastpath"), "").unwrap();
        let error = check_owner(&root.join("fastpath")).unwrap_err();
        assert!(error.ends_with("others than root can change it"), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }
}
