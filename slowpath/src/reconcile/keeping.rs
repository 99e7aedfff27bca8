//! What was taken of the files and is not yet in the region, and what the store is to keep of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::Config;
use state::object::Object;

use super::intake::Waiting;

/// How long a disk may take before the status says that it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was taken and is not yet in the region.
pub(super) struct Trial {
    /// Services as they were before.
    pub(super) services: Vec<Object>,
    /// The configuration as it is now and as it was before, if it is another.
    pub(super) config: Option<(Arc<Config>, Arc<Config>)>,
}

/// What the store was told to keep and has not answered yet.
pub(super) struct Keeping {
    /// What becomes of it when it is kept.
    pub(super) next: Next,
    pub(super) since: Instant,
}

pub(super) enum Next {
    /// The files are taken.
    Take(Waiting),
    /// What was refused is taken back: services as they were before, whether a configuration was
    /// refused with them, and why.
    Back(Vec<Object>, bool, String),
}

impl Keeping {
    /// What was refused is still among the tables, and the plane is not to be told of it.
    pub(super) fn is_back(&self) -> bool {
        matches!(self.next, Next::Back(..))
    }

    /// What the status says where the disk takes long.
    pub(super) fn trouble(&self, now: Instant) -> Option<String> {
        let took = now.saturating_duration_since(self.since);
        (took >= PATIENCE).then(|| {
            format!(
                "the disk of control.state has not answered for {} s: what the files say is not \
                 in force before it has",
                took.as_secs()
            )
        })
    }
}
