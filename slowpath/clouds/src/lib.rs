//! What the clouds have in common: the appliance as they see it, what people are told, what becomes
//! of a question without an answer, and when it is asked again. Each cloud has a room of its own.
#![forbid(unsafe_code)]

pub mod appliance;
pub mod asking;
pub mod check;
pub mod failure;
pub mod kept;
pub mod report;
pub mod retry;
