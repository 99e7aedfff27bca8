//! The `[fastpath]` section, validated: lcores and packet buffers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Attach;

/// The `[fastpath]` section.
#[derive(Clone, PartialEq, Debug)]
pub struct Fastpath {
    /// The 1 to 64 CPUs that poll, in ascending order; `main_core` is among them only if idle
    /// lcores sleep or yield.
    pub lcores: Vec<u16>,
    /// CPU of DPDK's main lcore and of the control thread.
    pub main_core: u16,
    /// Use hugepages; `false` runs EAL with `--no-huge`.
    pub hugepages: bool,
    /// Size of the hugepages of EAL's memory and of the region.
    pub hugepage_size: PageSize,
    /// Memory that EAL reserves at start (`-m`), in MiB; validated to hold the buffers.
    pub memory_mib: u32,
    /// Number of packet buffers in the pool.
    pub buffers: u32,
    /// Size of one buffer in bytes, headroom included; at most 65,535.
    pub buffer_bytes: u16,
    /// What an lcore does after an empty poll.
    pub idle: Idle,
    /// Maximum packets per poll, 1 to [`MAX_BURST`].
    pub burst: u16,
    /// Additional EAL arguments, as configured.
    pub eal: Vec<String>,
    /// Where XDP programs are attached.
    pub attach: Attach,
}

/// Capacity of a burst in packets, the maximum of `burst`.
pub const MAX_BURST: u16 = 64;

/// Default of [`Fastpath::buffers`].
pub const DEFAULT_BUFFERS: u32 = 16_384;

/// Default of [`Fastpath::buffer_bytes`].
pub const DEFAULT_BUFFER_BYTES: u16 = 10_240;

/// Default of [`Fastpath::burst`].
pub const DEFAULT_BURST: u16 = 32;

/// Bytes that a buffer takes in addition to its data: the mempool's header (64), the mbuf (128),
/// and the padding with which DPDK spreads buffers over memory channels.
pub const BUFFER_OVERHEAD: u64 = 256;

/// Returns the size of a buffer that holds one frame of an MTU: DPDK's headroom (128 bytes), an
/// Ethernet header with a VLAN tag and the frame check sequence (22 bytes).
pub const fn frame_buffer_bytes(mtu: u16) -> u32 {
    mtu as u32 + 128 + 22
}

/// Maximum number of buffers that the pool's per-lcore cache may hold back.
pub const CACHED_BUFFERS: u64 = 512;

/// Bytes of one descriptor and the driver's state for it, rounded up generously.
pub const DESCRIPTOR_BYTES: u64 = 128;

/// Memory in MiB that EAL and the drivers need for themselves.
pub const EAL_OWN_MIB: u64 = 24;

impl Fastpath {
    /// Returns the size of the buffer pool in bytes.
    pub fn pool_bytes(&self) -> u64 {
        u64::from(self.buffers) * (u64::from(self.buffer_bytes) + BUFFER_OVERHEAD)
    }
}

/// Size of hugepages, of those that x86 and ARM have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
pub enum PageSize {
    /// 2 MiB.
    #[serde(rename = "2M")]
    TwoMib,
    /// 1 GiB.
    #[serde(rename = "1G")]
    OneGib,
}

impl PageSize {
    /// Both sizes.
    pub const ALL: [PageSize; 2] = [PageSize::TwoMib, PageSize::OneGib];

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            PageSize::TwoMib => 2 << 20,
            PageSize::OneGib => 1 << 30,
        }
    }

    /// Returns the size as options of mounts, parameters of the kernel and the configuration name
    /// it.
    pub const fn option(self) -> &'static str {
        match self {
            PageSize::TwoMib => "2M",
            PageSize::OneGib => "1G",
        }
    }

    /// Returns the directory on which Weir's region expects a hugetlbfs with pages of this size.
    /// That of 2 MiB is where systemd mounts one with pages of the default size.
    pub const fn mount_point(self) -> &'static str {
        match self {
            PageSize::TwoMib => "/dev/hugepages",
            PageSize::OneGib => "/dev/hugepages-1G",
        }
    }
}

/// Formats the size for messages: `2 MiB`.
impl std::fmt::Display for PageSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PageSize::TwoMib => "2 MiB",
            PageSize::OneGib => "1 GiB",
        })
    }
}

/// What an lcore does after an empty poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Polls again.
    Spin,
    /// Yields the CPU (`sched_yield`), then polls again. The thread stays runnable, so that the
    /// kernel's workers get little time on its CPU.
    Yield,
    /// Sleeps for about 50 µs after 64 consecutive empty polls; for machines with shared CPUs, such
    /// as the lab.
    Sleep,
}
