//! Inputs of BGP's control loop, and the conditions that it writes to policies.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use announce::controller::{Look, ReconcileError, World};
use announce::select;
use announce::snapshot::{Acknowledged, ControlPlaneState, Plane};
use state::labels::Pairs;
use state::store::Order;

use super::conditions;
use crate::live::{Live, Wanted};
use crate::sources::desired::Store;

/// The live system, and the store that the policies' conditions are written to.
pub(super) struct Around {
    live: Arc<Live>,
    store: Arc<Store>,
    /// Whether the process is shutting down.
    leaving: Arc<AtomicBool>,
    acknowledged: Acknowledged,
    /// Whether a write of conditions is in progress.
    noting: Arc<AtomicBool>,
    /// The desired state at the last look.
    seen: Wanted,
}

impl Around {
    pub(super) fn new(live: Arc<Live>, store: Arc<Store>, leaving: Arc<AtomicBool>) -> Around {
        let (acknowledged, seen) = (Acknowledged::default(), Wanted::default());
        Around { live, store, leaving, acknowledged, noting: Arc::default(), seen }
    }

    fn plane(&mut self) -> Plane {
        let Wanted { tables, appliance, .. } = self.seen.clone();
        let shared = self.live.shared();
        let carries = shared.carries();
        let addresses = self.live.config.arms().flat_map(|(_, arm)| &arm.addresses);
        Plane {
            able: carries == Some(true),
            draining: self.live.region.draining() || self.leaving.load(Ordering::Relaxed),
            // A plane that takes no traffic has nothing to wait for: neighbors that retain routes
            // for graceful restart have to drop them now.
            complete: match carries {
                None => false,
                Some(true) => self.live.is_settled(&tables),
                Some(false) => true,
            },
            owned: addresses.map(|interface| interface.addr).collect::<BTreeSet<IpAddr>>(),
            acknowledged: self.acknowledged.look(&tables),
            tables,
            appliance,
        }
    }
}

impl World for Around {
    fn look(&mut self) -> Look {
        let taken = Instant::now();
        self.seen = self.live.wanted();
        let plane = self.plane();
        let config = &self.live.config;
        // Routers send to the ingress port.
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
        Look {
            policies: select::heard(&self.seen.objects, &self.seen.precedence),
            annotations,
            state: ControlPlaneState {
                name: config.name.as_str().into(),
                labels: self.seen.appliance.labels.clone(),
                router_id: config.bgp.router_id,
                ipv4,
                ipv6,
                plane,
                ..ControlPlaneState::new(taken)
            },
        }
    }

    fn told(&mut self, result: &Result<(), ReconcileError>) {
        let Wanted { objects, appliance, precedence, .. } = &self.seen;
        let batch =
            conditions::news(objects, precedence, &appliance.labels, result, SystemTime::now());
        if batch.is_empty() {
            return;
        }
        // The disk may be slow: conditions that can't be written now are written after the next
        // round.
        if self.noting.swap(true, Ordering::Relaxed) {
            return;
        }
        let noting = Arc::clone(&self.noting);
        self.store.submit(Order::new(batch, SystemTime::now()), move |answer| {
            noting.store(false, Ordering::Relaxed);
            if let Err(refusal) = answer {
                tracing::debug!("what became of policies is not noted: {refusal}");
            }
        });
    }
}
