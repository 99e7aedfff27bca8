//! Reports of the control loop to the service manager. They come from the loop's own thread, so
//! that a loop that is stuck sends no watchdog beats.

use std::sync::Arc;
use std::time::{Duration, Instant};

use host::service_manager::ServiceManager;

use crate::live::Shared;

/// Interval at which the status is compared with the one sent last.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the extensions of the stop timeout during shutdown.
pub(super) const EXTENSION_INTERVAL: Duration = Duration::from_secs(5);
/// Stop timeout that each extension sets, from the time when it is sent.
pub(super) const EXTENSION: Duration = Duration::from_secs(30);

/// The control loop's side of the service manager.
pub(super) struct LoopReports {
    manager: Arc<ServiceManager>,
    shared: Arc<Shared>,
    next_status: Option<Instant>,
}

impl LoopReports {
    pub(super) fn new(manager: Arc<ServiceManager>, shared: Arc<Shared>) -> LoopReports {
        LoopReports { manager, shared, next_status: None }
    }

    /// Reports an iteration of the loop. `is_reloaded` is whether it completed a reload.
    pub(super) fn step(&mut self, is_reloaded: bool, now: Instant) {
        self.manager.beat_if(now, || true);
        if is_reloaded {
            self.manager.ready(&self.shared.status_line());
        } else if self.next_status.is_none_or(|at| now >= at) {
            self.next_status = Some(now + STATUS_INTERVAL);
            self.manager.status(&self.shared.status_line());
        }
    }
}
