//! The lab and the cases: what proves that Weir does what it says.

#![forbid(unsafe_code)]

pub mod cases;
pub mod frames;
pub mod lab;
