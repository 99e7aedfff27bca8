//! Azure: the machine, its pool at a gateway load balancer, and the way in and out of it.
#![forbid(unsafe_code)]

pub mod arm;
pub mod client;
pub mod credentials;
pub mod failure;
pub mod id;
pub mod imds;
pub mod life;
pub mod long;
pub mod names;
pub mod sovereign;
pub mod told;
mod wire;
