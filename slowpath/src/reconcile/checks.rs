//! Health checker events: the control loop writes their verdicts through the tables' writer.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use health::checker::Told;
use health::machine::Verdict;
use state::reconcile::Now;
use state::writer::Writer;

use super::Reconcile;
use crate::kernel::probe_addresses::ProbeAddresses;

/// Maximum number of events taken in one step.
const AT_ONCE: usize = 4096;

impl Reconcile<'_> {
    /// Returns the tables' writer for a health checker, and the sender of its events. A former
    /// sender is disconnected.
    pub fn checked(&mut self) -> (Arc<Writer>, Sender<Told>) {
        let (tell, told) = channel();
        self.checker = Some(told);
        (Arc::clone(&self.desired.writer), tell)
    }

    /// Sets the source addresses of probes through tunnels, which the loop maintains from now on.
    pub fn keep_addresses(&mut self, addresses: ProbeAddresses) {
        self.probe_addresses = Some(addresses);
    }

    /// Writes the verdicts received since the last step. Does not block.
    pub(super) fn hear_checker(&mut self, time: Now) {
        let Some(checker) = &self.checker else { return };
        let told: Vec<Told> = checker.try_iter().take(AT_ONCE).collect();
        if told.is_empty() {
            return;
        }
        let before = self.desired.writer.tables().revision();
        let mut transaction = self.desired.writer.begin(time.wall);
        for told in &told {
            match told {
                Told::Verdict(Verdict { service, endpoint, healthy }) => {
                    let written = transaction.update_backend_health(service, endpoint, *healthy);
                    if let Err(gone) = written {
                        tracing::debug!("a verdict comes too late: {gone}");
                    }
                }
                Told::Unchecked(service, endpoint) => {
                    transaction.forget_backend_health(service, endpoint);
                }
                Told::Condition(..) => {}
            }
        }
        let news = transaction.commit() != before;
        for told in told {
            if let Told::Condition(service, aspect, trouble) = told {
                self.desired.note(&service, aspect, trouble, time.wall);
            }
        }
        if news {
            self.publish_wanted();
        }
    }
}
