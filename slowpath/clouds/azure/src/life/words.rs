//! The words in which the lifecycle hears and speaks.

use clouds::report::Finding;
use config::checked::MadeBy;
use serde::{Deserialize, Serialize};

use crate::told::{CallError, Family, ScheduledEvent, Tunnels};

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
        /// Packets that were passed on so far; only its changes matter, and whether it is 0.
        packets: u64,
        /// Packets dropped so far because they came in a tunnel that we don't know. When it grows,
        /// the pool's tunnels may have changed, and nobody waits for the next look.
        strange: u64,
    },
    /// What the data plane has in force for each of our pools: of these families, and of no other,
    /// tunnels are followed. Told before the first tick, and again at least once a second, so that
    /// a data plane that was set up anew gets what it should have.
    Carries(Vec<(Family, Tunnels)>),
    /// Seconds since 1970, by which scheduled events tell when they begin. Told before the first
    /// of them, and again whenever they are.
    Clock(u64),
    /// SIGTERM; the second ends at once.
    Terminate,
    /// A call of ours ended. Each [`Call`] ends once, be it by a time limit of its own.
    Told(Answer),
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Of [`Call::Look`]: all of our pools.
    Looked(Result<Vec<Seen>, CallError>),
    /// Of [`Call::Join`]; whether anything had to be written.
    Joined(Result<bool, CallError>),
    /// Of [`Call::Down`].
    Down(Result<(), CallError>),
    /// Of [`Call::Up`].
    Up(Result<(), CallError>),
    /// Of [`Call::Leave`].
    Left(Result<(), CallError>),
    /// Of [`Call::AskTunnels`]: what IMDS tells of each family; nothing of one that has none.
    Tunnels(Result<Vec<(Family, Tunnels)>, CallError>),
    /// Of [`Call::AskEvents`]: those that concern this machine.
    Events(Result<Vec<ScheduledEvent>, CallError>),
    /// Of [`Call::Acknowledge`].
    Acknowledged(Result<(), CallError>),
}

impl Answer {
    /// The call that ended.
    pub fn of(&self) -> Call {
        match self {
            Answer::Looked(_) => Call::Look,
            Answer::Joined(_) => Call::Join,
            Answer::Down(_) => Call::Down,
            Answer::Up(_) => Call::Up,
            Answer::Left(_) => Call::Leave,
            Answer::Tunnels(_) => Call::AskTunnels,
            Answer::Events(_) => Call::AskEvents,
            Answer::Acknowledged(_) => Call::Acknowledge,
        }
    }

    /// That a call came to nothing.
    pub fn failed(call: Call, error: CallError) -> Answer {
        match call {
            Call::Look => Answer::Looked(Err(error)),
            Call::Join => Answer::Joined(Err(error)),
            Call::Down => Answer::Down(Err(error)),
            Call::Up => Answer::Up(Err(error)),
            Call::Leave => Answer::Left(Err(error)),
            Call::AskTunnels => Answer::Tunnels(Err(error)),
            Call::AskEvents => Answer::Events(Err(error)),
            Call::Acknowledge => Answer::Acknowledged(Err(error)),
        }
    }

    /// Why it came to nothing, if it did.
    pub fn error(&self) -> Option<&CallError> {
        match self {
            Answer::Looked(result) => result.as_ref().err(),
            Answer::Joined(result) => result.as_ref().err(),
            Answer::Down(result)
            | Answer::Up(result)
            | Answer::Left(result)
            | Answer::Acknowledged(result) => result.as_ref().err(),
            Answer::Tunnels(result) => result.as_ref().err(),
            Answer::Events(result) => result.as_ref().err(),
        }
    }
}

/// One of our pools, as ARM tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Of which family it is.
    pub family: Family,
    /// Our entry in it.
    pub member: Option<Member>,
    /// Its tunnels; or why they are none that we could use.
    pub tunnels: Result<Tunnels, String>,
    /// A rule of it has a probe: without one an administrative state changes nothing.
    pub probed: bool,
}

/// Our entry in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// How we are in it.
    pub by: MadeBy,
    /// Its administrative state.
    pub admin: Admin,
}

/// An administrative state: what the gateway does with an entry whatever its probe says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Admin {
    /// The probe decides.
    #[default]
    None,
    /// New flows come whatever the probe says.
    Up,
    /// No new flows; TCP flows that there are stay.
    Down,
}

/// What it wants asked of Azure; of each kind at most one is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Call {
    /// Our pools: our entries, tunnels, probes.
    Look,
    /// Be in all pools. What is in them already is not touched.
    Join,
    /// `adminState` of our entries becomes `Down`.
    Down,
    /// `adminState` of our entries becomes `None` again.
    Up,
    /// Be in no pool.
    Leave,
    /// What IMDS tells of the tunnels.
    AskTunnels,
    /// What IMDS tells of scheduled events.
    AskEvents,
    /// The event for which we leave may begin ([`Life::event`](super::Life::event) is its id).
    Acknowledge,
}

impl Call {
    /// It changes our entries.
    pub fn is_write(self) -> bool {
        matches!(self, Call::Join | Call::Down | Call::Up | Call::Leave)
    }
}

/// All of them, each at the place of its number.
pub(super) const CALLS: usize = Call::Acknowledge as usize + 1;

/// Where tunnels were told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The machine's metadata service.
    Imds,
    /// Azure Resource Manager.
    Arm,
    /// Followed by an earlier process, and nobody told since.
    Kept,
    /// The configuration file: nobody told.
    File,
}

/// A pool's tunnels, and those that the data plane has in force for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Of the pool.
    pub family: Family,
    /// In force.
    pub carried: Tunnels,
    /// As they should be; where nobody told, those in force.
    pub told: Tunnels,
    /// Who told.
    pub by: Source,
}

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
    /// The data plane's tunnels become these.
    Tunnels(Vec<(Family, Tunnels)>),
    /// What the next process has to know; it is on disk before what comes behind it.
    Keep(Kept),
    /// Something that people should know.
    Finding(Finding),
    /// Send what is queued, and end the process. Nothing comes behind it.
    Exit(Exit),
}

/// What outlives the process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The memberships are of our own making, or may be: it is kept before they are asked for.
    pub joined: bool,
    /// Their `adminState` is `Down` by our own doing, or may be: it is kept before that is asked
    /// for.
    pub down: bool,
    /// The tunnels that were followed last.
    pub tunnels: Vec<(Family, Tunnels)>,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Nothing was active any more.
    Drained,
    /// `azure.drain_cap_s` was over, or the machine's time.
    CapOver,
    /// A second SIGTERM came.
    Forced,
}

/// Why it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// SIGTERM.
    Signal,
    /// A scheduled event reboots or moves the machine.
    Maintenance,
    /// A spot machine is taken back.
    Preempt,
    /// The machine is deleted.
    Terminate,
}

impl Why {
    /// As probes are told it.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Signal => "leaving: SIGTERM came",
            Why::Maintenance => "leaving: Azure is about to restart or move this machine",
            Why::Preempt => "leaving: Azure takes this spot machine back",
            Why::Terminate => "leaving: this machine is about to be deleted",
        }
    }
}
