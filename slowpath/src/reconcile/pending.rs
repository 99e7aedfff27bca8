//! Content of the files on its way to disk and to the region.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use super::intake::PendingFiles;

/// How long a write to disk may take before the status reports it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Content that was taken and is not yet in the region.
pub(super) struct Uncommitted {
    /// Services before it.
    pub(super) services: Vec<Object>,
    /// New and former configuration, if it changed.
    pub(super) config: Option<(Arc<Config>, Arc<Config>)>,
}

/// A write that the store has not acknowledged yet.
pub(super) struct PendingWrite {
    /// What to do once it is acknowledged.
    pub(super) next: Next,
    pub(super) since: Instant,
}

pub(super) enum Next {
    /// Take the content of the files.
    Apply(PendingFiles),
    /// Roll back rejected content: the services before it, whether a configuration was rejected
    /// with them, and the reason.
    Restore(Vec<Object>, bool, String),
}

impl PendingWrite {
    /// Returns whether a rollback is in progress: the tables still contain rejected content, which
    /// must not be applied to the plane.
    pub(super) fn is_restoring(&self) -> bool {
        matches!(self.next, Next::Restore(..))
    }

    /// Returns the status text if the disk takes long.
    pub(super) fn trouble(&self, now: Instant) -> Option<String> {
        let took = now.saturating_duration_since(self.since);
        (took >= WRITE_TIMEOUT).then(|| {
            format!(
                "the disk of control.state has not answered for {} s; changes of the files take \
                 effect once it does",
                took.as_secs()
            )
        })
    }
}
