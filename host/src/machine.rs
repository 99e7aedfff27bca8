//! The machine below a [`Root`](crate::Root): CPUs, kernel, interrupts, platform, processes,
//! systemd units.

mod command_line;
mod cpus;
mod interrupts;
mod kernel;
mod platform;
mod processes;
mod units;

pub use command_line::CommandLine;
pub use cpus::Cpus;
pub use interrupts::{Interrupt, interrupts};
pub use kernel::{kernel_version, module_available, module_loaded};
pub use platform::{Platform, has_iommu_hardware, iommu_enabled};
pub use processes::{Process, processes, socket_owner};
pub use units::{Unit, is_enabled, units};

#[cfg(test)]
mod tests;
