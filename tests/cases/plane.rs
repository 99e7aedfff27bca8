//! What a case needs of a data plane.

use super::Setup;
use std::collections::BTreeMap;
use tables::reason::DropReason;

/// Where a frame came out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exit {
    /// The port of this arm.
    Port(u8),
    /// The exception port of this arm.
    Kernel(u8),
}

/// All that a plane counted since it began. Differences are taken by whoever asks.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets by verdict name; drops are not among them.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Packets by drop reason, both arms together.
    pub drops: BTreeMap<DropReason, u64>,
    /// Packets that the ports handed over.
    pub received: u64,
    /// Packets that the kernel handed over.
    pub from_kernel: u64,
    /// Packets that Weir made itself.
    pub originated: u64,
    /// Packets that the ports took.
    pub sent: u64,
    /// Packets that the kernel took.
    pub to_kernel: u64,
}

impl Counts {
    /// What came in or was made.
    pub fn entered(&self) -> u64 {
        self.received + self.from_kernel + self.originated
    }

    /// What went out or was dropped.
    pub fn ended(&self) -> u64 {
        self.sent + self.to_kernel + self.drops.values().sum::<u64>()
    }
}

/// A data plane on which cases are played.
pub trait Plane {
    /// Its name in failures.
    fn name(&self) -> &str;

    /// Begins anew with these tables and nothing in the flow table.
    fn load(&mut self, setup: &Setup);

    /// The services change while it runs; returns when every lcore has acknowledged.
    fn change(&mut self, services: &str);

    /// A frame arrives by an arm; what comes out of it, in order.
    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)>;

    /// A frame arrives whose first segment holds `first` bytes.
    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)>;

    /// The kernel sends a frame by the exception port of an arm.
    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)>;

    /// Seconds pass.
    fn advance_s(&mut self, seconds: u32);

    /// What it counted so far.
    fn counts(&self) -> Counts;
}
