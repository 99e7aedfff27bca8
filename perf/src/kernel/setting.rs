//! The settings of a measurement: the contents of the tables, and the order of flows.

use std::error::Error;

use tables::record::TunnelKind;

use crate::fixture::{Family, Workload};

/// Why a measurement failed.
pub type Failure = Box<dyn Error>;

/// The order of the flows' packets. Each flow occurs once per round, far from the previous one;
/// but paths are stored in the order in which flows began, and processors prefetch sequential
/// reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The order in which the flows began.
    Begun,
    /// Another order.
    Other,
}

impl Order {
    /// Returns the odd step from one flow's number to the next.
    const fn stride(self) -> u64 {
        match self {
            Order::Begun => 0x9e37_79b1,
            Order::Other => 0x85eb_ca6b,
        }
    }

    /// Returns the numbers below `flows`, a power of two, each once.
    pub(super) fn numbers(self, flows: u32) -> impl Iterator<Item = u32> {
        let number = move |n| (u64::from(n) * self.stride()) & u64::from(flows - 1);
        (0..flows).map(move |n| number(n) as u32)
    }
}

/// The configuration that tables are filled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The handling of the packets.
    pub work: Workload,
    /// The address family inside the tunnel and of the backends.
    pub family: Family,
    /// The gateway's tunnels: GENEVE (AWS) or VXLAN (Azure).
    pub gateway: TunnelKind,
}
