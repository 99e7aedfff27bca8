//! Safe bindings to the part of DPDK that Weir's fast path uses.
//!
//! ```text
//!   Eal ──> Mempool ──alloc──> Mbuf ──> Burst<N>
//!    │                                   ^   │
//!    └────> Port ──start──> RxQueue ─────┘   └──> TxQueue
//!    └────> lcore::launch, lcore::register_thread
//! ```
//!
//! Per-packet operations are written in Rust, on the mbuf's fields and through `rte_eth_fp_ops`, so
//! that they are inlined into the poll loop. Operations that occur at most once per burst call a
//! few C functions (`shim.c`). Two rules make the interface safe:
//!
//! - A [`Mbuf`] has one owner; dropping it frees it.
//! - Everything that needs the EAL holds a reference to it, so that it is cleaned up after the last
//!   of them.
//!
//! DPDK is linked statically; `build.rs` lists the drivers that are included.

pub mod burst;
pub mod clock;
pub mod dpdk_sys;
pub mod eal;
pub mod lcore;
pub mod mbuf;
pub mod mempool;
pub mod port;
pub mod queue;

pub use burst::Burst;
pub use eal::{Eal, EalError, Errno};
pub use mbuf::Mbuf;
pub use mempool::{Mempool, MempoolError};
pub use port::hotplug::{check_device_syntax, linked_drivers};
pub use port::{Link, Port, PortCounters, PortError, PortEvents, PortOptions};
pub use queue::{RxQueue, TxQueue};
