//! Content of the files on its way to disk and to the region.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use super::intake::PendingFiles;

/// How long a write to disk may take before the status reports it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// State before content that is in the tables and not yet in the region, for a rollback.
pub(super) struct Uncommitted {
    /// Objects of the files before it.
    pub(super) services: Vec<Object>,
    /// New and former configuration, if it changed.
    pub(super) config: Option<(Arc<Config>, Arc<Config>)>,
}

/// A write that the store has not acknowledged yet.
pub(super) struct PendingWrite {
    pub(super) next: Next,
    /// When the write was submitted.
    pub(super) since: Instant,
}

/// What to do once a write is acknowledged.
pub(super) enum Next {
    /// Apply this content of the files to the tables.
    Apply(PendingFiles),
    /// Roll back rejected content: the objects before it, whether the content had a new
    /// configuration, and the reason.
    Restore(Vec<Object>, bool, String),
}

impl PendingWrite {
    /// Returns whether a rollback is in progress: the tables still contain rejected content, which
    /// must not be applied to the plane.
    pub(super) fn is_restoring(&self) -> bool {
        matches!(self.next, Next::Restore(..))
    }

    /// Returns the error for the status if the disk has not completed the write for
    /// [`WRITE_TIMEOUT`].
    pub(super) fn delay_error(&self, now: Instant) -> Option<String> {
        let took = now.saturating_duration_since(self.since);
        (took >= WRITE_TIMEOUT).then(|| {
            format!(
                "the disk of control.state has not responded for {} s; changes of the files take \
                 effect once it does",
                took.as_secs()
            )
        })
    }
}
