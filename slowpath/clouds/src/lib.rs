//! Code shared by all cloud integrations: the appliance interface, the lifecycle runner, status
//! reports, errors and retries. Each cloud has its own crate.
#![forbid(unsafe_code)]

pub mod appliance;
pub mod calls;
pub mod check;
pub mod failure;
pub mod lifecycle;
pub mod report;
pub mod requests;
pub mod retry;
pub mod runner;
pub mod state_file;
