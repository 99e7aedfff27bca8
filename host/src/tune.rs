//! Settings of the machine that make it faster for Weir: the kernel's command line, interrupts, CPU
//! frequency, memory and sysctls.
//!
//! [`plan`] lists them with a reason each. [`apply`] writes Weir's own drop-in files and the values
//! that can change at run time, and records what these values were, so that [`revert`] restores
//! them. Nothing else of the machine's configuration is edited.

mod apply;
mod drop_in;
mod interrupts;
mod kernel;
mod plan;
mod record;
mod setting;
mod situation;
mod system;
mod value;

pub use apply::{Outcome, TuneError, apply, revert};
pub use drop_in::DropIn;
pub use kernel::{BootPages, boot_pages};
pub use plan::{Plan, plan};
pub use record::RecordError;
pub use setting::Setting;

#[cfg(test)]
mod tests;
