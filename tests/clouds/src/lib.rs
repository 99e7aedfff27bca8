//! The clouds' other side: AWS as a server that tests, the lab and a person can start. It shares no
//! code with what asks it: it verifies signatures itself and writes each service's answers in the
//! service's own format. Its clock moves when it is told to, and it misbehaves on demand.

pub mod answer;
mod autoscaling;
mod ec2;
mod elbv2;
pub mod faults;
mod imds;
mod json;
mod server;
pub mod signature;
pub mod target;
pub mod world;

pub use server::{Call, Standin};
