//! What was read of the files, and what became of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use config::checked::Config;

use crate::cloud::followed::Followed;
use crate::control::report::FileStatus;
use crate::sources::List;

/// What was read and is not said yet.
pub(super) struct Waiting {
    /// The configuration that the services were checked against, if it is a new one.
    pub(super) config: Option<Arc<Config>>,
    pub(super) services: List,
}

/// What became of the watched configuration file.
#[derive(Default)]
pub(super) struct Configured {
    /// Read, and not yet in force or refused: services are checked against it.
    pub(super) coming: Option<Arc<Config>>,
    pub(super) refused: Option<String>,
    pub(super) applied: Option<Instant>,
    /// What was followed last of what the cloud says.
    pub(super) followed: Followed,
}

impl Configured {
    pub(super) fn status(&self, path: &Path, now: Instant) -> FileStatus {
        FileStatus {
            path: path.display().to_string(),
            applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
            refused: self.refused.clone(),
        }
    }
}
