//! Formats on the wire, in place.
#![no_std]
#[cfg(test)]
extern crate std;

pub mod addr;
pub mod flow;
