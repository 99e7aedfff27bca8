//! The raw layer: bindings that bindgen generates from the installed DPDK's headers and the C shim.
//!
//! The other modules are the safe interface to it.
#![expect(
    missing_docs,
    non_camel_case_types,
    unsafe_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "written by bindgen from DPDK's C headers"
)]

include!(concat!(env!("OUT_DIR"), "/dpdk.rs"));
