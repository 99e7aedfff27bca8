//! Shared parts of the tests of cloud lifecycles: random histories by seed, unreliable calls,
//! traffic, the clock of an emulator, and an appliance whose lifecycle runs against it.
#![forbid(unsafe_code)]

#[cfg(feature = "azure")]
pub mod azure_fixture;
mod calls;
mod clock;
mod history;
mod lifecycle_task;
mod recorder;
mod temporary_file;
mod traffic;

pub use calls::{AnsweredCall, Calls, Reliability};
pub use clock::{AdvanceClock, EmulatedClock, SkippingClock};
pub use history::{Scenario, run_histories, run_history};
pub use lifecycle_task::LifecycleTask;
pub use recorder::{Probes, Recorder};
pub use temporary_file::TemporaryFile;
pub use traffic::Traffic;
