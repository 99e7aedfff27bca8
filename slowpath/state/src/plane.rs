//! What moves packets, as the reconciler sees it.

use std::fmt;
use std::sync::Arc;

use tables::maglev::{self, MaglevBackend};

use crate::address::{Address, Endpoint};
use crate::backend::{Instance, arrange};
use crate::dump::Record;
use crate::frontend::Frontend;

/// Number of a committed table set.
pub type Generation = u32;

/// Said of a frontend whose backends are there and get no new flows.
pub const NOBODY_SERVES: &str = "no backend is healthy and serving";

/// All that a plane has to know of one frontend; nothing to look up.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The row: address, kind, service.
    pub frontend: Arc<Frontend>,
    /// Backends in the order of slots: by what counts of their state, then by endpoint. Those in
    /// maintenance have no slot and aren't here.
    pub backends: Vec<Arc<Instance>>,
    /// How many of them, from the first, get new flows: the active ones; where there are none, the
    /// terminating ones. The others keep their flows.
    pub serving: usize,
    /// Why nobody serves although there are backends: goes to the frontend's status.
    pub note: Option<&'static str>,
}

impl Wanted {
    /// Those that get new flows.
    pub fn serving(&self) -> &[Arc<Instance>] {
        self.backends.get(..self.serving).unwrap_or(&self.backends)
    }

    /// Refuses what no plane can do. Every plane asks this first.
    pub fn check(&self) -> Result<(), Refusal> {
        let (said, service) = (&self.frontend.said, &self.frontend.service);
        let name = &service.name;
        let proxy =
            service.spec.proxy_redirect.as_ref().filter(|proxy| proxy.takes(said.service_port));
        if let (Some(proxy), 1..) = (proxy, service.spec.affinity_s) {
            return Err(Refusal(format!(
                "service {name} has session affinity and sends port {} to the proxy at port {}, \
                 which sees to affinity itself; take away the one or the other",
                said.service_port, proxy.port
            )));
        }
        Ok(())
    }

    /// Maglev's view of those that get new flows, in their order.
    pub fn maglev(&self) -> Vec<MaglevBackend> {
        let backend = |instance: &Arc<Instance>| MaglevBackend {
            text: maglev_text(&instance.endpoint),
            weight: u32::from(instance.weight),
        };
        self.serving().iter().map(backend).collect()
    }

    /// The same with these endpoints quarantined, as far as no health checker has said anything of
    /// them yet.
    pub fn with_quarantined(&self, endpoints: &[Endpoint]) -> Wanted {
        let mut wanted = self.clone();
        for instance in &mut wanted.backends {
            if instance.health.since.is_none() && endpoints.contains(&instance.endpoint) {
                Arc::make_mut(instance).health.unhealthy = true;
            }
        }
        wanted.serving = arrange(&mut wanted.backends);
        if wanted.serving == 0 && !wanted.backends.is_empty() {
            wanted.note = Some(NOBODY_SERVES);
        }
        wanted
    }
}

/// The text of a backend at an endpoint in Maglev tables.
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

/// Why a plane doesn't do what it was told, in the operator's words: which setting to raise.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    /// With these words.
    pub fn new(text: impl fmt::Display) -> Refusal {
        Refusal(text.to_string())
    }
}

/// What moves packets. Everything may be said again and again: what is so already changes nothing.
///
/// `begin`, any number of `update`, `delete` and `prune`, then `commit`: one batch is one
/// generation. A refusal of one frontend leaves that frontend as it was before the batch or as it
/// shall be, and never holds up the others.
pub trait Plane {
    /// Begins a batch.
    fn begin(&mut self) -> Result<(), Refusal>;

    /// This frontend shall be, and be so.
    fn update(&mut self, wanted: &Wanted) -> Result<(), Refusal>;

    /// No frontend shall be at this address.
    fn delete(&mut self, address: &Address) -> Result<(), Refusal>;

    /// Takes away what `wanted` says no to: frontends whose address isn't wanted, and whatever lies
    /// about that no frontend needs; at most so many of them, and tells whether that was all. Not
    /// before every source has said all that it knows.
    fn prune(&mut self, wanted: &dyn Fn(&Address) -> bool, at_most: usize)
    -> Result<bool, Refusal>;

    /// Makes the batch visible, and tells its generation: the same as before when nothing changed.
    fn commit(&mut self) -> Result<Generation, Refusal>;

    /// The generation that all lcores have acknowledged; none while nobody moves packets.
    fn acknowledged(&self) -> Option<Generation>;

    /// Backends that the plane holds as quarantined, by frontend, from before it was told anything:
    /// after a restart they stay so until a health checker has looked.
    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        Vec::new()
    }

    /// What is there, in no order; [`crate::dump::text`] makes lines of it.
    fn dump(&self) -> Vec<Record>;
}
