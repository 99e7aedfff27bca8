//! The machine that Weir runs on: its NICs, what is known of their drivers, and binding NICs to the
//! drivers that DPDK needs.
//!
//! Everything is read and written below a [`Root`], so that a directory can stand for a machine,
//! except what the process reads of itself (`process.rs`).

#![forbid(unsafe_code)]

pub mod arm_device;
pub mod automatic;
pub mod bind;
pub mod commands;
pub mod cpu_set;
pub mod doctor;
pub mod driver;
mod file;
mod lcore_cpus;
pub mod machine;
pub mod nic;
pub mod plane;
pub mod process;
mod root;
pub mod service_manager;
pub mod setup;
#[cfg(test)]
mod tree;
pub mod tune;
pub mod xdp;

pub use config::device_address as address;
pub use root::Root;
