//! Safe bindings to the part of DPDK that Weir's fast path uses.
//!
//! ```text
//!   Eal ──> Mempool ──alloc──> Mbuf ──> Burst<N>
//!    │                                   ^   │
//!    └────> Port ──start──> RxQueue ─────┘   └──> TxQueue
//!    └────> lcore::launch, lcore::register_thread
//! ```
//!
//! Operations on every packet are written in Rust, on the mbuf's fields and through
//! `rte_eth_fp_ops`, so that they are inlined into the poll loop. The others, such as allocating,
//! freeing and linearizing, call DPDK's C functions; those that are inline in its headers are
//! exported by `shim.c`. Two rules make the interface safe:
//!
//! - A [`Mbuf`] has one owner; dropping it frees it.
//! - Everything that needs the EAL except a [`Mbuf`] holds a reference to it, and the last
//!   reference cleans it up only if no mbuf is in use.
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
