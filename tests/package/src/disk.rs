//! The disk of a virtual machine: Debian 12 with its kernel's modules, the installed package and a
//! configuration, as an image from which appliances are started.

use crate::artifacts::{package, repository, target};
use crate::tree::{Tree, run};
use crate::{Result, page};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of the file system; blocks that the guest never wrote take no space.
const SIZE: &str = "1G";

/// The management NIC and the data NICs as the guest's kernel names them, and what systemd-networkd
/// sets there. Weir's addresses are those that the kernel has before DPDK takes the NICs.
const NETWORKS: [(&str, &str); 3] = [
    ("enp0s3", "[Network]\nAddress=10.0.9.2/24\nGateway=10.0.9.1\n"),
    ("enp1s0", "[Link]\nMTUBytes=9001\n\n[Network]\nAddress=10.0.1.10/24\n"),
    ("enp2s0", "[Link]\nMTUBytes=9001\n\n[Network]\nAddress=10.0.2.10/24\n"),
];

/// The test's access to the guest; nothing that the appliance needs.
const SHELL: &str = r#"[Unit]
Description=Shell of the test at the second serial port

[Service]
ExecStart=/bin/sh -c 'exec 3<> /dev/ttyS1; stty -F /dev/ttyS1 raw -echo; \
  echo ready >&3; exec sh /dev/ttyS1 >&3'

[Install]
WantedBy=multi-user.target
"#;

/// A disk. Its file is removed when it is dropped.
pub struct Disk {
    path: PathBuf,
    kernel: PathBuf,
}

impl Disk {
    /// Installs the package in a new tree, writes these files there, each a path and a text, and
    /// makes a disk of it.
    pub fn build(files: &[(&str, &str)]) -> Result<Self> {
        let folder = target()?.join("package-test");
        let kernel = kernel()?;
        let tree = Tree::copy(&folder, "bookworm")?;
        std::fs::copy(package("weir")?, tree.root().join("root/weir_1_amd64.deb"))?;
        let install = page::commands("Install")?.join("\n");
        println!("# {install}");
        in_tree(&tree, &format!("cd /root && {install} && rm weir_1_amd64.deb"))?;
        add_modules(&tree, &kernel)?;
        for (name, text) in NETWORKS {
            let text = format!("[Match]\nName={name}\n\n{text}");
            tree.write(&format!("/etc/systemd/network/{name}.network"), &text)?;
        }
        tree.write("/etc/fstab", "/dev/nvme0n1 / ext4 defaults 0 1\n")?;
        tree.write("/etc/hostname", "appliance\n")?;
        tree.write("/etc/systemd/system/test-shell.service", SHELL)?;
        in_tree(
            &tree,
            "systemctl --quiet enable systemd-networkd test-shell
             systemctl --quiet mask getty@tty1 serial-getty@ttyS0",
        )?;
        files.iter().try_for_each(|(path, text)| tree.write(path, text))?;
        let disk = Self { path: folder.join(format!("disk-{}", std::process::id())), kernel };
        let options = ["-q", "-F", "-t", "ext4", "-d"];
        run(Command::new("mke2fs").args(options).arg(tree.root()).arg(&disk.path).arg(SIZE))?;
        Ok(disk)
    }

    /// Returns its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kernel whose modules it has.
    pub fn kernel(&self) -> &Path {
        &self.kernel
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // It does not exist if its file system could not be made.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Runs a shell command in a tree that is not booted, as tools that make images do.
fn in_tree(tree: &Tree, command: &str) -> Result {
    let options = ["--quiet", "--register=no", "--keep-unit", "--pipe", "--private-network"];
    let mut nspawn = Command::new("systemd-nspawn");
    nspawn.args(options).arg("--directory").arg(tree.root()).args(["bash", "-ec", command]);
    run(&mut nspawn).map(drop)
}

/// Returns Debian 12's kernel, which the tests of `make nics` use as well.
fn kernel() -> Result<PathBuf> {
    let folder = target()?.join("guest");
    std::fs::create_dir_all(&folder)?;
    let script = ". .ci/vm.sh && vm_kernel \"$1\"";
    let mut bash = Command::new("bash");
    bash.current_dir(repository()).args(["-euc", script, "kernel"]).arg(folder);
    Ok(run(&mut bash)?.trim().into())
}

fn add_modules(tree: &Tree, kernel: &Path) -> Result {
    let name = kernel.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = name.strip_prefix("vmlinuz-").ok_or_else(|| format!("{name}: no kernel"))?;
    let unpacked = kernel.ancestors().nth(2).unwrap_or(kernel);
    let modules = tree.root().join("lib/modules");
    std::fs::create_dir_all(&modules)?;
    let source = unpacked.join("lib/modules").join(version);
    run(Command::new("cp")
        .args(["--recursive", "--no-target-directory"])
        .arg(source)
        .arg(modules.join(version)))?;
    in_tree(tree, &format!("depmod {version}"))
}
