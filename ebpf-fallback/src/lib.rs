//! The XDP data plane: the BPF object built from `xdp/`, and its loader.
//!
//! `build.rs` builds the programs, and this crate embeds them, so that the loader needs no further
//! files. README.md describes the programs and the requirements of the kernel's verifier.

pub mod loader;
pub mod losses;
pub mod program;
#[path = "../xdp/src/runtime_config.rs"]
pub mod runtime_config;
#[path = "../xdp/src/watched.rs"]
pub mod watched;

/// The object with all stages (see [`program`]).
pub const PIPELINE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pipeline"));

/// The object with the tracepoint programs (see [`losses`]).
pub const LOSSES: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/losses"));
