//! The disks of a virtual machine: Debian 12 with its kernel's modules, the installed package and a
//! configuration; or a copy of the image that `make image` builds, with user data on a second disk.

use crate::artifacts::{image, package, repository, target};
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

/// The unit that gives the test a shell at the guest's second serial port. The appliance does not
/// need it.
pub const SHELL: &str = r#"[Unit]
Description=Shell of the test at the second serial port

[Service]
ExecStart=/bin/sh -c 'exec 3<> /dev/ttyS1; stty -F /dev/ttyS1 raw -echo; \
  echo ready >&3; exec sh /dev/ttyS1 >&3'

[Install]
WantedBy=multi-user.target
"#;

/// The UEFI firmware (OVMF) of machines that boot an image, and its initial variables.
const FIRMWARE: [&str; 2] = ["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"];

/// The size of a disk with a copy of the image, which is larger than the image: 4 GiB.
pub const IMAGE_DISK: u64 = 4 << 30;

/// The size of the disk with user data, in sectors of 512 bytes: 2 MiB. It is a multiple of 4 heads
/// with 16 sectors, the geometry that `mformat` gets.
const SEED_SECTORS: &str = "4096";

/// A disk. Its files are removed when it is dropped.
pub struct Disk {
    path: PathBuf,
    start: Start,
}

/// What a machine with the disk boots.
pub enum Start {
    /// This kernel, whose modules the disk has.
    Kernel(PathBuf),
    /// The boot loader on the disk.
    Firmware {
        /// The firmware's code.
        code: PathBuf,
        /// This machine's variables of the firmware.
        variables: PathBuf,
        /// The disk with user data.
        seed: PathBuf,
    },
}

impl Disk {
    /// Installs the package in a new Debian tree, writes these files there (each a path and a
    /// text), and makes a disk of the tree.
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
        let path = folder.join(format!("disk-{}", std::process::id()));
        let disk = Self { path, start: Start::Kernel(kernel) };
        let options = ["-q", "-F", "-t", "ext4", "-d"];
        run(Command::new("mke2fs").args(options).arg(tree.root()).arg(&disk.path).arg(SIZE))?;
        Ok(disk)
    }

    /// Copies the image onto a larger disk, and makes a second disk with these files of user data,
    /// each a name and a text. Its label is the one by which cloud-init finds user data without a
    /// cloud (`cidata`, NoCloud).
    pub fn of_image(seed: &[(&str, &str)]) -> Result<Self> {
        let folder = target()?.join("package-test");
        std::fs::create_dir_all(&folder)?;
        let file = |name: &str| folder.join(format!("{name}-{}", std::process::id()));
        let [code, variables] = FIRMWARE.map(PathBuf::from);
        let start = Start::Firmware { code, variables: file("variables"), seed: file("seed") };
        let disk = Self { path: file("disk"), start };
        let copy = |from: &Path, to: &Path| {
            run(Command::new("cp").arg("--sparse=always").arg(from).arg(to))
        };
        copy(&image("weir.raw")?, &disk.path)?;
        std::fs::OpenOptions::new().write(true).open(&disk.path)?.set_len(IMAGE_DISK)?;
        copy(&variables, &file("variables"))?;
        let volume = file("seed");
        run(Command::new("mformat")
            .args(["-C", "-T", SEED_SECTORS, "-h", "4", "-s", "16", "-v", "cidata", "-i"])
            .arg(&volume)
            .arg("::"))?;
        for (name, text) in seed {
            let from = file("seed-file");
            std::fs::write(&from, text)?;
            let to = format!("::/{name}");
            run(Command::new("mcopy").arg("-i").arg(&volume).arg(&from).arg(to))?;
            std::fs::remove_file(&from)?;
        }
        Ok(disk)
    }

    /// Returns the disk's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what a machine with this disk boots.
    pub fn start(&self) -> &Start {
        &self.start
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Files are absent if the disk could not be completed.
        let _ = std::fs::remove_file(&self.path);
        if let Start::Firmware { variables, seed, .. } = &self.start {
            let _ = std::fs::remove_file(variables);
            let _ = std::fs::remove_file(seed);
        }
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
