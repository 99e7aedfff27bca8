//! The words in which the lifecycle hears and speaks.

use std::time::{Duration, Instant};

use crate::told::{Attributes, CallError, Target};
use clouds::report::Finding;

/// What it hears.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time passed.
    Tick,
    /// Whether we could take traffic, and if not, why.
    Able {
        /// Lcores poll, links are up, tables are committed and acknowledged.
        able: bool,
        /// Why not.
        reasons: Vec<String>,
    },
    /// What goes through us.
    Activity {
        /// Flows in the table that are not idle.
        flows: u64,
        /// Packets that the gateway has sent so far; only its changes matter, and whether it is 0.
        packets: u64,
    },
    /// SIGTERM; the second ends at once.
    Terminate,
    /// A call of ours ended. Each [`Call`] ends once, be it by a time limit of its own.
    Told(Answer),
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Of [`Call::Register`].
    Registered(Result<(), CallError>),
    /// Of [`Call::Deregister`].
    Deregistered(Result<(), CallError>),
    /// Of [`Call::AskHealth`]; none where we are not among the targets.
    Health(Result<Option<Target>, CallError>),
    /// Of [`Call::AskAttributes`].
    Attributes(Result<Attributes, CallError>),
    /// Of [`Call::AskNotices`].
    Notices(Result<Notices, CallError>),
    /// Of [`Call::Heartbeat`].
    Heartbeat(Result<(), CallError>),
    /// Of [`Call::CompleteHook`].
    HookCompleted(Result<(), CallError>),
}

impl Answer {
    /// The call that ended.
    pub fn of(&self) -> Call {
        match self {
            Answer::Registered(_) => Call::Register,
            Answer::Deregistered(_) => Call::Deregister,
            Answer::Health(_) => Call::AskHealth,
            Answer::Attributes(_) => Call::AskAttributes,
            Answer::Notices(_) => Call::AskNotices,
            Answer::Heartbeat(_) => Call::Heartbeat,
            Answer::HookCompleted(_) => Call::CompleteHook,
        }
    }

    /// That a call came to nothing.
    pub fn failed(call: Call, error: CallError) -> Answer {
        match call {
            Call::Register => Answer::Registered(Err(error)),
            Call::Deregister => Answer::Deregistered(Err(error)),
            Call::AskHealth => Answer::Health(Err(error)),
            Call::AskAttributes => Answer::Attributes(Err(error)),
            Call::AskNotices => Answer::Notices(Err(error)),
            Call::Heartbeat => Answer::Heartbeat(Err(error)),
            Call::CompleteHook => Answer::HookCompleted(Err(error)),
        }
    }

    /// Why it came to nothing, if it did.
    pub fn error(&self) -> Option<&CallError> {
        match self {
            Answer::Registered(result)
            | Answer::Deregistered(result)
            | Answer::Heartbeat(result)
            | Answer::HookCompleted(result) => result.as_ref().err(),
            Answer::Health(result) => result.as_ref().err(),
            Answer::Attributes(result) => result.as_ref().err(),
            Answer::Notices(result) => result.as_ref().err(),
        }
    }
}

/// What IMDS says about the end of this instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notices {
    /// Auto Scaling's lifecycle state is `Terminating:Wait`: a hook waits for us.
    pub terminating: bool,
    /// When EC2 takes the spot instance away.
    pub spot: Option<Instant>,
}

/// What it wants asked of the cloud; of each kind at most one is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Call {
    /// Be a target.
    Register,
    /// Be none.
    Deregister,
    /// Our own entry among the targets.
    AskHealth,
    /// The attributes of group, load balancer and listener.
    AskAttributes,
    /// What IMDS says about the end of this instance.
    AskNotices,
    /// The hook shall wait longer.
    Heartbeat,
    /// The hook need not wait (`CONTINUE`).
    CompleteHook,
}

/// All of them, each at the place of its number.
pub(super) const CALLS: usize = Call::CompleteHook as usize + 1;

/// What it wants done, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Begin a call, and tell its answer.
    Call(Call),
    /// From now on probes are told this. It is done before what comes behind it.
    Probe {
        /// 200, or 503.
        pass: bool,
        /// Why 503.
        reasons: Vec<String>,
    },
    /// TCP flows are forgotten after so long, as the gateway forgets them.
    FlowTimeout(Duration),
    /// Something that people should know.
    Finding(Finding),
    /// Send what is queued, and end the process. Nothing comes behind it.
    Exit(Exit),
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Nothing was active any more.
    Drained,
    /// The gateway had taken all flows away: the deregistration delay was over.
    DelayOver,
    /// `aws.drain_cap_s` was over, or the instance's time.
    CapOver,
    /// A second SIGTERM came.
    Forced,
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
