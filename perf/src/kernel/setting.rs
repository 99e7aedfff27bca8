//! The settings of a measurement: the contents of the tables, and the order of flows.

use std::error::Error;

use tables::record::TunnelKind;

use crate::fixture::{Family, Workload};

/// The reason for which a measurement failed.
pub type Failure = Box<dyn Error>;

/// The order of the flows' packets. In both orders each flow occurs once per round, and consecutive
/// packets belong to flows with distant numbers. They differ in the access to the flow table: paths
/// are stored in the order in which flows are created, and processors prefetch sequential reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The order in which the benchmark creates the flows: paths are read sequentially.
    Creation,
    /// A different order: paths are read at scattered positions.
    Shuffled,
}

impl Order {
    /// Returns the step from one flow's number to the next. It is odd, so that its multiples modulo
    /// a power of two take each value once.
    const fn stride(self) -> u64 {
        match self {
            Order::Creation => 0x9e37_79b1,
            Order::Shuffled => 0x85eb_ca6b,
        }
    }

    /// Returns the numbers of `flows` flows in this order, each once. `flows` is a power of two.
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
