//! Errors of binding and unbinding.

use std::io;
use std::path::PathBuf;

use super::users::DeviceUser;
use crate::address::{BusAddress, PciAddress};
use crate::driver::UserDriver;

/// Why a device is not bound or unbound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The interface has no device that can be bound: it is virtual, or on a bus without selectable
    /// drivers.
    #[error(
        "{name}: an interface of kind {kind} has no device to bind; give it to DPDK as \
         net_af_packet0,iface={name}, or use plane = \"xdp\""
    )]
    NoDevice {
        /// Name of the interface.
        name: String,
        /// Its kind or bus.
        kind: String,
    },
    /// A default route or an ssh session depends on the device, or another network namespace uses
    /// it.
    #[error(
        "{device}: {why}, which binding would cut off; bind another NIC, or use --force if there \
         is another way to reach this machine"
    )]
    Protected {
        /// The device.
        device: BusAddress,
        /// What depends on it.
        why: String,
    },
    /// Weir knows no driver of DPDK for the device.
    #[error(
        "{device}: no driver of DPDK that Weir knows accepts {what}; use plane = \"xdp\", or \
         --driver with --force if your DPDK has a driver for it"
    )]
    UnknownNic {
        /// The device.
        device: BusAddress,
        /// Its id or driver.
        what: String,
    },
    /// The device works beside its kernel driver.
    #[error(
        "{device}: {dpdk} drives the queues beside the kernel's driver, which must stay bound; \
         leave out --driver {driver}"
    )]
    Bifurcated {
        /// The device.
        device: BusAddress,
        /// The driver of DPDK.
        dpdk: &'static str,
        /// The requested driver.
        driver: UserDriver,
    },
    /// The driver of DPDK does not work with the requested driver.
    #[error("{device}: {dpdk} does not work with {driver}; use {instead}")]
    Unsupported {
        /// The device.
        device: BusAddress,
        /// The driver of DPDK.
        dpdk: &'static str,
        /// The requested driver.
        driver: UserDriver,
        /// Drivers that work.
        instead: String,
    },
    /// No driver is usable on this machine.
    #[error("{device}: no driver can be used: {}", reasons.join("; or "))]
    NoDriver {
        /// The device.
        device: BusAddress,
        /// For each driver, the reason why it is not usable, with the remedy.
        reasons: Vec<String>,
    },
    /// Another device of the IOMMU group is in use. VFIO gives processes whole groups only.
    #[error(
        "{device}: IOMMU group {group} also has {other}, which {used_by}: vfio hands out whole \
         groups; bind both (`weir nic bind {device} {other}`), or unbind {other} from its driver"
    )]
    GroupInUse {
        /// The device.
        device: BusAddress,
        /// Number of the group.
        group: u32,
        /// The other device.
        other: PciAddress,
        /// What uses the other device.
        used_by: String,
    },
    /// A process has the device open.
    #[error("{device}: {user} has {} open; stop it first", user.file.display())]
    InUse {
        /// The device.
        device: BusAddress,
        /// The process.
        user: DeviceUser,
    },
    /// The kernel rejected a write.
    #[error("cannot write {text:?} to {}: {source}{}", path.display(), remedy(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// The text that was to be written.
        text: String,
        /// The error from the system.
        source: io::Error,
    },
    /// The kernel did not bind the device.
    #[error(
        "{device}: expected {expected}, found {found}: the driver rejected the device; see dmesg{}",
        if *restored { ". Its former driver is bound again" } else { "" }
    )]
    NotBound {
        /// The device.
        device: BusAddress,
        /// The driver that should be bound.
        expected: String,
        /// The driver that is bound.
        found: String,
        /// Whether the device was returned to its former driver.
        restored: bool,
    },
    /// No driver of the kernel accepted the device.
    #[error("{device}: no driver of the kernel is bound now; load it: modprobe {module}")]
    NoKernelDriver {
        /// The device.
        device: BusAddress,
        /// The module that should have bound it.
        module: String,
    },
    /// The record of a binding cannot be read or written.
    #[error("cannot {verb} {}: {source}; {remedy}", path.display())]
    Record {
        /// What was attempted, as a verb.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run the command as root",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; /sys is read-only here: run the command on the host"
        }
        io::ErrorKind::NotFound => "; is the device still there? `weir nic list` shows it",
        _ => "",
    }
}
