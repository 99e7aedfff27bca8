//! Memory made ready before packets move: what the configuration needs, what this machine has,
//! reserving the rest, and opening the region in it.
//!
//! The arithmetic is in `plan.rs` and touches nothing; `machine.rs` reads `/proc` and `/sys`, whose
//! root is an argument, and `reserve.rs` compares and writes.

#![forbid(unsafe_code)]

mod group;
mod machine;
mod maps;
pub mod new_flows;
mod nic;
pub mod numa;
pub mod open;
pub mod plan;
mod reserve;
mod table;

pub use group::{GroupError, group_id};
pub use machine::{Machine, MachineError, Mount, Node, PAGE_BYTES};
pub use new_flows::{NewFlows, forwarding_lcores, new_flow_limits};
pub use nic::Nic;
pub use open::{OpenError, Opened, Unreadable, open_region};
pub use plan::{Flows, Part, Plan, Term, plan, plan_below, sizes, sizes_below};
pub use reserve::{Applied, ApplyError, NodeVerdict, Verdict, apply, apply_with, check};
