//! What the tests of the clouds' drivers share: histories that follow from a seed, what a cloud
//! does to calls on a bad day, traffic, the time of an emulator, and an appliance that runs there.
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
