//! Backends: instances of services at endpoints.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use config::checked::ArmName;
pub use config::services::{BackendState as State, Place};
use smallvec::SmallVec;

use crate::address::Endpoint;
use crate::name::{Name, Source};

/// What a health checker found, for one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// It failed.
    pub unhealthy: bool,
    /// When that was found; none while nobody has looked.
    pub since: Option<SystemTime>,
}

/// What a source says of a backend of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Whose backend it is.
    pub service: Name,
    /// Who said so.
    pub source: Source,
    /// The source's place in the precedence; the lowest of an endpoint is used, the others are
    /// shadows.
    pub priority: u8,
    /// Share relative to the service's other backends; 0 goes with `Maintenance`.
    pub weight: u16,
    /// What the source says.
    pub state: State,
    /// The arm behind which it is.
    pub arm: ArmName,
    /// What a health checker says.
    pub health: Health,
    /// Names of the service's ports that it serves; empty for all.
    pub port_names: SmallVec<[Arc<str>; 1]>,
    /// Where it runs, and for whom; most don't say.
    pub place: Option<Arc<Place>>,
    /// Source address whose packets on the exception path go to exactly this backend.
    pub probe: Option<IpAddr>,
}

impl Instance {
    /// An active one of weight 100, of all ports, behind the egress arm.
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
            place: None,
            probe: None,
        }
    }

    /// What counts for this service: a verdict of health comes over what the source says, and
    /// nothing of weight 0 gets new flows.
    pub fn effective(&self) -> State {
        match self.state {
            State::Active if self.weight == 0 => State::Maintenance,
            State::Active | State::Terminating if self.health.unhealthy => State::Quarantined,
            State::Terminating if self.weight == 0 => State::TerminatingNotServing,
            said => said,
        }
    }
}

/// Puts backends that come by endpoint into the order of slots, and tells how many serve.
pub fn arrange(backends: &mut [Arc<Instance>]) -> usize {
    backends
        .sort_by_key(|backend| (backend.health.unhealthy, backend.effective(), backend.endpoint));
    // Of both, no health checker has found that they failed: they come first.
    let first = |state| backends.partition_point(|backend| backend.effective() == state);
    match first(State::Active) {
        0 => first(State::Terminating),
        active => active,
    }
}
