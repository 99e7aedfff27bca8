//! The machine that Weir runs on: its NICs, the table of DPDK's NIC drivers, binding NICs, the
//! checks of `weir doctor`, and tuning.
//!
//! Files are read and written below a [`Root`], so that a directory can replace a machine in tests.
//! Three things have no file below a root: addresses and routes, which come from rtnetlink
//! ([`nic::Network`]), the output of programs ([`commands`]), and the usage of this process
//! ([`process`]).

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
