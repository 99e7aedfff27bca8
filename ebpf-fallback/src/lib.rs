//! The journey as XDP programs in the kernel: what `xdp/` became, ready to be loaded.
//!
//! The programs are built by `build.rs` and lie in this crate as bytes, so that whoever loads them
//! needs no file beside himself. README.md says what they are and what the kernel's verifier asks.

pub mod loader;
#[path = "../xdp/src/ports.rs"]
pub mod ports;
pub mod program;

/// The journey: its stages (see [`program`]).
pub const JOURNEY: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/journey"));
