//! Test cases as data: a claim about Weir's behavior, incoming frames, outgoing frames, and
//! counters.
//!
//! Cases are independent of the data plane. [`run`] executes one on any [`Plane`]: the pipeline
//! in memory, the poll loop on real DPDK ports, or the XDP programs. Comparisons are exact: every
//! outgoing frame is compared completely, counters that a step does not name must not change, and
//! after each step all packets must be accounted for. Of a step with many flows, only the set of
//! counters that changed is compared.

pub mod addresses;
mod case;
mod coverage;
mod failed;
mod plane;
mod run;
pub mod setups;

mod aws;
mod azure;
mod chain;
mod fragments;
mod icmp;
mod kernel;
mod limits;
mod malformed;
mod martian;
mod nat;
mod outer;
mod plain;
mod policy;
mod proxy;
mod quotes;
mod return_leg;
mod select;
mod sources;
mod translate;
mod tunnel;

pub use case::{
    Act, Case, Counted, Step, Wire, arrives, arrives_split, case, kernel_sends, services, tunnels,
    wait,
};
pub use coverage::{COVERED_ELSEWHERE, CoveredElsewhere, reasons_covered, verdicts_covered};
pub use plane::{Change, Counts, Exit, Plane};
pub use run::run;
pub use setups::Setup;

/// Returns all cases.
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
        malformed::cases(),
        martian::cases(),
        limits::cases(),
        kernel::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
