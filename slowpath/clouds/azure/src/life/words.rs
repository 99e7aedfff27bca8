//! Events that the lifecycle consumes, and effects that it produces.

use clouds::lifecycle;
pub use clouds::lifecycle::Exit;
use config::checked::MadeBy;
use serde::{Deserialize, Serialize};

use crate::told::{Family, ScheduledEvent, Tunnels};

/// What the lifecycle consumes.
pub type Event = lifecycle::Event<Answer, Vec<(Family, Tunnels)>>;
/// What the lifecycle produces.
pub type Effect = lifecycle::Effect<Call, Vec<(Family, Tunnels)>, Kept>;

clouds::calls! {
    /// Our pools, all of them: our entries, tunnels, probes.
    Look => Looked(Vec<Seen>),
    /// Be in all pools. What is in them already is not touched. The answer is whether anything had
    /// to be written.
    Join => Joined(bool),
    /// `adminState` of our entries becomes `Down`.
    Down => Down(()),
    /// `adminState` of our entries becomes `None` again.
    Up => Up(()),
    /// Be in no pool.
    Leave => Left(()),
    /// What IMDS tells of the tunnels of each family; nothing of one that has none.
    AskTunnels => Tunnels(Vec<(Family, Tunnels)>),
    /// What IMDS tells of scheduled events: those that concern this machine.
    AskEvents => Events(Vec<ScheduledEvent>),
    /// The event for which we leave may begin ([`Life::event`](super::Life::event) is its id).
    Acknowledge => Acknowledged(()),
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

impl Call {
    /// It changes our entries.
    pub fn is_write(self) -> bool {
        matches!(self, Call::Join | Call::Down | Call::Up | Call::Leave)
    }
}

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
