//! Who says what should be.

pub mod file;
