//! Binding NICs to the drivers that DPDK needs, and returning them to the kernel.
//!
//! A binding works like `driverctl`'s: `driver_override` names the driver, and a write to
//! `drivers_probe` makes the bus probe the device again. The override lasts until it is cleared or
//! the machine is rebooted; for the next boot, [`SavedBindings`] holds devices and drivers in a
//! file.
//!
//! A device is never taken from the kernel while an ssh session or the default route depends on it,
//! or while its interface is in another network namespace, unless forced. Its previous driver and
//! override are recorded, so that [`plan_unbind`] restores them.

mod apply;
mod candidate;
mod error;
mod plan;
mod record;
mod saved;
mod users;

pub use apply::{Sysfs, SystemFiles, apply};
pub use candidate::{Candidate, Candidates, candidates};
pub use error::BindError;
pub use plan::{Action, BindOptions, Plan, Write, plan_bind, plan_unbind};
pub use record::{Record, Records};
pub use saved::{SavedBinding, SavedBindings, SavedError};
pub use users::DeviceUser;

#[cfg(test)]
mod tests;
