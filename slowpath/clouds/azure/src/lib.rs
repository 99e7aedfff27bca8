//! Azure: the machine, its pool at a gateway load balancer, and the way in and out of it.
#![forbid(unsafe_code)]

pub mod arm;
pub mod id;
pub mod life;
pub mod told;
