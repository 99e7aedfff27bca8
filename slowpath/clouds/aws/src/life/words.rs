//! Events that the lifecycle consumes, and effects that it produces.

use std::time::Instant;

use crate::told::{Attributes, Target};
pub use clouds::lifecycle::Exit;
use clouds::lifecycle::{self, Never};

/// What the lifecycle consumes.
pub type Event = lifecycle::Event<Answer, Never>;
/// What the lifecycle produces.
pub type Effect = lifecycle::Effect<Call, Never, Never>;

clouds::calls! {
    /// Be a target.
    Register => Registered(()),
    /// Be none.
    Deregister => Deregistered(()),
    /// Our own entry among the targets; none where we are not among them.
    AskHealth => Health(Option<Target>),
    /// The attributes of group, load balancer and listener.
    AskAttributes => Attributes(Attributes),
    /// What IMDS says about the end of this instance.
    AskNotices => Notices(Notices),
    /// The hook shall wait longer.
    Heartbeat => Heartbeat(()),
    /// The hook need not wait (`CONTINUE`).
    CompleteHook => HookCompleted(()),
}

/// What IMDS says about the end of this instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notices {
    /// Auto Scaling's lifecycle state is `Terminating:Wait`: a hook waits for us.
    pub terminating: bool,
    /// When EC2 takes the spot instance away.
    pub spot: Option<Instant>,
}

/// Why it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// SIGTERM.
    Signal,
    /// Auto Scaling's hook waits.
    Scaling,
    /// EC2 takes the spot instance back.
    Spot,
}

impl Why {
    /// As probes are told it.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Signal => "leaving: SIGTERM came",
            Why::Scaling => "leaving: Auto Scaling terminates this instance",
            Why::Spot => "leaving: EC2 takes this spot instance back",
        }
    }
}
