//! The interface of a data plane under test.

use super::Setup;
use std::collections::BTreeMap;
use tables::reason::DropReason;

/// The port through which a frame left the plane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Exit {
    /// The port of this arm.
    Port(u8),
    /// The exception port of this arm.
    Kernel(u8),
}

/// A change of the control state while the plane runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The services file is replaced by this text.
    Services(String),
    /// The pool of the Azure gateway gets other tunnels: port and VNI of the external and of the
    /// internal one.
    Tunnels([(u16, u32); 2]),
}

/// All counters of a plane since its start. Callers compute differences.
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
    /// Returns the plane's name for failure messages.
    fn name(&self) -> &str;

    /// Restarts the plane with these tables and an empty flow table.
    fn load(&mut self, setup: &Setup);

    /// Changes the control state at run time; returns when every lcore has acknowledged.
    fn change(&mut self, change: &Change);

    /// Lets a frame arrive at an arm, and returns the outgoing frames in order.
    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)>;

    /// As [`Plane::send`], with the frame in two buffer segments, `first` bytes in the first.
    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)>;

    /// Lets the kernel send a frame through an arm's exception port, and returns the outgoing
    /// frames in order.
    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)>;

    /// Advances the plane's clock by this many seconds.
    fn advance_s(&mut self, seconds: u32);

    /// Returns the counters.
    fn counts(&self) -> Counts;
}
