//! The settings of a measurement: the contents of the tables, and the order of flows.

use std::error::Error;

use tables::record::TunnelKind;

use crate::world::{Family, Work};

/// Why nothing was measured.
pub type Failure = Box<dyn Error>;

/// In which order flows are met. Each is met once in a round, far from the one before; but paths
/// lie in the order in which flows began, and a processor fetches by itself what is read in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// That in which they begin.
    Begun,
    /// Another one.
    Other,
}

impl Order {
    /// From one flow's number to the next; odd.
    const fn stride(self) -> u64 {
        match self {
            Order::Begun => 0x9e37_79b1,
            Order::Other => 0x85eb_ca6b,
        }
    }

    /// The numbers below `flows`, a power of two, each once.
    pub(super) fn numbers(self, flows: u32) -> impl Iterator<Item = u32> {
        let number = move |n| (u64::from(n) * self.stride()) & u64::from(flows - 1);
        (0..flows).map(move |n| number(n) as u32)
    }
}

/// What tables are furnished for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// What the services do.
    pub work: Work,
    /// The family inside the tunnel, and the backends'.
    pub family: Family,
    /// The gateway's tunnels: GENEVE (AWS) or VXLAN (Azure).
    pub gateway: TunnelKind,
}
