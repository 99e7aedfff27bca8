//! A container with systemd in which the units run as on an appliance.
//!
//! Its root directory has the machine's `/usr`, the programs under test in `/weir`, and the units
//! of config/systemd with these paths. It shares a network namespace with the lab.

use super::error::LabError;
use super::netns::Netns;
use super::process::find;
use container::Container;
use nix::unistd::{Gid, Uid, chown};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Id of the user and group `weir` in the container.
pub const WEIR: u32 = 990;
/// Id of the group `weir-admin` in the container.
pub const ADMIN: u32 = 991;
/// Id of `nobody` and `nogroup`.
pub const NOBODY: u32 = 65_534;

/// Option of nspawn that permits the system calls that the units need and nspawn forbids by
/// default.
pub const SYSTEM_CALLS: &str = "--system-call-filter=bpf iopl perf_event_open";
/// Texts in the journal that show that the sandbox denied an operation: those of EPERM, EACCES and
/// ENOSYS, and the signal and the audit record of a forbidden system call.
const DENIALS: [&str; 5] = [
    "Operation not permitted",
    "Permission denied",
    "Function not implemented",
    "status=31/SYS",
    "type=1326",
];

/// The root directory of a container that has not been booted.
pub struct Image {
    root: PathBuf,
    /// Directories of this machine that the container has at the same paths, writable.
    binds: Vec<PathBuf>,
}

impl Image {
    /// Creates the root directory at `root`, which must not exist, with units that read their
    /// configuration from `config`. `etc` is the content of files in `/etc/weir`, which the group
    /// `weir` can read.
    ///
    /// # Errors
    /// The root directory cannot be written.
    pub fn create(root: PathBuf, config: &Path, etc: &[(&str, &str)]) -> container::Result<Self> {
        let failed = |what: &str| LabError::io(format!("{what} in {}", root.display()));
        make_root(&root, etc).map_err(failed("preparing the container"))?;
        write_units(&root, config).map_err(failed("writing units"))?;
        Ok(Self { root, binds: Vec::new() })
    }

    /// Shares a directory of this machine with the container.
    pub fn bind(&mut self, path: impl Into<PathBuf>) {
        self.binds.push(path.into());
    }

    /// Writes a file of the container.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &str, text: &str) -> std::io::Result<()> {
        let path = self.root.join(path.trim_start_matches('/'));
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)
    }

    /// Boots the container in `ns`.
    ///
    /// # Errors
    /// The error contains what was printed during the boot.
    pub fn boot(&self, ns: &Netns) -> container::Result<Container> {
        let programs = find("slowpath", "slowpath")?;
        let programs = programs.parent().unwrap_or(Path::new("/"));
        let mut arguments = vec![
            "--machine=weir".to_owned(),
            "--bind-ro=/usr".to_owned(),
            // Certificates of the authorities that TLS clients trust.
            "--bind-ro=/etc/ssl".to_owned(),
            format!("--bind-ro={}:/weir", programs.display()),
            // Capabilities that the units need and nspawn drops by default.
            "--capability=CAP_BPF,CAP_PERFMON,CAP_SYS_RAWIO,CAP_IPC_LOCK,CAP_NET_ADMIN,CAP_NET_RAW"
                .to_owned(),
            SYSTEM_CALLS.to_owned(),
        ];
        arguments.extend(self.binds.iter().map(|path| format!("--bind={}", path.display())));
        Container::boot(&self.root, &ns.path(), &arguments)
    }
}

/// Returns the lines of a text that show a denied operation.
pub fn denials(text: &str) -> Vec<&str> {
    let is_denial = |line: &&str| DENIALS.iter().any(|denial| line.contains(denial));
    text.lines().filter(is_denial).collect()
}

/// Fails if the journal of Weir's units in a container shows a denied operation.
///
/// # Errors
/// The error has the lines.
pub fn check_journal(container: &Container) -> container::Result {
    let journal = container.run("journalctl --no-pager --unit 'weir-*'")?;
    match &*denials(&journal) {
        [] => Ok(()),
        lines => Err(format!("the sandbox denied an operation:\n{}", lines.join("\n")).into()),
    }
}

fn make_root(root: &Path, etc: &[(&str, &str)]) -> std::io::Result<()> {
    for folder in ["etc/systemd/system", "etc/weir", "usr", "weir", "var/lib", "var/log", "var/tmp"]
    {
        std::fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["run", "proc", "sys", "dev", "tmp", "root"] {
        std::fs::create_dir_all(root.join(folder))?;
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), root.join(link))?;
    }
    symlink("/run", root.join("var/run"))?;
    let users = format!(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:{NOBODY}:{NOBODY}::/:/bin/false\n\
         weir:x:{WEIR}:{WEIR}::/var/lib/weir:/usr/sbin/nologin\n"
    );
    let groups = format!(
        "root:x:0:\nnogroup:x:{NOBODY}:\nweir:x:{WEIR}:\nweir-admin:x:{ADMIN}:\ntty:x:5:\n\
         systemd-journal:x:999:\n"
    );
    let hosts = "127.0.0.1 localhost\n";
    let names = [("passwd", &*users), ("group", &groups), ("hosts", hosts)];
    let files = names.into_iter().chain([("os-release", ""), ("machine-id", "")]);
    for (file, text) in files {
        std::fs::write(root.join("etc").join(file), text)?;
    }
    std::fs::copy("/etc/ld.so.cache", root.join("etc/ld.so.cache"))?;
    let folder = root.join("etc/weir");
    set_owner(&folder, 0o750)?;
    etc.iter().try_for_each(|(name, text)| write_etc(root, name, text))
}

/// Writes a file of `/etc/weir` below `root` atomically, such that only root and the group `weir`
/// can read it.
///
/// # Errors
/// It cannot be written.
pub fn write_etc(root: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let folder = root.join("etc/weir");
    let new = folder.join(format!("{name}.new"));
    std::fs::write(&new, text)?;
    set_owner(&new, 0o640)?;
    std::fs::rename(new, folder.join(name))
}

/// Sets a path's owner to root, its group to `weir`, and its mode.
fn set_owner(path: &Path, mode: u32) -> std::io::Result<()> {
    chown(path, Some(Uid::from_raw(0)), Some(Gid::from_raw(WEIR)))?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Writes those units of this repository that need no NIC, with the paths of the programs under
/// test, and a default target that starts none of them.
fn write_units(root: &Path, config: &Path) -> std::io::Result<()> {
    let to = root.join("etc/systemd/system");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/systemd");
    for unit in ["slowpath", "fastpath", "ebpf-fallback", "hugepages"] {
        let name = format!("weir-{unit}.service");
        let mut text = std::fs::read_to_string(from.join(&name))?;
        for program in ["slowpath", "fastpath", "ebpf-fallback", "weir "] {
            text = text.replace(&format!("/usr/bin/{program}"), &format!("/weir/{program}"));
        }
        let text = text.replace("/etc/weir/weir.toml", &config.display().to_string());
        std::fs::write(to.join(name), text)?;
    }
    let target = "[Unit]\nDescription=The lab's appliance\nRequires=basic.target\n\
                  After=basic.target\n";
    std::fs::write(to.join("lab.target"), target)?;
    symlink("lab.target", to.join("default.target"))
}
