//! Cases as data: a sentence, what arrives, what leaves, what is counted.
//!
//! A case knows no plane. [`run`] plays it on anything that is a [`Plane`]: the pipeline in memory,
//! the poll loop on real DPDK ports. Nothing is compared loosely: every frame is compared whole,
//! every counter that a step does not name must stand still, and after each step everything that
//! came in is accounted for.

mod case;
mod coverage;
mod failed;
mod plane;
mod run;
pub mod setups;
pub mod world;

mod aws;
mod azure;
mod chain;
mod fragments;
mod icmp;
mod kernel;
mod limits;
mod martian;
mod nat;
mod outer;
mod plain;
mod policy;
mod proxy;
mod quotes;
mod refused;
mod return_leg;
mod select;
mod sources;
mod translate;
mod tunnel;

pub use case::{
    Act, Case, Counted, Step, Wire, arrives, arrives_split, case, kernel_sends, services, wait,
};
pub use coverage::{ELSEWHERE, Elsewhere, reasons_shown, verdicts_shown};
pub use plane::{Counts, Exit, Plane};
pub use run::run;
pub use setups::Setup;

/// Every case there is.
pub fn all() -> Vec<Case> {
    [
        aws::cases(),
        azure::cases(),
        nat::cases(),
        translate::cases(),
        tunnel::cases(),
        chain::cases(),
        return_leg::cases(),
        plain::cases(),
        select::cases(),
        policy::cases(),
        failed::cases(),
        proxy::cases(),
        outer::cases(),
        icmp::cases(),
        quotes::cases(),
        sources::cases(),
        fragments::cases(),
        refused::cases(),
        martian::cases(),
        limits::cases(),
        kernel::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
