//! Memory that must be available before packets are forwarded: the memory that the configuration
//! needs, the memory that the machine has, the reservation of missing huge pages, and the opening
//! of the region.
//!
//! - `plan.rs` computes the requirements, `maps.rs` those of the kernel maps of plane xdp.
//! - `new_flows.rs` derives the limits of new flows from the sizes.
//! - `machine.rs` reads `/proc` and `/sys` below a root directory that the caller passes.
//! - `nic.rs` and `numa.rs` compare the NUMA nodes of NICs, lcores and pages.
//! - `reserve.rs` compares the requirements with the machine and reserves the missing pages.
//! - `open.rs` opens or creates the region, `owner.rs` finds its user and group.
//! - `upgrade.rs` records the programs of the previous version, for an upgrade.
//! - `table.rs` formats tables of text.

#![forbid(unsafe_code)]

mod machine;
mod maps;
pub mod new_flows;
mod nic;
pub mod numa;
pub mod open;
mod owner;
pub mod plan;
mod reserve;
mod table;
pub mod upgrade;

pub use machine::{Machine, MachineError, Mount, Node, Pages, cpu_list};
pub use new_flows::{NewFlows, forwarding_lcores, new_flow_limits};
pub use nic::Nic;
pub use open::{OpenError, Opened, Unreadable, open_region, prepare_region, region_locations};
pub use owner::{OwnerError, group_id, user_id, user_name};
pub use plan::{Flows, Part, Plan, Term, plan, plan_below, sizes, sizes_below};
pub use reserve::{
    Applied, ApplyError, CheckResult, NodePages, apply, apply_with, boot_parameters, check,
    pages_at_boot,
};
pub use table::bytes_text;
