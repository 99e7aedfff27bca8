//! AWS: what it is asked and what it tells.

pub mod advice;
pub mod group;
pub mod leader;
pub mod life;
pub mod roles;
pub mod told;
