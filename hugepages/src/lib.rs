//! Memory made ready before the fastpath starts: what the configuration needs, what this machine
//! has, and reserving the rest.
//!
//! The arithmetic is in `plan.rs` and touches nothing; `machine.rs` reads `/proc` and `/sys`, whose
//! root is an argument, and `reserve.rs` compares and writes.

mod machine;
pub mod plan;
mod reserve;
mod table;

pub use machine::{Machine, MachineError, Mount, Node};
pub use plan::{PAGE_BYTES, Part, Plan, Term, plan, sizes};
pub use reserve::{Applied, ApplyError, NodeVerdict, Verdict, apply, apply_with, check};
