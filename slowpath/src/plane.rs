//! The data plane as the control loop accesses it: tables in the region, and rings with commands to
//! the lcores and events from them.

pub(crate) mod busy;
pub mod compile;
pub mod lcores;
pub mod path_mtus;
pub mod published;
pub mod region;
pub mod rings;
pub(crate) mod spread;
