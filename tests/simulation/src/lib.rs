//! Shared parts of the tests of cloud lifecycles: random histories by seed, unreliable calls,
//! traffic, the clock of an emulator, and an appliance that runs there.
#![forbid(unsafe_code)]

#[cfg(feature = "azure")]
pub mod azure_side;
mod calls;
mod file;
mod history;
mod recorder;
mod running;
mod time;
mod traffic;

pub use calls::{Calls, Ended, Weather};
pub use file::File;
pub use history::{World, live, play};
pub use recorder::{Probes, Recorder};
pub use running::Running;
pub use time::{Emulator, Moved, Time};
pub use traffic::Traffic;
