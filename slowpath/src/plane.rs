//! The data plane as the control loop uses it: tables in the region, commands and events in rings.

pub(crate) mod busy;
pub mod compile;
pub mod lcores;
pub mod path_mtus;
pub mod published;
pub mod region;
pub mod rings;
