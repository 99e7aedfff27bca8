//! Tests of the codec: golden messages, errors, independent decoders and random input.

mod errors;
mod fuzz;
pub(crate) mod golden;
mod measured;
mod readers;

use ipnet::IpNet;

use super::*;
