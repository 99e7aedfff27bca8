//! Frontends: address, port and protocol on which a service is reachable.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

pub use config::services::FrontendKind as Kind;
use parking_lot::Mutex;

use crate::address::{Address, is_unspecified};
use crate::name::Name;
use crate::object::FrontendSpec;
use crate::service::Service;

/// Progress of the plane with a frontend's row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// The plane does not have the row yet, or not every lcore has acknowledged it.
    #[default]
    Pending,
    /// The plane has the row, and every lcore has acknowledged its generation.
    Done,
    /// The plane rejected the row with this message. The reconciler retries the write.
    Error(Box<str>),
}

/// Status of a frontend: [`Progress`], the time of its last change, and a note.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Progress of the row.
    pub progress: Progress,
    /// Time of the last change of `progress`.
    pub since: SystemTime,
    /// Reason why no backend serves, for example a local traffic policy that no backend matches.
    /// `None` if a backend serves, or if the frontend is not redirected and its service has no
    /// backends.
    pub note: Option<&'static str>,
}

/// Row of the frontend table. Each write creates a new row with its own status, so that a late
/// result for an older row never changes the status of the newer row.
pub struct Frontend {
    /// Frontend, as its source wrote it.
    pub spec: FrontendSpec,
    /// Service that owns the frontend, as it was when this row was written.
    pub service: Arc<Service>,
    /// Service whose backends are used instead of those of `service`; `None` if the frontend is not
    /// redirected.
    pub redirect_to: Option<Name>,
    /// Revision of the write that created this row.
    pub revision: u64,
    status: Mutex<CompactStatus>,
}

/// Compact form of [`Status`]. Tables have many frontends, and most of them are pending or done
/// without a note, which needs no allocation.
enum CompactStatus {
    Plain { is_done: bool, since: SystemTime },
    Full(Box<Status>),
}

impl From<Status> for CompactStatus {
    fn from(status: Status) -> CompactStatus {
        let since = status.since;
        match (&status.progress, status.note) {
            (Progress::Pending, None) => CompactStatus::Plain { is_done: false, since },
            (Progress::Done, None) => CompactStatus::Plain { is_done: true, since },
            _ => CompactStatus::Full(Box::new(status)),
        }
    }
}

impl CompactStatus {
    fn status(&self) -> Status {
        match self {
            CompactStatus::Plain { is_done, since } => {
                let progress = if *is_done { Progress::Done } else { Progress::Pending };
                Status { progress, since: *since, note: None }
            }
            CompactStatus::Full(status) => Status::clone(status),
        }
    }
}

impl Frontend {
    /// Creates a row that is pending since `now`.
    pub fn new(
        spec: FrontendSpec,
        service: Arc<Service>,
        redirect_to: Option<Name>,
        revision: u64,
        now: SystemTime,
    ) -> Frontend {
        let status = CompactStatus::Plain { is_done: false, since: now };
        Frontend { spec, service, redirect_to, revision, status: Mutex::new(status) }
    }

    /// Returns the address, port and protocol of the frontend.
    pub fn address(&self) -> &Address {
        &self.spec.address
    }

    /// Returns the status of this row.
    pub fn status(&self) -> Status {
        self.status.lock().status()
    }

    /// Sets the status of this row; `since` changes only if `progress` does.
    pub fn set_status(&self, progress: Progress, note: Option<&'static str>, now: SystemTime) {
        let mut compact = self.status.lock();
        let before = compact.status();
        let since = if before.progress == progress { before.since } else { now };
        *compact = Status { progress, since, note }.into();
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ({:?})", self.spec.address, self.service.name, self.status())
    }
}

/// Returns whether a frontend is a node port or host port on all addresses of the appliance.
pub fn is_wildcard(spec: &FrontendSpec) -> bool {
    matches!(spec.kind, Kind::NodePort | Kind::HostPort) && is_unspecified(&spec.address)
}
