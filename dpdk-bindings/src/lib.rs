//! The little of DPDK that Weir's fastpath calls, safe to call.
//!
//! ```text
//!   Eal ──> Mempool ──alloc──> Mbuf ──> Burst<N>
//!    │                                   ^   │
//!    └────> Port ──start──> RxQueue ─────┘   └──> TxQueue
//!    └────> lcore::launch, lcore::register_thread
//! ```
//!
//! What a packet costs is Rust here, on the mbuf's fields and through `rte_eth_fp_ops`, so that it
//! is inlined into the poll loop; what happens once a burst or less goes through a few C functions
//! (`shim.c`). Two habits keep the surface safe. A [`Mbuf`] is owned: whoever drops it frees it,
//! and nobody can have it twice. And everything that needs the EAL holds a share of it, so that it
//! is cleaned up after the last of them, never under their feet.
//!
//! DPDK is linked statically; `build.rs` names the drivers that go in.

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
pub use port::{Port, PortError, PortOptions};
pub use queue::{RxQueue, TxQueue};
