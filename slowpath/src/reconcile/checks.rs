//! Events of the health checker: the control loop writes the health verdicts (whether a backend is
//! healthy) to the tables.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use health::checker::HealthEvent;
use health::scheduler::Verdict;
use state::reconcile::Now;
use state::writer::Writer;

use super::Reconcile;
use crate::kernel::probe_addresses::ProbeAddresses;

/// Maximum number of events taken in one step, to bound its time.
const AT_ONCE: usize = 4096;

impl Reconcile<'_> {
    /// Returns the writer of the tables, through which a health checker reads them, and the sender
    /// for its events. A sender returned by an earlier call is disconnected.
    pub fn connect_checker(&mut self) -> (Arc<Writer>, Sender<HealthEvent>) {
        let (sender, events) = channel();
        self.checker = Some(events);
        (Arc::clone(&self.desired.writer), sender)
    }

    /// Makes the loop maintain the source addresses of probes through tunnels.
    pub fn set_probe_addresses(&mut self, addresses: ProbeAddresses) {
        self.probe_addresses = Some(addresses);
    }

    /// Writes the health verdicts received since the last step. Does not block.
    pub(super) fn apply_health_events(&mut self, time: Now) {
        let Some(checker) = &self.checker else { return };
        let events: Vec<HealthEvent> = checker.try_iter().take(AT_ONCE).collect();
        if events.is_empty() {
            return;
        }
        let before = self.desired.writer.tables().revision();
        let mut transaction = self.desired.writer.begin(time.wall);
        for event in &events {
            match event {
                HealthEvent::Verdict(Verdict { service, endpoint, healthy }) => {
                    let written = transaction.update_backend_health(service, endpoint, *healthy);
                    if let Err(error) = written {
                        tracing::debug!(
                            event = "health_verdict_late",
                            %error,
                            "health verdict for a removed backend"
                        );
                    }
                }
                HealthEvent::Unchecked(service, endpoint) => {
                    transaction.remove_backend_health(service, endpoint);
                }
                HealthEvent::Condition(..) => {}
            }
        }
        let changed = transaction.commit() != before;
        for event in events {
            if let HealthEvent::Condition(service, aspect, trouble) = event {
                self.desired.set_condition(&service, aspect, trouble, time.wall);
            }
        }
        if changed {
            self.publish_desired();
        }
    }
}
