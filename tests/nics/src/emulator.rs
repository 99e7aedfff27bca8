//! The emulator's process: the arguments that all machines share, and the connections to it.

use crate::Result;
use crate::qmp::Qmp;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// The emulator.
pub const PROGRAM: &str = "qemu-system-x86_64";

const IOMMU: &str = "intel-iommu,intremap=on,device-iotlb=on";

/// The time limit for the emulator to create its sockets.
const START: Duration = Duration::from_secs(60);

/// Returns the arguments of a machine with two CPUs and an IOMMU: its first serial port is the
/// console, the second one a shell. What it boots is not among them.
pub fn arguments(folder: &Path, memory_mib: u32) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let socket = |name: &str| format!("socket,id={name},path={},server=on,wait=off", file(name));
    let text = str::to_owned;
    [
        ["-nodefaults", "-no-user-config", "-display", "none"].map(text),
        // An IOMMU for vfio, whose interrupt remapping needs the split interrupt controller.
        ["-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi"].map(text),
        [text("-cpu"), text("max"), text("-smp"), text("2")],
        [text("-m"), memory_mib.to_string(), text("-device"), text(IOMMU)],
        [
            text("-chardev"),
            format!("file,id=console,path={}", file("console")),
            text("-serial"),
            text("chardev:console"),
        ],
        [text("-chardev"), socket("shell"), text("-serial"), text("chardev:shell")],
        [text("-chardev"), socket("qmp"), text("-mon"), text("chardev=qmp,mode=control")],
    ]
    .concat()
}

/// Returns the arguments of a machine that boots this kernel without a boot loader.
pub fn kernel(kernel: &Path, command_line: &str) -> [String; 4] {
    let kernel = kernel.display().to_string();
    ["-kernel".to_owned(), kernel, "-append".to_owned(), command_line.to_owned()]
}

/// A running emulator. It is killed when it is dropped, as by a power cut.
pub struct Emulator {
    process: Child,
    folder: PathBuf,
}

impl Emulator {
    /// Takes over a process that was started with [`arguments`] for this folder, and with its
    /// output in the file `qemu` there.
    pub fn new(process: Child, folder: &Path) -> Self {
        Self { process, folder: folder.to_owned() }
    }

    /// Connects to one of the emulator's sockets as soon as it exists.
    pub fn connect(&mut self, socket: &str) -> Result<UnixStream> {
        let path = self.folder.join(socket);
        let connected = patience::poll(&format!("qemu's socket {socket}"), START, || {
            if let Ok(Some(status)) = self.process.try_wait() {
                let output = read(&self.folder.join("qemu"));
                return Ok(Err(format!("qemu ended with {status}: {output}")));
            }
            match UnixStream::connect(&path) {
                Ok(stream) => Ok(Ok(stream)),
                Err(e)
                    if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
                {
                    Err(e.to_string())
                }
                Err(e) => Ok(Err(format!("{}: {e}", path.display()))),
            }
        })?;
        Ok(connected?)
    }

    /// Connects to the emulator's control protocol.
    pub fn control(&mut self) -> Result<Qmp> {
        Qmp::new(self.connect("qmp")?)
    }

    /// Returns what the guest's kernel and its first process printed.
    pub fn console(&self) -> String {
        read(&self.folder.join("console"))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // It may have ended already; the kill then fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_else(|e| format!("{}: {e}", path.display()))
}
