//! Events consumed and effects produced by the Azure lifecycle state machine.

use clouds::lifecycle;
pub use clouds::lifecycle::Exit;
use config::checked::MembershipMode;
use serde::{Deserialize, Serialize};

use crate::types::{Family, ScheduledEvent, Tunnels};

/// An event consumed by the Azure lifecycle.
pub type Event = lifecycle::Event<Answer, Vec<(Family, Tunnels)>>;
/// An effect produced by the Azure lifecycle.
pub type Effect = lifecycle::Effect<Call, Vec<(Family, Tunnels)>, PersistedState>;

clouds::calls! {
    /// Reads all pools: this machine's entries, tunnels and probes.
    ReadPools => Pools(Vec<PoolState>),
    /// Joins all pools. Existing entries are not changed. The answer is true if a write was made.
    Join => Joined(bool),
    /// Sets `adminState` of this machine's entries to `Down`.
    Down => Down(()),
    /// Sets `adminState` of this machine's entries back to `None`.
    Up => Up(()),
    /// Leaves all pools.
    Leave => Left(()),
    /// Reads the tunnels of each address family from IMDS; families without tunnels are left out.
    ReadTunnels => Tunnels(Vec<(Family, Tunnels)>),
    /// Reads the scheduled events that affect this machine from IMDS.
    ReadEvents => Events(Vec<ScheduledEvent>),
    /// Acknowledges the scheduled event of [`Membership::event`](super::Membership::event), so that
    /// it may start.
    Acknowledge => Acknowledged(()),
}

/// A pool of this machine, as reported by Resource Manager (ARM).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolState {
    /// Address family of the pool.
    pub family: Family,
    /// This machine's entry in the pool.
    pub member: Option<Member>,
    /// Tunnels of the pool, or why they cannot be used.
    pub tunnels: Result<Tunnels, String>,
    /// True if a rule of the pool has a probe; without one an administrative state has no effect.
    pub probed: bool,
}

/// This machine's entry in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// How the entry was made: by IP configuration or by address.
    pub mode: MembershipMode,
    /// Administrative state.
    pub admin: AdminState,
}

/// Administrative state (`adminState`) of an entry: an override of the probe's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum AdminState {
    /// The probe decides.
    #[default]
    None,
    /// New flows arrive regardless of the probe.
    Up,
    /// No new flows arrive; established TCP flows continue.
    Down,
}

impl Call {
    /// Returns true if the call changes this machine's entries.
    pub fn is_write(self) -> bool {
        matches!(self, Call::Join | Call::Down | Call::Up | Call::Leave)
    }
}

/// Source of the reported tunnels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TunnelSource {
    /// The instance metadata service.
    Imds,
    /// Azure Resource Manager.
    Arm,
    /// State persisted by an earlier process; nothing was reported since.
    #[serde(rename = "kept")]
    Persisted,
    /// The configuration file; nothing was reported.
    File,
}

/// Reported tunnels of a pool, and those in force in the data plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelStatus {
    /// Address family of the pool.
    pub family: Family,
    /// Tunnels in force.
    pub in_force: Tunnels,
    /// Tunnels as reported; without a report, those in force.
    pub reported: Tunnels,
    /// Source of the report.
    pub source: TunnelSource,
}

/// State persisted across restarts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PersistedState {
    /// True if Weir made the memberships, or may have made them: the flag is set before the write.
    pub joined: bool,
    /// True if Weir set `adminState` to `Down`, or may have: the flag is set before the write.
    pub down: bool,
    /// The last reported tunnels, with `tunnels = "follow"`: a restarted process uses them until
    /// there is a new report.
    pub tunnels: Vec<(Family, Tunnels)>,
}

/// Why the machine leaves its pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainReason {
    /// SIGTERM was received.
    Signal,
    /// A scheduled event restarts or moves the machine.
    Maintenance,
    /// A scheduled event evicts the spot machine.
    Preempt,
    /// A scheduled event deletes the machine.
    Terminate,
}

impl DrainReason {
    /// Returns the reason, as given to health probes.
    pub fn as_str(self) -> &'static str {
        match self {
            DrainReason::Signal => "leaving: SIGTERM received",
            DrainReason::Maintenance => "leaving: Azure is about to restart or move this machine",
            DrainReason::Preempt => "leaving: Azure evicts this spot machine",
            DrainReason::Terminate => "leaving: this machine is about to be deleted",
        }
    }
}
