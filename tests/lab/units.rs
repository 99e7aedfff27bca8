//! The daemons of a lab under their units, in a container with the paths of the lab.

use super::container::{Image, WEIR, check_journal, denials};
use super::error::{LabError, Result};
use super::folder::Folder;
use super::netns::Netns;
use super::process::Process;
use super::unit::Unit;
use container::Container;
use nix::unistd::{Gid, chown};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// The daemons, each with additional lines of its unit.
///
/// slowpath gets a stop timeout of two seconds, which is shorter than any deregistration, so that a
/// test fails if slowpath does not extend the timeout.
const DAEMONS: [(&str, &str); 3] =
    [("slowpath", "TimeoutStopSec=2\n"), ("fastpath", ""), ("ebpf-fallback", "")];

/// The container's file with the daemons' environment.
const ENVIRONMENT: &str = "etc/default/weir";

/// The file system of the kernel maps of a lab with the XDP plane.
const BPF: &str = "/sys/fs/bpf";

/// The units of an appliance's daemons. If the sandbox denied an operation, the test fails at the
/// latest when this is dropped.
pub struct Units {
    container: Arc<Container>,
    folder: Arc<Folder>,
}

impl Units {
    /// Boots the container, in which no daemon runs yet, in the appliance's namespace.
    pub fn boot(ns: &Netns, folder: &Arc<Folder>) -> Result<Self> {
        let own = folder.file("");
        let shared = folder.shared("");
        share(&own)?;
        let booted = || -> container::Result<Container> {
            let mut image = Image::create(folder.file("root"), &folder.file("weir.toml"), &[])?;
            for path in [&own, &shared, Path::new(BPF)] {
                image.bind(path);
            }
            // The lab itself restarts the daemons and reads their logs. Its directories are below
            // /tmp and /dev/shm, and `PrivateTmp=` would hide the first one.
            for (daemon, more) in DAEMONS {
                let text = format!(
                    "[Service]\nRestart=no\nExecStopPost=\n{more}\
                     StandardOutput=append:{own}{daemon}.log\n\
                     StandardError=append:{own}{daemon}.log\n\
                     BindPaths={own}\nReadWritePaths={own} {shared} -{maps}\n",
                    own = own.display(),
                    shared = shared.display(),
                    maps = folder.maps().display(),
                );
                image.write(
                    &format!("etc/systemd/system/weir-{daemon}.service.d/lab.conf"),
                    &text,
                )?;
            }
            image.write(ENVIRONMENT, "")?;
            image.boot(ns)
        };
        let container = booted().map_err(|error| LabError::Other(error.to_string()))?;
        Ok(Self { container: Arc::new(container), folder: folder.clone() })
    }

    /// Starts a daemon with these environment variables.
    pub fn start(&self, daemon: &str, environment: &[(String, String)]) -> Result<Process> {
        let lines = environment.iter().map(|(name, value)| format!("{name}=\"{value}\"\n"));
        self.folder.write(&format!("root/{ENVIRONMENT}"), &lines.collect::<String>())?;
        let unit = Unit::start(&self.container, &format!("weir-{daemon}.service"))?;
        Ok(Process::of_unit(daemon, unit, self.folder.file(&format!("{daemon}.log"))))
    }

    /// Fails if the sandbox denied an operation so far.
    fn check(&self) -> container::Result {
        check_journal(&self.container)?;
        for (daemon, _) in DAEMONS {
            let log = std::fs::read(self.folder.file(&format!("{daemon}.log")));
            let log = String::from_utf8_lossy(&log.unwrap_or_default()).into_owned();
            if let [first, ..] = &*denials(&log) {
                return Err(format!("{daemon}: the sandbox denied an operation: {first}").into());
            }
        }
        Ok(())
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        let denial = self.check().err().map(|error| error.to_string());
        assert!(std::thread::panicking() || denial.is_none(), "{denial:?}");
    }
}

/// Lets the group `weir` create files in a directory of root, as in `/run/weir`.
fn share(folder: &Path) -> Result<()> {
    let what = || format!("sharing {} with the group weir", folder.display());
    chown(folder, None, Some(Gid::from_raw(WEIR))).map_err(LabError::errno(what()))?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o1775)).map_err(LabError::io(what()))
}
