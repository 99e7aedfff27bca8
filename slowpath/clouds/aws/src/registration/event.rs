//! Events consumed and effects produced by the AWS lifecycle state machine.

use std::time::Instant;

use crate::types::{Attributes, Target};
pub use clouds::lifecycle::Exit;
use clouds::lifecycle::{self, Never};

/// An event consumed by the AWS lifecycle.
pub type Event = lifecycle::Event<Answer, Never>;
/// An effect produced by the AWS lifecycle.
pub type Effect = lifecycle::Effect<Call, Never, Never>;

clouds::calls! {
    /// Registers the target.
    Register => Registered(()),
    /// Deregisters the target.
    Deregister => Deregistered(()),
    /// Queries this target's entry; `None` if it is not registered.
    ReadHealth => Health(Option<Target>),
    /// Reads the attributes of group, load balancer and listener.
    ReadAttributes => Attributes(Attributes),
    /// Reads the termination notices from IMDS.
    ReadNotices => Notices(Notices),
    /// Extends the timeout of the lifecycle hook.
    Heartbeat => Heartbeat(()),
    /// Completes the lifecycle hook with `CONTINUE`.
    CompleteHook => HookCompleted(()),
}

/// Termination notices for this instance, from IMDS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notices {
    /// True if the state to which Auto Scaling moves this instance (IMDS: target lifecycle state)
    /// is a terminating one, `Terminated` for instance: a hook may hold the instance.
    pub terminating: bool,
    /// When EC2 reclaims the spot instance.
    pub spot: Option<Instant>,
}

/// Why the appliance leaves the target group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainReason {
    /// SIGTERM was received.
    Signal,
    /// Auto Scaling terminates the instance; a hook may hold it.
    Scaling,
    /// EC2 reclaims the spot instance.
    Spot,
}

impl DrainReason {
    /// Returns the reason, as given to health probes.
    pub fn as_str(self) -> &'static str {
        match self {
            DrainReason::Signal => "leaving: SIGTERM received",
            DrainReason::Scaling => "leaving: Auto Scaling terminates this instance",
            DrainReason::Spot => "leaving: EC2 interrupts this spot instance",
        }
    }
}
