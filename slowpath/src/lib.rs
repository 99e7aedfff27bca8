//! slowpath
#![forbid(unsafe_code)]
pub mod health;
pub mod neighbours;
pub mod report;
