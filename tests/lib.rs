//! The test lab, the cases as data, and frames built independently of `packet`.

#![forbid(unsafe_code)]

pub mod cases;
pub mod frames;
pub mod lab;
