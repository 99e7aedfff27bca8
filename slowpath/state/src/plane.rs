//! Interface between the reconciler and a data plane.

use std::fmt;
use std::sync::Arc;

use tables::maglev::{self, MaglevBackend};

use crate::address::{Address, Endpoint};
use crate::backend::{Instance, arrange};
use crate::dump::Record;
use crate::frontend::Frontend;

/// Number of a committed version of a plane's tables; wraps.
pub type Generation = u32;

/// Note on a frontend whose backends all get no new flows.
pub const NO_BACKEND_SERVES: &str = "no backend is healthy and serving";

/// Complete desired state of one frontend: a plane needs no other table to write it.
#[derive(Clone, Debug)]
pub struct DesiredFrontend {
    /// Row of the frontend, with its service.
    pub frontend: Arc<Frontend>,
    /// Backends in slot order: healthy before unhealthy, then by effective state, then by endpoint.
    /// Backends in maintenance have no slot and are left out.
    pub backends: Vec<Arc<Instance>>,
    /// Number of backends, from the first, that get new flows: the active ones, or the terminating
    /// ones if none is active.
    pub serving: usize,
    /// Reason why no backend serves, for the frontend's status. `None` if a backend serves, or if
    /// the frontend is not redirected and its service has no backends.
    pub note: Option<&'static str>,
}

impl DesiredFrontend {
    /// Returns the backends that get new flows.
    pub fn serving(&self) -> &[Arc<Instance>] {
        self.backends.get(..self.serving).unwrap_or(&self.backends)
    }

    /// Rejects combinations of settings that no plane supports. Every plane calls this function
    /// first in [`Plane::update`].
    pub fn check(&self) -> Result<(), PlaneError> {
        let (spec, service) = (&self.frontend.spec, &self.frontend.service);
        let name = &service.name;
        let proxy =
            service.spec.proxy_redirect.as_ref().filter(|proxy| proxy.redirects(spec.service_port));
        if let (Some(proxy), 1..) = (proxy, service.spec.affinity_s) {
            return Err(PlaneError(format!(
                "service {name} has session affinity and sends port {} to the proxy at port {}, \
                 which handles affinity itself; remove `affinity_s` or `proxy_redirect`",
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

    /// Returns a copy in which the backends at these endpoints are unhealthy, except those with a
    /// health check verdict.
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

/// Returns the text that Maglev hashes for a backend: the same as in Cilium, so that the lookup
/// tables are equal.
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

/// Reason why a plane rejects an operation: a message for the operator, which names the setting to
/// change if there is one.
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
/// one generation. If a frontend is rejected, its entries are as before the batch or as desired,
/// and the other frontends are not affected.
pub trait Plane {
    /// Begins a batch. An error means that no batch can begin now.
    fn begin(&mut self) -> Result<(), PlaneError>;

    /// Creates the frontend, or changes it to match `desired`.
    fn update(&mut self, desired: &DesiredFrontend) -> Result<(), PlaneError>;

    /// Deletes the frontend at this address, if any.
    fn delete(&mut self, address: &Address) -> Result<(), PlaneError>;

    /// Deletes frontends for whose address `desired` returns false, and other entries that no
    /// frontend uses, at most `at_most` in total. Returns whether no such frontend or entry is
    /// left. Must not be called before every source has completed its initial list.
    fn prune(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, PlaneError>;

    /// Makes the batch visible and returns its generation, or the previous generation if nothing
    /// changed. After an error, nothing of the batch is visible.
    fn commit(&mut self) -> Result<Generation, PlaneError>;

    /// Returns the generation that all lcores have acknowledged; `None` while no lcore runs.
    fn acknowledged(&self) -> Option<Generation>;

    /// Returns the backends, by frontend, that an earlier process left quarantined in the plane,
    /// because their health checks failed. The reconciler keeps them quarantined until their first
    /// health check.
    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        Vec::new()
    }

    /// Returns the contents of the plane, unsorted; [`crate::dump::text`] formats them.
    fn dump(&self) -> Vec<Record>;
}
