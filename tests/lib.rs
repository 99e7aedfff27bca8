//! The lab and the cases: what proves that Weir does what it says.

pub mod cases;
pub mod frames;
pub mod lab;
