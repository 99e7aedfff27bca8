//! Emulators of AWS and, in `azure`, of Azure: servers for tests, the lab and manual trials. The
//! emulators share no code with Weir's clients: they verify credentials themselves and write each
//! service's responses in the service's own format. Their clocks advance on request, and faults can
//! be injected.

#![forbid(unsafe_code)]

pub mod answer;
mod autoscaling;
pub mod azure;
mod ec2;
mod elbv2;
pub mod faults;
pub mod fixtures;
mod imds;
mod json;
mod server;
pub mod signature;
pub mod state;
pub mod target;

pub use server::{Call, Emulator};
