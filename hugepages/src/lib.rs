//! Memory that must be available before packets are forwarded: what the configuration needs, what
//! the machine has, reserving the difference, and opening the region.
//!
//! `plan.rs` computes the requirements, `machine.rs` reads `/proc` and `/sys` below a root that is
//! an argument, and `reserve.rs` compares the two and reserves pages.

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
pub use reserve::{Applied, ApplyError, CheckResult, NodePages, apply, apply_with, check};
