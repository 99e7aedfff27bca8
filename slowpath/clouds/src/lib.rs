//! What all clouds share: the appliance as they see it, the runner of their lifecycles, reports,
//! failures, and retries. Each cloud has a crate of its own.
#![forbid(unsafe_code)]

pub mod appliance;
pub mod asking;
pub mod check;
pub mod failure;
pub mod kept;
pub mod lifecycle;
pub mod report;
pub mod requests;
pub mod retry;
pub mod runner;
