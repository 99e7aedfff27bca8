//! A virtual machine with PCI NICs behind an emulated IOMMU, for tests in which fastpath owns NICs.
//!
//! ```text
//!   namespace gateway             appliance                     namespace backend
//!   clients - weir-gateway - gw0 === ingress: fastpath: egress === be0 - HTTP server
//!                                    management: mgmt0, a NIC of the kernel
//! ```
//!
//! Both wires are hubs inside the emulator, and all ends belong to the same machine: nothing leaves
//! it. `gw0`, `be0` and `mgmt0` are virtio-net devices of the kernel; fastpath's NICs are of the
//! kind under test, each below a PCI Express port of its own, from which it can be unplugged.
//!
//! qemu emulates the processor (TCG), so that the tests run on machines without KVM. They check
//! behavior and not speed.

#![forbid(unsafe_code)]

pub mod appliance;
pub mod emulator;
pub mod guest;
pub mod machine;
pub mod qmp;
pub mod traffic;

/// The result of a step; the error names the failed step and its cause.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
