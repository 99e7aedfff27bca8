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

/// Programs that do least: `pass` leaves packets to the kernel, `nothing` drops, `parse` says in
/// the map `FOUND` what the packet is.
pub const FLOOR: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/floor"));

/// The tables' own code, one program for each question, driven by the map `ASKED`; tests hold it to
/// the same code on the host.
pub const TABLES: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tables"));

/// A journey's packets, to measure it: program `feed` writes them as the map `FEED` says and goes
/// on to the program in `NEXT`.
pub const BENCH: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench"));
