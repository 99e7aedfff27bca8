//! Tests of the codec: golden messages, errors, independent decoders and random input.

mod decoders;
mod errors;
mod fuzz;
pub(crate) mod golden;
mod netgauze;

use ipnet::IpNet;

use super::*;
