//! Inputs of BGP's control loop, and the conditions of policies that are written after each of its
//! rounds.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use announce::controller::{ObservedState, ReconcileError, StateSource};
use announce::select;
use announce::snapshot::{Acknowledged, ControlPlaneState, Plane};
use state::labels::Pairs;
use state::store::WriteRequest;

use super::conditions;
use crate::live::{DesiredState, Live};
use crate::sources::desired::Store;

/// Source of the inputs, and destination of the conditions.
pub(super) struct Inputs {
    live: Arc<Live>,
    store: Arc<Store>,
    /// Whether the process is shutting down.
    leaving: Arc<AtomicBool>,
    acknowledged: Acknowledged,
    /// Whether a write of conditions is in progress.
    writing: Arc<AtomicBool>,
    /// The desired state as of the last [`StateSource::observe`].
    observed: DesiredState,
}

impl Inputs {
    pub(super) fn new(live: Arc<Live>, store: Arc<Store>, leaving: Arc<AtomicBool>) -> Inputs {
        let (acknowledged, observed) = (Acknowledged::default(), DesiredState::default());
        Inputs { live, store, leaving, acknowledged, writing: Arc::default(), observed }
    }

    fn plane(&mut self) -> Plane {
        let DesiredState { tables, appliance, .. } = self.observed.clone();
        let shared = self.live.shared();
        let forwarding = shared.forwarding();
        let addresses = self.live.config.arms().flat_map(|(_, arm)| &arm.addresses);
        Plane {
            forwarding: forwarding == Some(true),
            draining: self.live.region.draining() || self.leaving.load(Ordering::Relaxed),
            // A plane that forwards no traffic counts as complete: neighbors that retain routes for
            // graceful restart have to drop them now.
            complete: match forwarding {
                None => false,
                Some(true) => self.live.is_settled(&tables),
                Some(false) => true,
            },
            owned: addresses.map(|interface| interface.addr).collect::<BTreeSet<IpAddr>>(),
            acknowledged: self.acknowledged.update(&tables),
            tables,
            appliance,
        }
    }
}

impl StateSource for Inputs {
    fn observe(&mut self) -> ObservedState {
        let taken = Instant::now();
        self.observed = self.live.desired();
        let plane = self.plane();
        let config = &self.live.config;
        // Next hop of advertised routes: the ingress port.
        let port = config.ingress.addresses.iter().map(|interface| interface.addr);
        let ipv4 = port.clone().find_map(|addr| match addr {
            IpAddr::V4(addr) => Some(addr),
            IpAddr::V6(_) => None,
        });
        let ipv6 = port.clone().find_map(|addr| match addr {
            IpAddr::V6(addr) => Some(addr),
            IpAddr::V4(_) => None,
        });
        let notes = config.annotations.iter();
        let notes = notes.map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        let annotations: Pairs =
            (!config.annotations.is_empty()).then(|| Arc::new(notes.collect()));
        ObservedState {
            policies: select::preferred_policies(&self.observed.objects, &self.observed.precedence),
            annotations,
            state: ControlPlaneState {
                name: config.name.as_str().into(),
                labels: self.observed.appliance.labels.clone(),
                router_id: config.bgp.router_id,
                ipv4,
                ipv6,
                plane,
                ..ControlPlaneState::new(taken)
            },
        }
    }

    fn round_finished(&mut self, result: &Result<(), ReconcileError>) {
        let DesiredState { objects, appliance, precedence, .. } = &self.observed;
        let batch = conditions::status_changes(
            objects,
            precedence,
            &appliance.labels,
            result,
            SystemTime::now(),
        );
        if batch.is_empty() {
            return;
        }
        // The disk may be slow. While a write is in progress no other one is queued: the next round
        // writes what is still missing.
        if self.writing.swap(true, Ordering::Relaxed) {
            return;
        }
        let writing = Arc::clone(&self.writing);
        self.store.submit(WriteRequest::new(batch, SystemTime::now()), move |answer| {
            writing.store(false, Ordering::Relaxed);
            if let Err(error) = answer {
                tracing::debug!(
                    event = "bgp_conditions_unwritten",
                    %error,
                    "conditions of BGP policies not written"
                );
            }
        });
    }
}
