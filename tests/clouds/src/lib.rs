//! The clouds' other side: AWS, and in `azure` Azure, as servers that tests, the lab and a person
//! can start. They share no code with what asks them: they verify who asks themselves and write
//! each service's answers in the service's own format. Their clocks move when they are told to, and
//! they misbehave on demand.

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
pub mod target;
pub mod world;

pub use server::{Call, Standin};
