//! Hands the tables to the plane: compiled into the region, acknowledged by each lcore's ring.

pub(crate) mod busy;
pub mod compile;
pub mod lcores;
pub mod path_mtus;
pub mod published;
pub mod region;
pub mod rings;
