//! Debian with systemd as its first process, for tests of Weir's package: in a container, and in a
//! virtual machine with PCI NICs ([`machine`]).
//!
//! ```text
//!   clients - gateway === in0  container: Debian, systemd, Weir  eg0 === web servers
//! ```
//!
//! Container and virtual machine use the network namespace of the appliance in `tests/lab`. The
//! Debian root file systems are made with mmdebstrap, once, and copied for each test.

#![forbid(unsafe_code)]

pub mod appliance;
pub mod artifacts;
pub mod disk;
pub mod examination;
pub mod machine;
pub mod page;
pub mod scan;
pub mod traffic;
pub mod tree;

pub use container::{Container, Result};
