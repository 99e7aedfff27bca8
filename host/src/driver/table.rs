//! The driver table and its lookups.

use super::facts::{Driver, PciId};
use super::{cloud, intel, software};

/// All drivers, one row each.
pub static DRIVERS: [Driver; 25] = [
    cloud::ENA,
    cloud::MANA,
    cloud::MLX5,
    cloud::NETVSC,
    cloud::VIRTIO,
    cloud::VMXNET3,
    cloud::GVE,
    intel::IXGBE,
    intel::IXGBE_VF,
    intel::I40E,
    intel::IAVF,
    intel::ICE,
    intel::E1000_EM,
    intel::E1000_IGB,
    software::AF_PACKET,
    software::AF_XDP,
    software::TAP,
    software::NULL,
    software::RING,
    software::MEMIF,
    software::PCAP,
    software::VIRTIO_USER,
    software::VHOST,
    software::FAILSAFE,
    software::VDEV_NETVSC,
];

/// Returns the driver with this name in DPDK. The name of a virtual device, which is the driver's
/// with a number, is accepted as well: `net_af_packet0`.
pub fn by_name(name: &str) -> Option<&'static Driver> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    DRIVERS.iter().find(|driver| driver.name == name || driver.name == stem)
}

/// Returns the driver of this PCI device, even if only its driver in the kernel accepts the device
/// ([`Driver::accepts`]).
pub fn by_pci_id(id: PciId) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| {
        driver.recognition.pci.contains(&id) || driver.recognition.kernel_only.contains(&id)
    })
}

/// Returns the driver for devices of this driver of the kernel.
pub fn by_kernel_driver(name: &str) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.recognition.kernel_drivers.contains(&name))
}

/// Returns the driver of VMBUS network devices.
pub fn netvsc() -> &'static Driver {
    by_kernel_driver("hv_netvsc").unwrap_or(&cloud::NETVSC)
}
