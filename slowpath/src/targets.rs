//! Who is told what should be: the region, from which the fastpath and the kernel's program read.

pub mod compile;
pub mod region;
