//! The interface of a data plane under test.

use super::Setup;
use std::collections::BTreeMap;
use tables::reason::DropReason;

/// The port through which a frame left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exit {
    /// The port of this arm.
    Port(u8),
    /// The exception port of this arm.
    Kernel(u8),
}

/// All counters of a plane since its start; callers compute differences.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Packets by verdict name, without drops.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Packets by drop reason, both arms together.
    pub drops: BTreeMap<DropReason, u64>,
    /// Packets received from the ports.
    pub received: u64,
    /// Packets received from the kernel.
    pub from_kernel: u64,
    /// Packets that Weir originated.
    pub originated: u64,
    /// Packets sent to the ports.
    pub sent: u64,
    /// Packets passed to the kernel.
    pub to_kernel: u64,
}

impl Counts {
    /// Returns the packets that entered or were originated.
    pub fn entered(&self) -> u64 {
        self.received + self.from_kernel + self.originated
    }

    /// Returns the packets that left or were dropped.
    pub fn ended(&self) -> u64 {
        self.sent + self.to_kernel + self.drops.values().sum::<u64>()
    }
}

/// A data plane that executes cases.
pub trait Plane {
    /// Returns its name for failure messages.
    fn name(&self) -> &str;

    /// Restarts with these tables and an empty flow table.
    fn load(&mut self, setup: &Setup);

    /// Changes the services at run time; returns when every lcore has acknowledged.
    fn change(&mut self, services: &str);

    /// Passes a frame in at an arm and returns the outgoing frames, in order.
    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)>;

    /// Passes a frame in whose first segment contains `first` bytes.
    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)>;

    /// Passes a frame from the kernel in at the exception port of an arm.
    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)>;

    /// Advances the clock by this many seconds.
    fn advance_s(&mut self, seconds: u32);

    /// Returns the counters.
    fn counts(&self) -> Counts;
}
