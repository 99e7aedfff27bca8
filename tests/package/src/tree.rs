//! Trees of Debian: a clean system with systemd and the libraries that the package depends on.

use crate::Result;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages in addition to those of mmdebstrap's variant `minbase`. They include the
/// dependencies of the package under test, which is installed without a network.
const PACKAGES: &str = "systemd-sysv,udev,dbus,iproute2,procps,kmod,libpcap0.8,libxdp1,libbpf1,\
                        ibverbs-providers,libnuma1,libbsd0";

/// Prefixes of paths that are not compared: file systems of the kernel, temporary files and caches,
/// logs, the home directory of root, apt's package lists, the machine id of D-Bus, and what systemd
/// writes while it runs.
const TRANSIENT: [&str; 15] = [
    "/dev/",
    "/proc/",
    "/run/",
    "/sys/",
    "/tmp/",
    "/root/",
    "/etc/.updated",
    "/var/.updated",
    "/var/cache/",
    "/var/lib/apt/",
    "/var/lib/dbus/",
    "/var/lib/systemd/linger",
    "/var/lib/systemd/timers",
    "/var/log/",
    "/var/tmp/",
];

/// Further paths that are not compared: backups and lock of the account files, which change because
/// the package's user remains after a purge.
const ACCOUNTS: [&str; 5] =
    ["/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/.pwd.lock"];

/// A copy of a Debian tree, which is removed when it is dropped.
pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Copies the tree of a release, which is made first if it does not exist in `folder`.
    pub fn copy(folder: &Path, suite: &str) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let archive = folder.join(format!("{suite}.tar"));
        // An archive with another list of packages is replaced.
        let list = folder.join(format!("{suite}.packages"));
        if !archive.exists() || std::fs::read_to_string(&list).ok().as_deref() != Some(PACKAGES) {
            make(suite, &archive)?;
            std::fs::write(&list, PACKAGES)?;
        }
        let root = folder.join(suite);
        if root.exists() {
            // Left by a test that was killed.
            std::fs::remove_dir_all(&root)?;
        }
        let tree = Self { root };
        std::fs::create_dir(&tree.root)?;
        let tar = ["--extract", "--numeric-owner", "--xattrs", "--file"];
        run(Command::new("tar").arg("--directory").arg(&tree.root).args(tar).arg(&archive))?;
        Ok(tree)
    }

    /// Returns the root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes a file of the system.
    pub fn write(&self, path: &str, text: &str) -> Result {
        let path = self.root.join(path.trim_start_matches('/'));
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()).into())
    }

    /// Writes a unit that mounts the BPF file system at each boot, as systemd does on a machine.
    /// systemd-nspawn mounts `/sys` read-only and without the directory `fs/bpf`.
    pub fn mount_bpf_at_boot(&self) -> Result {
        self.start_at_boot(
            "sys-fs-bpf",
            "mount -o remount,rw /sys && mkdir -p /sys/fs/bpf && \
             mount -t bpf -o mode=0700 bpf /sys/fs/bpf && mount -o remount,ro /sys",
        )
    }

    /// Writes a unit that runs a shell command at each boot, before `sysinit.target` and thus
    /// before all units that have the default dependencies.
    fn start_at_boot(&self, name: &str, command: &str) -> Result {
        let text = format!(
            "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c '{command}'\n"
        );
        let folder = self.root.join("etc/systemd/system");
        std::fs::create_dir_all(folder.join("sysinit.target.wants"))?;
        std::fs::write(folder.join(format!("{name}.service")), text)?;
        let link = folder.join(format!("sysinit.target.wants/{name}.service"));
        Ok(symlink(format!("../{name}.service"), link)?)
    }

    /// Returns the paths of all files and directories that are compared.
    pub fn files(&self) -> Result<BTreeSet<String>> {
        let output =
            run(Command::new("find").arg(&self.root).args(["-xdev", "-printf", "/%P\\n"]))?;
        let is_compared = |path: &&str| {
            !TRANSIENT.iter().any(|folder| path.starts_with(folder)) && !ACCOUNTS.contains(path)
        };
        Ok(output.lines().filter(is_compared).map(str::to_owned).collect())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.root) {
            eprintln!("{}: {error}; remove it", self.root.display());
        }
    }
}

/// Makes the tree of a release as an archive.
fn make(suite: &str, archive: &Path) -> Result {
    let targets = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"];
    let mirrors = run(Command::new("apt-get").args(targets).arg("Label: Debian"))?;
    let mirror = mirrors
        .lines()
        .next()
        .ok_or("apt's configuration names no Debian mirror; run: apt-get update")?;
    println!("making a tree of {suite} in {}", archive.display());
    let new = archive.with_extension("new.tar");
    run(Command::new("mmdebstrap")
        .args(["--quiet", "--variant=minbase", "--include", PACKAGES, suite])
        .arg(&new)
        .arg(mirror))?;
    Ok(std::fs::rename(new, archive)?)
}

/// Runs a command to its end and returns its standard output.
pub fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{program}: {e}; run: make package-test"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!(
            "{command:?} failed ({}): {}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )
        .into()),
    }
}
