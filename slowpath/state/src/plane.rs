//! Interface between the reconciler and a data plane.

use std::fmt;
use std::sync::Arc;

use tables::maglev::{self, MaglevBackend};

use crate::address::{Address, Endpoint};
use crate::backend::{Instance, arrange};
use crate::dump::Record;
use crate::frontend::Frontend;

/// Number of a committed table set.
pub type Generation = u32;

/// Note on a frontend that has backends, none of which gets new flows.
pub const NO_BACKEND_SERVES: &str = "no backend is healthy and serving";

/// Desired state of one frontend, complete: a plane needs no further lookup.
#[derive(Clone, Debug)]
pub struct DesiredFrontend {
    /// Row of the frontend: address, kind, service.
    pub frontend: Arc<Frontend>,
    /// Backends in slot order: healthy before unhealthy, then by effective state, then by endpoint.
    /// Backends in maintenance have no slot and are left out.
    pub backends: Vec<Arc<Instance>>,
    /// Number of backends, from the first, that get new flows: the active ones, or the terminating
    /// ones where none is active. The others keep their established flows.
    pub serving: usize,
    /// Reason why no backend serves, shown in the frontend's status; `None` if a backend serves, or
    /// the service has no backends.
    pub note: Option<&'static str>,
}

impl DesiredFrontend {
    /// Returns the backends that get new flows.
    pub fn serving(&self) -> &[Arc<Instance>] {
        self.backends.get(..self.serving).unwrap_or(&self.backends)
    }

    /// Rejects combinations that no plane supports. Every plane calls this first.
    pub fn check(&self) -> Result<(), PlaneError> {
        let (spec, service) = (&self.frontend.spec, &self.frontend.service);
        let name = &service.name;
        let proxy =
            service.spec.proxy_redirect.as_ref().filter(|proxy| proxy.takes(spec.service_port));
        if let (Some(proxy), 1..) = (proxy, service.spec.affinity_s) {
            return Err(PlaneError(format!(
                "service {name} has session affinity and sends port {} to the proxy at port {}, \
                 which handles affinity itself; remove one of the two",
                spec.service_port, proxy.port
            )));
        }
        Ok(())
    }

    /// Returns the backends that get new flows in slot order, as input for Maglev.
    pub fn maglev(&self) -> Vec<MaglevBackend> {
        let backend = |instance: &Arc<Instance>| MaglevBackend {
            text: maglev_text(&instance.endpoint),
            weight: u32::from(instance.weight),
        };
        self.serving().iter().map(backend).collect()
    }

    /// Returns a copy with these endpoints quarantined, except those that already have a health
    /// check verdict.
    pub fn with_quarantined(&self, endpoints: &[Endpoint]) -> DesiredFrontend {
        let mut desired = self.clone();
        for instance in &mut desired.backends {
            if instance.health.since.is_none() && endpoints.contains(&instance.endpoint) {
                Arc::make_mut(instance).health.unhealthy = true;
            }
        }
        desired.serving = arrange(&mut desired.backends);
        if desired.serving == 0 && !desired.backends.is_empty() {
            desired.note = Some(NO_BACKEND_SERVES);
        }
        desired
    }
}

/// Returns the text that identifies a backend in Maglev tables.
pub fn maglev_text(endpoint: &Endpoint) -> String {
    let Endpoint { addr, port, protocol } = *endpoint;
    match protocol {
        0 => maglev::text(&addr.into(), port, "ANY"),
        6 => maglev::text(&addr.into(), port, "TCP"),
        17 => maglev::text(&addr.into(), port, "UDP"),
        132 => maglev::text(&addr.into(), port, "SCTP"),
        other => maglev::text(&addr.into(), port, &other.to_string()),
    }
}

/// Reason why a plane rejects an operation, as a message for the operator with the setting to
/// change.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlaneError(pub String);

impl PlaneError {
    /// Creates an error with this message.
    pub fn new(text: impl fmt::Display) -> PlaneError {
        PlaneError(text.to_string())
    }
}

/// Data plane. All operations are idempotent.
///
/// A batch is `begin`, any number of `update`, `delete` and `prune`, then `commit`; one batch is
/// one generation. If one frontend is rejected, that frontend stays as it was before the batch or
/// becomes as desired, and the other frontends are not affected.
pub trait Plane {
    /// Begins a batch.
    fn begin(&mut self) -> Result<(), PlaneError>;

    /// Creates the frontend, or changes it to match `desired`.
    fn update(&mut self, desired: &DesiredFrontend) -> Result<(), PlaneError>;

    /// Deletes the frontend at this address, if any.
    fn delete(&mut self, address: &Address) -> Result<(), PlaneError>;

    /// Deletes frontends whose address `desired` rejects, and other entries that no frontend uses:
    /// at most `at_most` of them. Returns whether that was all. Must not be called before every
    /// source has completed its initial list.
    fn prune(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, PlaneError>;

    /// Makes the batch visible and returns its generation: the previous one if nothing changed.
    fn commit(&mut self) -> Result<Generation, PlaneError>;

    /// Returns the generation that all lcores have acknowledged; `None` while no lcore runs.
    fn acknowledged(&self) -> Option<Generation>;

    /// Returns the backends, by frontend, that were quarantined in the plane before this process
    /// wrote to it: after a restart they stay quarantined until the first health check.
    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        Vec::new()
    }

    /// Returns the contents of the plane, unsorted; [`crate::dump::text`] formats them.
    fn dump(&self) -> Vec<Record>;
}
