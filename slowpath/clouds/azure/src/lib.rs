//! Azure integration: machine identity, gateway load balancer pools, and the lifecycle of the
//! membership.
#![forbid(unsafe_code)]

pub mod advice;
pub mod arm;
pub mod balancer;
pub mod client;
pub mod credentials;
pub mod doctor;
pub mod environment;
pub mod failure;
pub mod imds;
pub mod location;
pub mod long_running;
pub mod membership;
pub mod operations;
pub mod pool_entries;
pub mod requests;
pub mod runner;
mod transport;
pub mod types;

pub use config::private_link::id;
