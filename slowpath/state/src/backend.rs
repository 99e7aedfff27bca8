//! Backends: instances of services at endpoints.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use config::checked::ArmName;
pub use config::services::{BackendState as State, Placement};
use smallvec::SmallVec;

use crate::address::Endpoint;
use crate::name::{Name, Source};

/// Health check verdict on a backend of one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Whether the health check failed.
    pub unhealthy: bool,
    /// Time of the last change of the verdict; `None` before the first check.
    pub since: Option<SystemTime>,
}

/// Adds the port names of another entry of the same backend. An empty list, in `names` or `others`,
/// stands for all ports.
pub(crate) fn merge_port_names(
    names: &mut SmallVec<[Arc<str>; 1]>,
    others: SmallVec<[Arc<str>; 1]>,
) {
    if names.is_empty() || others.is_empty() {
        names.clear();
        return;
    }
    for name in others {
        if !names.contains(&name) {
            names.push(name);
        }
    }
}

/// Backend of a service, as one source wrote it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Address, port and protocol of the backend.
    pub endpoint: Endpoint,
    /// Service that the backend belongs to.
    pub service: Name,
    /// Source that wrote the backend.
    pub source: Source,
    /// Rank of the source in the precedence. Of a service's instances at one endpoint, the one with
    /// the lowest rank is used; the others are shadows.
    pub priority: u8,
    /// Weight relative to the service's other backends; 0 for no new flows.
    pub weight: u16,
    /// State, as the source wrote it.
    pub state: State,
    /// Arm through which the backend is reached.
    pub arm: ArmName,
    /// Verdict of the service's health check.
    pub health: Health,
    /// Names of the service's ports that the backend serves; empty for all.
    pub port_names: SmallVec<[Arc<str>; 1]>,
    /// Node and zone of the backend and its zone hints; `None` for most backends.
    pub placement: Option<Arc<Placement>>,
    /// Source address reserved for health checks: packets that this machine sends from it go to
    /// exactly this backend, through the service's tunnel.
    pub probe: Option<IpAddr>,
}

impl Instance {
    /// Creates an active instance of weight 100, for all ports, behind the egress arm.
    pub fn new(endpoint: Endpoint, service: Name, source: Source) -> Instance {
        Instance {
            endpoint,
            service,
            source,
            priority: 0,
            weight: 100,
            state: State::Active,
            arm: ArmName::Egress,
            health: Health::default(),
            port_names: SmallVec::new(),
            placement: None,
            probe: None,
        }
    }

    /// Returns the state that results from the source's state, the weight and the health check:
    /// - An active instance of weight 0 is in maintenance.
    /// - Other active instances, and terminating ones, are quarantined while their health check
    ///   fails.
    /// - Other terminating instances of weight 0 are terminating and not serving.
    /// - All other instances are in the source's state.
    pub fn effective(&self) -> State {
        match self.state {
            State::Active if self.weight == 0 => State::Maintenance,
            State::Active | State::Terminating if self.health.unhealthy => State::Quarantined,
            State::Terminating if self.weight == 0 => State::TerminatingNotServing,
            state => state,
        }
    }
}

/// Returns the state of those backends that get new flows: the active ones, or the terminating ones
/// if none is active. Returns `None` if no backend gets new flows.
pub fn new_flow_state<'a>(backends: impl Iterator<Item = &'a Instance>) -> Option<State> {
    let serving = backends.map(Instance::effective);
    serving.filter(|state| matches!(state, State::Active | State::Terminating)).min()
}

/// Sorts backends into slot order: healthy before unhealthy, then by effective state, then by
/// endpoint. Returns how many of them, from the first, get new flows: the active ones, or the
/// terminating ones if none is active.
pub fn arrange(backends: &mut [Arc<Instance>]) -> usize {
    backends
        .sort_by_key(|backend| (backend.health.unhealthy, backend.effective(), backend.endpoint));
    // An unhealthy instance is never effectively `Active` or `Terminating`. These are the first two
    // states, so their instances come first.
    let first = |state| backends.partition_point(|backend| backend.effective() == state);
    match first(State::Active) {
        0 => first(State::Terminating),
        active => active,
    }
}
