//! The structure of a case: its claim, its setup, its steps.

use super::plane::{Change, Exit};
use super::setups::Setup;
use crate::frames::Frame;
use tables::reason::DropReason;

/// A test case, independent of the data plane.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the case shows, as a sentence.
    pub claim: &'static str,
    /// The tables at the start of the case.
    pub setup: Setup,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Case {
    /// Returns whether the outermost packet of an incoming or outgoing frame is an IP fragment.
    pub fn has_outer_fragments(&self) -> bool {
        let outer = |frame: &Wire| match frame {
            Wire::Built(frame) => frame.ip.fragment.is_some(),
            Wire::Raw(_) => false,
        };
        self.steps.iter().any(|step| {
            let arrives = match &step.act {
                Act::Arrives(_, frame) | Act::ArrivesSplit(_, frame, _) => outer(frame),
                Act::KernelSends(_, frame) => outer(frame),
                // A flood does not list its outgoing frames. A fragment inside its tunnel may
                // leave without the tunnel.
                Act::Until { make, .. } | Act::Flood { make, .. } => {
                    make(0).ip.body.inner().is_some_and(|inner| inner.fragment.is_some())
                }
                Act::Wait(_) | Act::Change(_) => false,
            };
            arrives || step.leaves.iter().any(|(_, frame)| outer(frame))
        })
    }
}

/// Creates a case from its claim, its tables and its steps.
pub fn case(claim: &'static str, setup: Setup, steps: Vec<Step>) -> Case {
    Case { claim, setup, steps }
}

/// The bytes of an incoming or outgoing frame.
#[derive(Clone, Debug)]
pub enum Wire {
    /// A frame with a known structure.
    Built(Box<Frame>),
    /// Raw bytes.
    Raw(Vec<u8>),
}

impl From<Frame> for Wire {
    fn from(frame: Frame) -> Wire {
        Wire::Built(Box::new(frame))
    }
}

impl From<Vec<u8>> for Wire {
    fn from(bytes: Vec<u8>) -> Wire {
        Wire::Raw(bytes)
    }
}

/// A counter that a step increments: by one per mention, or by any number if the step sends many
/// flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Counted {
    /// A verdict, by its counter's name.
    Verdict(&'static str),
    /// A drop, by its reason.
    Drop(DropReason),
}

/// The event of a step.
#[derive(Clone, Debug)]
pub enum Act {
    /// A frame arrives at an arm.
    Arrives(u8, Wire),
    /// A frame arrives in two buffer segments, of which the first has this many bytes.
    ArrivesSplit(u8, Wire, usize),
    /// The appliance's kernel sends a frame through an arm's exception port.
    KernelSends(u8, Wire),
    /// This many seconds pass.
    Wait(u32),
    /// The control state changes.
    Change(Change),
    /// First packets of flows arrive, each built from the flow's number, until one is dropped for
    /// the step's reason. All before it are forwarded: at least `min` and fewer than `max`.
    Until {
        /// The arm at which they arrive.
        arm: u8,
        /// Builds the frame of flow number n.
        make: fn(u16) -> Frame,
        /// The minimum number of forwarded flows.
        min: u16,
        /// The maximum number of sent flows, of which one must be dropped.
        max: u16,
    },
    /// First packets of flows arrive, each built from the flow's number, and all are forwarded with
    /// the step's verdict.
    Flood {
        /// The arm at which they arrive.
        arm: u8,
        /// Builds the frame of flow number n.
        make: fn(u16) -> Frame,
        /// The number of flows.
        count: u16,
    },
}

/// An event and all of its effects.
#[derive(Clone, Debug)]
pub struct Step {
    /// The event.
    pub act: Act,
    /// The outgoing frames in order; no others may leave.
    pub leaves: Vec<(Exit, Wire)>,
    /// The incremented counters; no others may change.
    pub counted: Vec<Counted>,
}

/// Creates a step in which a frame arrives.
pub fn arrives(arm: u8, frame: impl Into<Wire>) -> Step {
    Step::new(Act::Arrives(arm, frame.into()))
}

/// Creates a step in which a frame arrives in two buffer segments, `first` bytes in the first.
pub fn arrives_split(arm: u8, frame: impl Into<Wire>, first: usize) -> Step {
    Step::new(Act::ArrivesSplit(arm, frame.into(), first))
}

/// Creates a step in which the kernel sends a frame.
pub fn kernel_sends(arm: u8, frame: impl Into<Wire>) -> Step {
    Step::new(Act::KernelSends(arm, frame.into()))
}

/// Creates a step in which seconds pass.
pub fn wait(seconds: u32) -> Step {
    Step::new(Act::Wait(seconds))
}

/// Creates a step in which the services change.
pub fn services(file: impl Into<String>) -> Step {
    Step::new(Act::Change(Change::Services(file.into())))
}

/// Creates a step in which the Azure gateway gets tunnels with these ports and VNIs.
pub fn tunnels(external: (u16, u32), internal: (u16, u32)) -> Step {
    Step::new(Act::Change(Change::Tunnels([external, internal])))
}

impl Step {
    /// Creates a step that expects no effects yet.
    pub fn new(act: Act) -> Step {
        Step { act, leaves: Vec::new(), counted: Vec::new() }
    }

    /// Expects a frame to leave through an arm's port with a verdict.
    pub fn leaves(mut self, arm: u8, frame: impl Into<Wire>, verdict: &'static str) -> Step {
        self.leaves.push((Exit::Port(arm), frame.into()));
        self.counted.push(Counted::Verdict(verdict));
        self
    }

    /// Expects the frame to be passed unchanged to the appliance's kernel.
    pub fn punted(mut self) -> Step {
        if let Act::Arrives(arm, frame) = &self.act {
            self.leaves.push((Exit::Kernel(*arm), frame.clone()));
        }
        self.counted.push(Counted::Verdict("punt"));
        self
    }

    /// Expects a frame to be passed to the appliance's kernel.
    pub fn to_kernel(mut self, arm: u8, frame: impl Into<Wire>) -> Step {
        self.leaves.push((Exit::Kernel(arm), frame.into()));
        self.counted.push(Counted::Verdict("punt"));
        self
    }

    /// Expects a frame to be redirected to a proxy through the appliance's kernel.
    pub fn redirected(mut self, arm: u8, frame: impl Into<Wire>) -> Step {
        self.leaves.push((Exit::Kernel(arm), frame.into()));
        self.counted.push(Counted::Verdict("redirect"));
        self
    }

    /// Expects the packet to be dropped for `reason`.
    pub fn dropped(mut self, reason: DropReason) -> Step {
        self.counted.push(Counted::Drop(reason));
        self
    }

    /// Expects the packet to be dropped for `reason`, and Weir to originate `frame`.
    pub fn answered(mut self, arm: u8, frame: impl Into<Wire>, reason: DropReason) -> Step {
        self.leaves.push((Exit::Port(arm), frame.into()));
        self.counted.push(Counted::Verdict("reply"));
        self.counted.push(Counted::Drop(reason));
        self
    }
}
