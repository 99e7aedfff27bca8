//! The codec: octet for octet, error for error, by other readers, and by whatever comes.

mod errors;
mod fuzz;
pub(crate) mod golden;
mod measured;
mod readers;

use ipnet::IpNet;

use super::*;
