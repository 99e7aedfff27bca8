//! AWS: what it is asked and what it tells.

pub mod told;
