//! A virtual machine between the lab's gateway and web servers, with a disk that survives reboots.
//!
//! ```text
//!   clients - gateway === in0 - bridge - tap === ingress   appliance
//!         web servers === eg0 - bridge - tap === egress
//!                                        tap === management
//! ```
//!
//! The emulator (QEMU) runs in the network namespace that the lab has for the appliance. It loads
//! the kernel itself, without boot loader and initial RAM disk, or its firmware boots an image.

use crate::Result;
use crate::disk::{Disk, Start};
use nics::emulator::{self, Emulator};
use nics::guest::Guest;
use nics::machine::{DataNic, MANAGEMENT_MAC, NicModel, kernel_nic};
use nics::qmp::Qmp;
use patience::poll;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tests::lab::settings::Plane;
use tests::lab::topology::{FRONTEND, INGRESS, Lab};

/// Memory in MiB: 210 for hugepages, the rest for the system and for Weir's programs.
const MEMORY_MIB: u32 = 1536;

/// The kernel's parameters without those about the IOMMU. `no_timer_check` is set because the check
/// counts timer ticks during a number of CPU cycles, and ends in a panic if the emulator gets too
/// little CPU time.
const KERNEL: &str = "root=/dev/nvme0n1 rw console=ttyS0 quiet panic=-1 no_timer_check";

/// The time limit of a boot until the appliance forwards. On idle CPUs a boot takes 40 s, with XDP
/// 80 s, because the kernel verifies the programs. On busy CPUs the image took up to 200 s.
const BOOT: Duration = Duration::from_secs(600);

/// The time limit of a shutdown.
const SHUTDOWN: Duration = Duration::from_secs(180);

/// The address at which the appliance serves its metrics, in the management network.
pub const METRICS: &str = "10.0.9.2:9100";

/// A machine that runs.
pub struct Machine<'a> {
    lab: &'a Lab,
    disk: &'a Disk,
    shell: UnixStream,
    qmp: Qmp,
    emulator: Emulator,
}

impl<'a> Machine<'a> {
    /// Connects the namespace of the appliance in a lab with the machine's NICs, and starts the
    /// machine with these kernel parameters, which a disk with a boot loader does not use.
    pub fn new(lab: &'a Lab, disk: &'a Disk, parameters: &str) -> Result<Self> {
        // As for XDP: for DPDK, the lab would hide the frames from the kernel, whose bridges
        // receive them here.
        lab.set_up_for(Plane::Xdp { native: false })?;
        for (wire, nic) in ["in0", "eg0"].into_iter().zip(DataNic::ALL) {
            let (tap, bridge) = (tap(nic), format!("br-{}", nic.name()));
            lab.weir.ip(&[
                &format!("tuntap add dev {tap} mode tap"),
                &format!("link add {bridge} mtu 9001 type bridge mcast_snooping 0"),
                &format!("link set {wire} master {bridge}"),
                &format!("link set {tap} mtu 9001 master {bridge} up"),
                &format!("link set {bridge} up"),
            ])?;
        }
        lab.weir.ip(&[
            "tuntap add dev management mode tap",
            "addr add 10.0.9.1/24 dev management",
            "link set management up",
        ])?;
        Self::start(lab, disk, parameters)
    }

    fn start(lab: &'a Lab, disk: &'a Disk, parameters: &str) -> Result<Self> {
        let folder = lab.folder.file("");
        let mut arguments = emulator::arguments(&folder, MEMORY_MIB);
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        let drive = |file: &Path, more: &str| format!("file={},format=raw,{more}", file.display());
        let mut device = "nvme,drive=disk,serial=appliance,addr=0x2".to_owned();
        match disk.start() {
            Start::Kernel(kernel) => {
                let line = format!("{KERNEL} {parameters}");
                let [kernel, path, append, line] = emulator::kernel(kernel, &line);
                add(&kernel, path);
                add(&append, line);
            }
            Start::Firmware { code, variables, seed } => {
                add("-drive", drive(code, "if=pflash,readonly=on"));
                add("-drive", drive(variables, "if=pflash"));
                add("-drive", drive(seed, "if=none,id=seed,readonly=on"));
                add("-device", "virtio-blk-pci,drive=seed,addr=0x4".to_owned());
                device += ",bootindex=0";
            }
        }
        add("-drive", drive(disk.path(), "if=none,id=disk"));
        // Debian's kernel has the drivers of NVMe and ext4 built in, and needs no initial RAM disk.
        add("-device", device);
        add("-netdev", netdev("management-wire", "management"));
        add("-device", kernel_nic("management-wire", MANAGEMENT_MAC, 3));
        for nic in DataNic::ALL {
            add("-netdev", netdev(&format!("{}-wire", nic.name()), &tap(nic)));
        }
        let nics = DataNic::ALL.map(|nic| nic.arguments(NicModel::VirtioNet));
        arguments.extend(nics.into_iter().flatten());
        let log = File::create(folder.join("qemu"))?;
        let process = lab.weir.spawn(emulator::PROGRAM, &arguments, &[], log)?;
        let mut emulator = Emulator::new(process, &folder);
        let (shell, qmp) = (emulator.connect("shell")?, emulator.control()?);
        Ok(Self { lab, disk, shell, qmp, emulator })
    }

    /// Waits until the appliance answers health probes and a client's request succeeds. Nothing is
    /// done in the guest. A boot after a panic is an error.
    pub fn wait_until_it_forwards(&self) -> Result {
        let forwards = poll("a response through the appliance", BOOT, || {
            let curl = |namespace: &tests::lab::netns::Netns, url: &str| {
                let limits = ["--silent", "--fail", "--max-time", "2", "--output", "/dev/null"];
                namespace
                    .command("curl", &[&limits[..], &[url]].concat())
                    .map_err(|e| e.to_string())
            };
            curl(&self.lab.cloud, &format!("http://{INGRESS}:8080/"))?;
            curl(&self.lab.aws[0], &format!("http://{FRONTEND}/1/1"))
        });
        if let Err(e) = forwards {
            let journal = self.guest().and_then(|guest| journal(&guest));
            let journal = journal.unwrap_or_else(|e| e.to_string());
            return Err(format!("{e}; the journal:\n{journal}").into());
        }
        match self.emulator.console().contains("Kernel panic") {
            false => Ok(()),
            true => Err(self.with_console("a boot ended in a panic".to_owned())),
        }
    }

    /// Returns the shell of the guest once the boot is complete.
    pub fn guest(&self) -> Result<Guest> {
        let guest = Guest::new(self.shell.try_clone()?, BOOT);
        guest.map_err(|e| self.with_console(e.to_string()))
    }

    /// Returns the value of a metric that the appliance serves in the management network.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let url = format!("http://{METRICS}/metrics");
        let text = self.lab.weir.command("curl", &["--silent", "--max-time", "10", &url])?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(line.ok_or_else(|| format!("no metric {name}: {text}"))?.parse()?)
    }

    /// Reboots the machine from inside, and waits until its processor is reset.
    pub fn reboot(&mut self, guest: Guest) -> Result {
        // After a reset, the firmware resets the machine once more: that event of an earlier reboot
        // is not the one to wait for.
        self.qmp.discard_events()?;
        self.shell = guest.leave("systemctl reboot")?;
        let reset = self.qmp.wait_for_event("RESET", ("guest", true.into()), SHUTDOWN);
        reset.map_err(|e| self.with_console(e.to_string()))
    }

    /// Cuts the power, and starts the machine again with these parameters of the kernel. What the
    /// guest did not write to its disk is lost.
    pub fn power_cycle(self, parameters: &str) -> Result<Self> {
        let Self { lab, disk, shell, qmp, emulator } = self;
        drop((shell, qmp, emulator));
        Self::start(lab, disk, parameters)
    }

    fn with_console(&self, error: String) -> Box<dyn std::error::Error> {
        format!("{error}; the console:\n{}", self.emulator.console()).into()
    }
}

/// Returns the end of the guest's journal of this boot, for a message about a failure.
pub fn journal(guest: &Guest) -> Result<String> {
    let show = "journalctl --boot --no-pager --lines 200; systemctl --failed --no-pager";
    Ok(guest.status(show, SHUTDOWN)?.1)
}

fn tap(nic: DataNic) -> String {
    format!("tap-{}", nic.name())
}

fn netdev(id: &str, tap: &str) -> String {
    format!("tap,id={id},ifname={tap},script=no,downscript=no")
}
