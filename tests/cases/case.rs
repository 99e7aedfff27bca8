//! A case: its sentence, what it needs, its steps.

use super::plane::Exit;
use super::setups::Setup;
use crate::frames::Frame;
use tables::reason::DropReason;

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it claims, a sentence.
    pub claim: &'static str,
    /// The tables it starts with.
    pub setup: Setup,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

impl Case {
    /// True when a frame on a cable is an IP fragment itself, not only what is in its tunnel.
    pub fn has_fragments_on_the_cable(&self) -> bool {
        let outer = |frame: &Wire| match frame {
            Wire::Built(frame) => frame.ip.fragment.is_some(),
            Wire::Raw(_) => false,
        };
        self.steps.iter().any(|step| {
            let arrives = match &step.act {
                Act::Arrives(_, frame) | Act::ArrivesSplit(_, frame, _) => outer(frame),
                Act::KernelSends(_, frame) => outer(frame),
                // What leaves is not said here: it may be what is in the tunnel.
                Act::Until { make, .. } | Act::Flood { make, .. } => {
                    make(0).ip.body.inner().is_some_and(|inner| inner.fragment.is_some())
                }
                Act::Wait(_) | Act::Services(_) => false,
            };
            arrives || step.leaves.iter().any(|(_, frame)| outer(frame))
        })
    }
}

/// A claim, its tables and its steps.
pub fn case(claim: &'static str, setup: Setup, steps: Vec<Step>) -> Case {
    Case { claim, setup, steps }
}

/// Bytes that arrive or leave.
#[derive(Clone, Debug)]
pub enum Wire {
    /// A frame whose structure is known.
    Built(Box<Frame>),
    /// Bytes as they are.
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

/// What a step counts, by one each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Counted {
    /// A verdict, by its name in the counters.
    Verdict(&'static str),
    /// A drop.
    Drop(DropReason),
}

/// What happens in a step.
#[derive(Clone, Debug)]
pub enum Act {
    /// A frame arrives by an arm.
    Arrives(u8, Wire),
    /// A frame arrives whose first buffer segment holds only so many bytes.
    ArrivesSplit(u8, Wire, usize),
    /// This machine's kernel sends a frame by an arm's exception port.
    KernelSends(u8, Wire),
    /// So many seconds pass.
    Wait(u32),
    /// The services file now says this.
    Services(String),
    /// Flows arrive, each made from its number, until one is dropped for the step's reason; all
    /// before it go through. There must be more than `least` and at most `most` of them.
    Until {
        /// Arm by which they arrive.
        arm: u8,
        /// The frame of flow number n.
        make: fn(u16) -> Frame,
        /// Flows that must fit.
        least: u16,
        /// Flows of which one must not.
        most: u16,
    },
    /// Flows arrive, each made from its number, and every one goes through with the step's verdict.
    Flood {
        /// Arm by which they arrive.
        arm: u8,
        /// The frame of flow number n.
        make: fn(u16) -> Frame,
        /// How many.
        count: u16,
    },
}

/// An act and everything that follows from it.
#[derive(Clone, Debug)]
pub struct Step {
    /// What happens.
    pub act: Act,
    /// What leaves, in order; nothing else may.
    pub leaves: Vec<(Exit, Wire)>,
    /// What is counted; nothing else may move.
    pub counted: Vec<Counted>,
}

/// A frame arrives.
pub fn arrives(arm: u8, frame: impl Into<Wire>) -> Step {
    Step::new(Act::Arrives(arm, frame.into()))
}

/// A frame arrives in more than one buffer segment.
pub fn arrives_split(arm: u8, frame: impl Into<Wire>, first: usize) -> Step {
    Step::new(Act::ArrivesSplit(arm, frame.into(), first))
}

/// The kernel sends a frame.
pub fn kernel_sends(arm: u8, frame: impl Into<Wire>) -> Step {
    Step::new(Act::KernelSends(arm, frame.into()))
}

/// Seconds pass.
pub fn wait(seconds: u32) -> Step {
    Step::new(Act::Wait(seconds))
}

/// The services change.
pub fn services(file: impl Into<String>) -> Step {
    Step::new(Act::Services(file.into()))
}

impl Step {
    /// An act of which nothing is expected yet.
    pub fn new(act: Act) -> Step {
        Step { act, leaves: Vec::new(), counted: Vec::new() }
    }

    /// A frame leaves by an arm's port under a verdict.
    pub fn leaves(mut self, arm: u8, frame: impl Into<Wire>, verdict: &'static str) -> Step {
        self.leaves.push((Exit::Port(arm), frame.into()));
        self.counted.push(Counted::Verdict(verdict));
        self
    }

    /// The frame goes to this machine's kernel as it came.
    pub fn punted(mut self) -> Step {
        if let Act::Arrives(arm, frame) = &self.act {
            self.leaves.push((Exit::Kernel(*arm), frame.clone()));
        }
        self.counted.push(Counted::Verdict("punt"));
        self
    }

    /// A frame goes to this machine's kernel.
    pub fn to_kernel(mut self, arm: u8, frame: impl Into<Wire>) -> Step {
        self.leaves.push((Exit::Kernel(arm), frame.into()));
        self.counted.push(Counted::Verdict("punt"));
        self
    }

    /// A frame goes to a proxy by this machine's kernel.
    pub fn redirected(mut self, arm: u8, frame: impl Into<Wire>) -> Step {
        self.leaves.push((Exit::Kernel(arm), frame.into()));
        self.counted.push(Counted::Verdict("redirect"));
        self
    }

    /// Nothing leaves but what was said, and the packet is dropped for `reason`.
    pub fn dropped(mut self, reason: DropReason) -> Step {
        self.counted.push(Counted::Drop(reason));
        self
    }

    /// The packet itself is dropped for `reason`, and a frame of Weir's own goes back.
    pub fn answered(mut self, arm: u8, frame: impl Into<Wire>, reason: DropReason) -> Step {
        self.leaves.push((Exit::Port(arm), frame.into()));
        self.counted.push(Counted::Verdict("reply"));
        self.counted.push(Counted::Drop(reason));
        self
    }
}
