//! The raw layer: what bindgen makes of the installed DPDK's headers and of our C shim.
//!
//! Nobody outside of this crate should need it; the safe surface is beside it.
#![expect(
    missing_docs,
    non_camel_case_types,
    unsafe_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "written by bindgen from DPDK's C headers"
)]

include!(concat!(env!("OUT_DIR"), "/dpdk.rs"));
