//! Azure integration: machine identity, gateway load balancer pools, and the lifecycle of the
//! membership.
#![forbid(unsafe_code)]

pub mod advice;
pub mod arm;
pub mod asks;
pub mod balancer;
pub mod client;
pub mod credentials;
pub mod doctor;
pub mod failure;
pub mod imds;
pub mod life;
pub mod long;
pub mod member;
pub mod names;
pub mod place;
pub mod runner;
pub mod sovereign;
pub mod told;
mod wire;

pub use config::private_link::id;
