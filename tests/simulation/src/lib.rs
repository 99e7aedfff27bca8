//! Shared parts of the tests of cloud lifecycles: random histories by seed, unreliable calls,
//! traffic, the clock of an emulator, and an appliance that runs there.
#![forbid(unsafe_code)]

#[cfg(feature = "azure")]
pub mod azure_fixture;
mod calls;
mod clock;
mod file;
mod history;
mod recorder;
mod running;
mod traffic;

pub use calls::{Calls, Ended, Reliability};
pub use clock::{AdvanceClock, EmulatedClock, SkippingClock};
pub use file::File;
pub use history::{Scenario, run_histories, run_history};
pub use recorder::{Probes, Recorder};
pub use running::Running;
pub use traffic::Traffic;
