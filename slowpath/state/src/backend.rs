//! Backends: instances of services at endpoints.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use config::checked::ArmName;
pub use config::services::{BackendState as State, Placement};
use smallvec::SmallVec;

use crate::address::Endpoint;
use crate::name::{Name, Source};

/// Health check verdict on an instance of one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Whether the health check failed.
    pub unhealthy: bool,
    /// Time of the verdict; `None` before the first check.
    pub since: Option<SystemTime>,
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
    /// Rank of the source in the precedence. Among the instances of one endpoint the lowest rank is
    /// used; the others are shadows.
    pub priority: u8,
    /// Weight relative to the service's other backends; 0 for no new flows.
    pub weight: u16,
    /// State, as the source wrote it.
    pub state: State,
    /// Arm through which the backend is reached.
    pub arm: ArmName,
    /// Verdict of the health check.
    pub health: Health,
    /// Names of the service's ports that the backend serves; empty for all.
    pub port_names: SmallVec<[Arc<str>; 1]>,
    /// Node and zone of the backend and its zone hints; `None` for most backends.
    pub placement: Option<Arc<Placement>>,
    /// Source address whose packets on the exception path are sent to exactly this backend.
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

    /// Returns the state that applies to this service. An active instance of weight 0 is in
    /// maintenance; other active and terminating instances are quarantined while their health check
    /// fails; a terminating instance of weight 0 does not serve.
    pub fn effective(&self) -> State {
        match self.state {
            State::Active if self.weight == 0 => State::Maintenance,
            State::Active | State::Terminating if self.health.unhealthy => State::Quarantined,
            State::Terminating if self.weight == 0 => State::TerminatingNotServing,
            state => state,
        }
    }
}

/// Sorts backends into slot order: healthy before unhealthy, then by effective state, then by
/// endpoint. Returns how many of them, from the first, get new flows.
pub fn arrange(backends: &mut [Arc<Instance>]) -> usize {
    backends
        .sort_by_key(|backend| (backend.health.unhealthy, backend.effective(), backend.endpoint));
    // The effective states `Active` and `Terminating` exclude instances that failed their health
    // check, so their instances come first.
    let first = |state| backends.partition_point(|backend| backend.effective() == state);
    match first(State::Active) {
        0 => first(State::Terminating),
        active => active,
    }
}
