//! The virtual machine: its image, its NICs, and the emulator that runs it.

use crate::Result;
use crate::emulator::{self, Emulator};
use crate::guest::Guest;
use crate::qmp::Qmp;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time limit of the boot, which takes about 4 s on idle CPUs.
const BOOT: Duration = Duration::from_secs(60);

/// The time limit for the guest's kernel to release an unplugged NIC.
const UNPLUG: Duration = Duration::from_secs(20);

/// The kernel's parameters without those that `weir tune` adds.
pub const KERNEL: &str = "console=ttyS0 quiet panic=-1";

/// How a machine is started.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The kind of fastpath's NICs.
    pub model: NicModel,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// The kernel's command line.
    pub command_line: String,
}

impl Boot {
    /// Returns a start with the IOMMU in use, and memory for the image (110 MiB), for hugepages
    /// (210 MiB), and for Weir beside both.
    pub fn new(model: NicModel) -> Self {
        let command_line = format!("{KERNEL} intel_iommu=on iommu=pt");
        Self { model, memory_mib: 1536, command_line }
    }
}

/// A kind of emulated NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NicModel {
    /// A virtio device of version 1 whose memory accesses the IOMMU translates.
    VirtioNet,
    /// Intel 82574L.
    E1000e,
    /// VMware's NIC, which the emulator never holds back: what does not fit in its queue is lost.
    Vmxnet3,
}

impl NicModel {
    /// Returns whether it pads received frames to 60 bytes, and counts them so.
    pub fn pads_frames(self) -> bool {
        self == Self::E1000e
    }
}

/// A NIC of fastpath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataNic {
    /// The one towards the gateway.
    Ingress,
    /// The one towards the backend.
    Egress,
}

impl DataNic {
    /// Both NICs, ingress first.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// Returns its name in the emulator, which is also the arm's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// Returns its PCI address: the firmware numbers the buses below the ports in their order.
    pub fn pci_address(self) -> &'static str {
        match self {
            Self::Ingress => "0000:01:00.0",
            Self::Egress => "0000:02:00.0",
        }
    }

    /// Returns the name, namespace and MAC address of the kernel's NIC at the other end of its
    /// wire.
    pub fn peer(self) -> Peer {
        match self {
            Self::Ingress => Peer { name: "gw0", namespace: "gateway", mac: "02:00:00:00:00:02" },
            Self::Egress => Peer { name: "be0", namespace: "backend", mac: "02:00:00:00:00:03" },
        }
    }

    /// Returns its MAC address.
    pub fn mac(self) -> &'static str {
        match self {
            Self::Ingress => "02:00:00:00:00:11",
            Self::Egress => "02:00:00:00:00:12",
        }
    }

    /// Returns the emulator's arguments for this NIC and for the port that it is below. Its wire is
    /// the emulator's network `NAME-wire`.
    pub fn arguments(self, model: NicModel) -> [String; 4] {
        let number = match self {
            Self::Ingress => 1,
            Self::Egress => 2,
        };
        let slot = format!("chassis={number},slot={number},addr={:#x}", 8 + number);
        let port = format!("pcie-root-port,id={}-port,{slot}", self.name());
        ["-device".to_owned(), port, "-device".to_owned(), self.device(model).to_string()]
    }

    /// Returns the emulator's description of this NIC.
    fn device(self, model: NicModel) -> Value {
        let (name, mac) = (self.name(), self.mac());
        let mut device = json!({
            "id": name, "bus": format!("{name}-port"), "netdev": format!("{name}-wire"), "mac": mac,
        });
        let more = match model {
            NicModel::VirtioNet => json!({
                "driver": "virtio-net-pci",
                "disable-legacy": "on", "iommu_platform": true, "ats": true,
            }),
            NicModel::E1000e => json!({ "driver": "e1000e" }),
            NicModel::Vmxnet3 => json!({ "driver": "vmxnet3" }),
        };
        if let (Value::Object(device), Value::Object(more)) = (&mut device, more) {
            device.extend(more);
        }
        device
    }
}

/// A NIC of the guest's kernel.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name in the guest.
    pub name: &'static str,
    /// Its network namespace in the guest.
    pub namespace: &'static str,
    /// Its MAC address.
    pub mac: &'static str,
}

/// The MAC address of the management NIC, [`MANAGEMENT`].
pub const MANAGEMENT_MAC: &str = "02:00:00:00:00:01";

/// The name of the management NIC in the guest.
pub const MANAGEMENT: &str = "mgmt0";

/// The PCI address of the management NIC.
pub const MANAGEMENT_PCI: &str = "0000:00:03.0";

/// The time limit for the emulator to take frames from the test.
const INJECT: Duration = Duration::from_secs(20);

/// A running virtual machine. It ends when this value is dropped, and when the thread that started
/// it ends.
pub struct Machine {
    /// The shell in it.
    pub guest: Guest,
    qmp: Qmp,
    /// The test's end of the wire of [`DataNic::Ingress`].
    injector: UnixStream,
    boot: Boot,
    // Dropped after the connections, in this order.
    emulator: Emulator,
    folder: Folder,
}

impl Machine {
    /// Builds the image and boots it. The guest's shell is ready, and its NICs are unconfigured.
    pub fn boot(model: NicModel) -> Result<Self> {
        Self::boot_with(Boot::new(model))
    }

    /// Like [`boot`](Machine::boot), with these parameters.
    pub fn boot_with(boot: Boot) -> Result<Self> {
        let folder = Folder::new()?;
        build_image(&folder.0)?;
        Self::start(folder, boot)
    }

    /// Reboots the machine with another command line. Its memory is lost, and with it its file
    /// system; `files`, each a path and a text, are what a disk would have kept.
    pub fn reboot(self, command_line: &str, files: &[(String, String)]) -> Result<Self> {
        let Self { guest, qmp, injector, boot, emulator, folder } = self;
        drop((guest, qmp, injector));
        drop(emulator);
        add_to_image(&folder.0, files)?;
        Self::start(folder, Boot { command_line: command_line.to_owned(), ..boot })
    }

    fn start(folder: Folder, boot: Boot) -> Result<Self> {
        let mut emulator = start_emulator(&folder.0, &boot)?;
        // The emulator creates the sockets before the guest runs.
        let shell = emulator.connect("shell")?;
        let qmp = emulator.control()?;
        let injector = emulator.connect("injector")?;
        injector.set_write_timeout(Some(INJECT))?;
        discard(injector.try_clone()?);
        let guest = Guest::new(shell, BOOT)
            .map_err(|e| format!("{e}; the kernel's console:\n{}", emulator.console()))?;
        Ok(Self { guest, qmp, injector, boot, emulator, folder })
    }

    /// Returns the output of the guest's kernel and of its first process.
    pub fn console(&self) -> String {
        self.emulator.console()
    }

    /// Returns the kind of fastpath's NICs.
    pub fn model(&self) -> NicModel {
        self.boot.model
    }

    /// Sets the link of a NIC, as if its cable were pulled or plugged.
    pub fn set_link(&mut self, nic: DataNic, up: bool) -> Result {
        self.qmp.execute("set_link", json!({ "name": nic.name(), "up": up })).map(drop)
    }

    /// Puts `number` copies of a frame, which may be a bad one, on the wire of
    /// [`DataNic::Ingress`], as fast as the emulator takes them.
    pub fn inject(&mut self, frame: &[u8], number: usize) -> Result {
        let length = u32::try_from(frame.len())?.to_be_bytes();
        let stream = [&length, frame].concat().repeat(number);
        let written = self.injector.write_all(&stream);
        written.map_err(|e| format!("qemu took no frames in {INJECT:?}: {e}").into())
    }

    /// Requests the removal of a NIC and waits until the guest's kernel has released it.
    pub fn unplug(&mut self, nic: DataNic) -> Result {
        self.qmp.execute("device_del", json!({ "id": nic.name() }))?;
        self.qmp.wait_for_event("DEVICE_DELETED", ("device", nic.name().into()), UNPLUG)
    }

    /// Plugs a NIC in again.
    pub fn plug(&mut self, nic: DataNic) -> Result {
        self.qmp.execute("device_add", nic.device(self.boot.model)).map(drop)
    }
}

/// Starts the emulator, which ends with this thread at the latest, even if that is killed.
fn start_emulator(folder: &Path, boot: &Boot) -> Result<Emulator> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", emulator::PROGRAM, "-no-reboot"]);
    command.args(emulator::arguments(folder, boot.memory_mib));
    command.args(emulator::kernel(&folder.join("vmlinuz"), &boot.command_line));
    command.arg("-initrd").arg(folder.join("initrd"));
    command.args(["-netdev", "hubport,id=management-wire,hubid=0"]);
    command.arg("-device").arg(kernel_nic("management-wire", MANAGEMENT_MAC, 3));
    let injector = "stream,id=injector,server=on,addr.type=unix,addr.path=injector";
    command.args(["-netdev", injector]);
    command.args(["-netdev", "hubport,id=injector-wire,hubid=1,netdev=injector"]);
    for (hub, nic) in (1..).zip(DataNic::ALL) {
        let (name, peer) = (nic.name(), nic.peer());
        command.args(["-netdev", &format!("hubport,id={}-wire,hubid={hub}", peer.name)]);
        command.args(["-netdev", &format!("hubport,id={name}-wire,hubid={hub}")]);
        let wire = format!("{}-wire", peer.name);
        command.arg("-device").arg(kernel_nic(&wire, peer.mac, 3 + hub));
        command.args(nic.arguments(boot.model));
    }
    let output = std::fs::File::create(folder.join("qemu"))?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let process = command.current_dir(folder).spawn();
    let process = process.map_err(|e| format!("cannot run setpriv: {e}; run: make setup"))?;
    Ok(Emulator::new(process, folder))
}

/// Reads and discards the frames of others on the wire, until the emulator ends.
fn discard(mut stream: UnixStream) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
    });
}

/// Returns the emulator's description of a NIC that stays with the guest's kernel.
pub fn kernel_nic(wire: &str, mac: &str, slot: u32) -> String {
    format!("virtio-net-pci,netdev={wire},mac={mac},addr={slot:#x}")
}

/// A directory for one machine, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("weir-nics-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Adds files to the image: the kernel unpacks one archive after the other.
fn add_to_image(folder: &Path, files: &[(String, String)]) -> Result {
    let root = folder.join("added");
    for (path, text) in files {
        let path = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap_or(&root))?;
        std::fs::write(path, text)?;
    }
    let script = "cd added && find . | cpio --quiet -o -H newc --owner +0:+0 >> ../initrd";
    let output = Command::new("bash").args(["-euc", script]).current_dir(folder).output()?;
    std::fs::remove_dir_all(&root)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("cpio: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Builds the image in `folder` with the programs in `WEIR_BIN_DIR`, or next to this program (a
/// test is one directory deeper).
fn build_image(folder: &Path) -> Result {
    let programs = match std::env::var_os("WEIR_BIN_DIR") {
        Some(programs) => PathBuf::from(programs),
        None => {
            let own = std::env::current_exe()?;
            own.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned()
        }
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("image.sh");
    let output = Command::new("bash").arg(&script).arg(programs).arg(folder).output();
    let output = output.map_err(|e| format!("cannot run {}: {e}", script.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Err(format!("{} failed: {}", script.display(), text.concat().trim()).into())
}
