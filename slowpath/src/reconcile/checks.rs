//! What the health checker tells is written here: verdicts go through the writer, on this thread,
//! and never past it.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use health::checker::Told;
use health::machine::Verdict;
use state::reconcile::Now;
use state::writer::Writer;

use super::Reconcile;
use crate::kernel::probe_addresses::ProbeAddresses;

/// What is taken in one step; the rest waits for the next.
const AT_ONCE: usize = 4096;

impl Reconcile<'_> {
    /// The tables for a health checker to follow, and where it tells what it finds. Whoever asked
    /// before is heard no more.
    pub fn checked(&mut self) -> (Arc<Writer>, Sender<Told>) {
        let (tell, told) = channel();
        self.checker = Some(told);
        (Arc::clone(&self.desired.writer), tell)
    }

    /// From now on the machine has the addresses from which backends are probed through tunnels.
    pub fn keep_addresses(&mut self, addresses: ProbeAddresses) {
        self.probe_addresses = Some(addresses);
    }

    /// Writes what was told since the last step. Waits for nobody.
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
