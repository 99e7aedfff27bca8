//! The columns of the driver table.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A version of DPDK (year and month) or of Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u16, pub u16);

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A major number of 16 or more is a year of DPDK, which writes months with two digits.
        // Linux has smaller ones.
        match self.0 >= 16 {
            true => write!(f, "{}.{:02}", self.0, self.1),
            false => write!(f, "{}.{}", self.0, self.1),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A fact that differs between versions of DPDK: each value with the first version that has it, in
/// ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since<T: 'static>(pub &'static [(Version, T)]);

impl<T> Since<T> {
    /// Returns the value in this version of DPDK; `None` for a version before the first one.
    pub fn at(&self, dpdk: Version) -> Option<&'static T> {
        self.0.iter().rev().find(|(since, _)| *since <= dpdk).map(|(_, value)| value)
    }
}

/// Vendor and device id of a PCI device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PciId {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
}

impl Display for PciId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl Serialize for PciId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number that a driver limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The driver's own limit, equal for all its devices.
    Fixed(u32),
    /// The driver returns its device's limit.
    Device,
    /// Not verified.
    Unknown,
}

/// Whether a driver has a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Every device of the driver has it.
    Yes,
    /// No device of the driver has it.
    No,
    /// It depends on the device, its firmware or its host.
    Device,
    /// Not verified.
    Unknown,
}

/// A driver of the kernel that hands a device to a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UserDriver {
    /// VFIO: DMA is confined by the IOMMU, except in no-IOMMU mode.
    VfioPci,
    /// DPDK's own module, outside of the kernel's tree (Debian: `dpdk-kmods-dkms`).
    IgbUio,
    /// UIO of the kernel's tree: no MSI-X, thus at most one legacy interrupt.
    UioPciGeneric,
    /// UIO for VMBUS devices.
    UioHvGeneric,
}

impl UserDriver {
    /// All drivers that hand devices to processes.
    pub const ALL: [UserDriver; 4] = [
        UserDriver::VfioPci,
        UserDriver::IgbUio,
        UserDriver::UioPciGeneric,
        UserDriver::UioHvGeneric,
    ];

    /// Returns the driver's name in sysfs, which is also the name of its module.
    pub const fn as_str(self) -> &'static str {
        match self {
            UserDriver::VfioPci => "vfio-pci",
            UserDriver::IgbUio => "igb_uio",
            UserDriver::UioPciGeneric => "uio_pci_generic",
            UserDriver::UioHvGeneric => "uio_hv_generic",
        }
    }
}

impl Display for UserDriver {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for UserDriver {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A name that is not the name of a [`UserDriver`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no driver {0:?} hands NICs to DPDK; use vfio-pci, igb_uio, uio_pci_generic or uio_hv_generic"
)]
pub struct UnknownUserDriver(String);

impl FromStr for UserDriver {
    type Err = UnknownUserDriver;

    fn from_str(text: &str) -> Result<UserDriver, UnknownUserDriver> {
        let found = UserDriver::ALL.into_iter().find(|driver| driver.as_str() == text);
        found.ok_or_else(|| UnknownUserDriver(text.to_owned()))
    }
}

/// A [`UserDriver`] with which a driver of DPDK works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Support {
    /// The kernel's driver.
    pub driver: UserDriver,
    /// The first version of DPDK that works with it, not before 22.11, the oldest that Weir
    /// supports.
    pub since: Version,
    /// What else this combination demands, as an imperative sentence; empty if nothing.
    pub demand: &'static str,
}

/// How a device is given to a driver of DPDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// The device stays with its kernel driver, and DPDK drives its queues beside it. These kernel
    /// modules must be loaded.
    Bifurcated(&'static [&'static str]),
    /// The device is unbound from its kernel driver and bound to one of these, best first.
    UserDriver(&'static [Support]),
    /// DPDK opens an interface of the kernel, or creates one.
    Interface,
    /// There is no device.
    Virtual,
}

/// How a device is recognized as one of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recognition {
    /// PCI ids of DPDK's driver.
    pub pci: &'static [PciId],
    /// PCI ids of the same hardware that the kernel's driver accepts and DPDK's does not.
    pub kernel_only: &'static [PciId],
    /// Names of the drivers in the kernel.
    pub kernel_drivers: &'static [&'static str],
    /// Whether VMBUS network devices are this driver's.
    pub vmbus: bool,
}

/// Limits on the number of queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queues {
    /// Largest number of receive queues.
    pub rx: Limit,
    /// Largest number of transmit queues.
    pub tx: Limit,
    /// Whether there must be as many receive queues as transmit queues.
    pub equal: Answer,
    /// Whether the number of receive queues must be a power of two.
    pub power_of_two: Answer,
}

/// Limits of the descriptors of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// Minimum number of descriptors.
    pub min: Limit,
    /// Maximum number of descriptors.
    pub max: Limit,
    /// The number must be a multiple of this.
    pub align: u16,
    /// Whether the number must be a power of two.
    pub power_of_two: Answer,
}

/// Receive side scaling: what spreads packets over queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rss {
    /// Number of entries of the redirection table (RETA), which maps hashes to receive queues.
    pub reta: Since<Limit>,
    /// Whether the ports of UDP over IPv4 are hashed. The source port is all that spreads the
    /// packets of one gateway node.
    pub udp_ports_v4: Answer,
    /// Whether the ports of UDP over IPv6 are hashed.
    pub udp_ports_v6: Answer,
    /// Whether the addresses of other IP packets, such as IPIP and fragments, are hashed; if not,
    /// these packets arrive on queue 0.
    pub other_ip: Answer,
    /// Whether fields of the packet inside of a tunnel can be hashed.
    pub inner: Answer,
}

/// Whether a packet may be received in several buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RxScatter {
    /// It is, whenever it does not fit in one buffer.
    Always,
    /// It is, if `RTE_ETH_RX_OFFLOAD_SCATTER` is requested.
    Offload,
    /// It is not: a packet that does not fit is dropped.
    Never,
    /// It depends on the device, or on the devices that `net_failsafe` combines.
    Device,
}

/// Whether `RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE` may be requested. It always demands that a queue's
/// buffers are of one pool and have a reference count of 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastFree {
    /// It may be requested.
    Offered,
    /// It may be requested, and has no effect if multi-segment transmission is requested too.
    SingleSegment,
    /// The driver does not offer it: a request is an error.
    NotOffered,
    /// It depends on the devices that `net_failsafe` combines.
    Device,
}

/// Events that the driver raises (`rte_eth_dev_callback_register`), and its use of timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Events {
    /// Whether a change of the link raises `RTE_ETH_EVENT_INTR_LSC`.
    pub link: Answer,
    /// Whether removal of the device raises `RTE_ETH_EVENT_INTR_RMV`.
    pub removal: Answer,
    /// Whether the driver requests `rte_eth_dev_reset` by `RTE_ETH_EVENT_INTR_RESET`.
    pub reset: Answer,
    /// Whether `rte_timer_manage` must be called, about once a second.
    pub timer: bool,
}

/// A device argument with which longer packet headers are written to the device directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeHeaders {
    /// Name and value: `large_llq_hdr=1`.
    pub argument: &'static str,
    /// Maximum length of the headers in bytes without the argument.
    pub normal_bytes: u16,
    /// Maximum length of the headers in bytes with the argument.
    pub large_bytes: u16,
}

/// A counter of `rte_eth_stats_get`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// `ipackets`
    Received,
    /// `imissed`
    Missed,
    /// `ierrors`
    Errors,
    /// `rx_nombuf`
    NoBuffer,
}

impl Counter {
    /// Returns DPDK's name of the counter.
    pub const fn name(self) -> &'static str {
        match self {
            Counter::Received => "ipackets",
            Counter::Missed => "imissed",
            Counter::Errors => "ierrors",
            Counter::NoBuffer => "rx_nombuf",
        }
    }
}

/// What `imissed` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missed {
    /// Frames that the device dropped because no descriptor was free.
    Hardware,
    /// Frames that the driver dropped.
    Driver,
    /// Frames that the kernel dropped before they reached the socket.
    Kernel,
    /// Nothing: such drops are invisible.
    NotCounted,
    /// It depends on the devices that `net_failsafe` combines.
    Device,
    /// Not verified.
    Unknown,
}

/// What `rx_nombuf` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoBuffer {
    /// Failed attempts to replace buffers. No frame is lost by this: it is received by a later
    /// attempt, or the ring runs empty, which `imissed` counts where the device can.
    Delayed,
    /// Frames that were lost for lack of a buffer.
    Lost,
    /// The driver does not count failed allocations.
    NotCounted,
    /// It depends on the devices that `net_failsafe` combines.
    Device,
}

/// How the driver's counters relate to the frames that arrived at the NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    /// The counters whose sum is the number of frames that arrived. A counter that is not listed
    /// counts frames that another one includes, or no frames.
    pub frames: &'static [Counter],
    /// Whether this sum includes every frame that the NIC lost.
    pub complete: Answer,
    /// What `imissed` counts.
    pub missed: Missed,
    /// What `rx_nombuf` counts.
    pub no_buffer: NoBuffer,
}

/// A driver of DPDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// DPDK's name of the driver, as in `rte_eth_dev_info.driver_name`.
    pub name: &'static str,
    /// The hardware, or what the driver does.
    pub title: &'static str,
    /// How its devices are recognized.
    pub recognition: Recognition,
    /// How its devices are given to DPDK.
    pub attachment: Attachment,
    /// The first usable version of DPDK, not before 22.11, the oldest that Weir supports.
    pub min_dpdk: Version,
    /// The first usable version of Linux, if the driver demands more than DPDK does.
    pub min_kernel: Option<Version>,
    /// Limits on the number of queues.
    pub queues: Queues,
    /// Limits of receive descriptors.
    pub rx_descriptors: Descriptors,
    /// Limits of transmit descriptors.
    pub tx_descriptors: Descriptors,
    /// Receive side scaling.
    pub rss: Rss,
    /// Largest MTU.
    pub max_mtu: Since<Limit>,
    /// Whether a packet may be received in several buffers.
    pub rx_scatter: RxScatter,
    /// Whether a packet in several buffers may be sent.
    pub tx_multi_segment: Answer,
    /// Whether `rte_eth_tx_prepare` must be called for packets with checksum offload flags.
    pub tx_prepare: Answer,
    /// Whether buffers may be freed without checks.
    pub fast_free: FastFree,
    /// Events that the driver raises, and whether it uses timers.
    pub events: Events,
    /// The device argument for long headers.
    pub large_headers: Since<LargeHeaders>,
    /// How the counters add up to the frames that arrived.
    pub counters: Counters,
    /// Where the facts were read.
    pub sources: &'static [&'static str],
}

impl Driver {
    /// Returns the name of the library that has the driver (`net_mlx5` of `librte_net_mlx5`), as
    /// listed by `fastpath --drivers`. A library may register several drivers, by names of their
    /// own.
    pub fn library(&self) -> &'static str {
        match self.name {
            "mlx5_pci" => "net_mlx5",
            "net_e1000_em" | "net_e1000_igb" => "net_e1000",
            "net_ixgbe_vf" => "net_ixgbe",
            "net_virtio_user" => "net_virtio",
            name => name,
        }
    }

    /// Returns whether DPDK's driver accepts a device with this id. The kernel's driver may accept
    /// more ids.
    pub fn accepts(&self, id: PciId) -> bool {
        self.recognition.pci.contains(&id)
    }
}
