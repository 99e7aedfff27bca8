//! Simulations for the tests of the clouds' lifecycles: histories that follow from a seed, what a
//! cloud does to calls on a bad day, traffic, and the time of an emulator.
#![forbid(unsafe_code)]

mod calls;
mod file;
mod history;
mod running;
mod time;
mod traffic;

pub use calls::{Calls, Ended, Weather};
pub use file::File;
pub use history::{World, live, play};
pub use running::Running;
pub use time::{Emulator, Moved, Time};
pub use traffic::Traffic;
