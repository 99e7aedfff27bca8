//! `[fastpath]`: the process that moves packets, its lcores and its buffers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Attach;

/// `[fastpath]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Fastpath {
    /// CPUs that poll, ascending, at least one, at most 64; `main_core` among them only if idle
    /// lcores sleep or yield.
    pub lcores: Vec<u16>,
    /// CPU of DPDK's main lcore and of the control thread.
    pub main_core: u16,
    /// False: EAL runs with `--no-huge`.
    pub hugepages: bool,
    /// Memory that EAL takes at start (`-m`), MiB; enough for the buffers (checked).
    pub memory_mib: u32,
    /// Packet buffers in the pool.
    pub buffers: u32,
    /// Bytes of one buffer's room, headroom included; at most 65,535.
    pub buffer_bytes: u16,
    /// What an lcore does when a poll found nothing.
    pub idle: Idle,
    /// Packets per poll, 1..=[`MAX_BURST`].
    pub burst: u16,
    /// Further EAL arguments, as typed.
    pub eal: Vec<String>,
    /// Where XDP programs run.
    pub attach: Attach,
}

/// Packets that a burst has room for: the most that a poll may ask for.
pub const MAX_BURST: u16 = 64;

/// Bytes that a buffer takes beside its room: the mempool's header (64), the mbuf (128), and what
/// DPDK adds to spread the buffers over the memory channels.
pub const BUFFER_OVERHEAD: u64 = 256;

/// Buffers that a pool's cache of one lcore may hold back.
pub const CACHED_BUFFERS: u64 = 512;

/// Bytes of one descriptor with the driver's note about it, generously.
pub const DESCRIPTOR_BYTES: u64 = 128;

/// MiB that EAL and the drivers take for themselves.
pub const EAL_OWN_MIB: u64 = 24;

impl Fastpath {
    /// Bytes of the buffer pool.
    pub fn pool_bytes(&self) -> u64 {
        u64::from(self.buffers) * (u64::from(self.buffer_bytes) + BUFFER_OVERHEAD)
    }
}

/// What an lcore does when a poll found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Polls again.
    Spin,
    /// Gives the CPU away first (`sched_yield`). The thread stays runnable, so that the kernel's
    /// workers get little of a CPU on which it polls.
    Yield,
    /// Sleeps for some 50 µs after 64 polls in a row that found nothing: for machines that share
    /// their CPUs, the lab.
    Sleep,
}
