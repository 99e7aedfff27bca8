//! A frontend: an address, a port and a protocol that a service answers on.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

pub use config::services::FrontendKind as Kind;
use parking_lot::Mutex;

use crate::address::{Address, is_unspecified};
use crate::name::Name;
use crate::object::FrontendSpec;
use crate::service::Service;

/// How far a frontend has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// The plane isn't so yet, or has not acknowledged it.
    #[default]
    Pending,
    /// The plane is so, and every lcore has acknowledged the generation.
    Done,
    /// The plane refused; it is tried again.
    Error(Box<str>),
}

/// [`Progress`] and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// How far.
    pub progress: Progress,
    /// Since when.
    pub since: SystemTime,
    /// Why nobody serves although there are backends (a local policy that none matches, say);
    /// none where all is well.
    pub note: Option<&'static str>,
}

/// A row of the table. Each write makes a new one with a status of its own, so that what a plane
/// says late of an older row cannot be taken for the newer.
pub struct Frontend {
    /// What its source said.
    pub said: FrontendSpec,
    /// The service, as it was when this row was written.
    pub service: Arc<Service>,
    /// Another service, whose backends are used instead.
    pub redirect_to: Option<Name>,
    /// Revision of the write.
    pub revision: u64,
    status: Mutex<KeptStatus>,
}

/// A status as it is kept. Most frontends are pending or done with nothing to note, and there are
/// many of them.
enum KeptStatus {
    Plain { is_done: bool, since: SystemTime },
    Full(Box<Status>),
}

impl From<Status> for KeptStatus {
    fn from(status: Status) -> KeptStatus {
        let since = status.since;
        match (&status.progress, status.note) {
            (Progress::Pending, None) => KeptStatus::Plain { is_done: false, since },
            (Progress::Done, None) => KeptStatus::Plain { is_done: true, since },
            _ => KeptStatus::Full(Box::new(status)),
        }
    }
}

impl KeptStatus {
    fn status(&self) -> Status {
        match self {
            KeptStatus::Plain { is_done, since } => {
                let progress = if *is_done { Progress::Done } else { Progress::Pending };
                Status { progress, since: *since, note: None }
            }
            KeptStatus::Full(status) => Status::clone(status),
        }
    }
}

impl Frontend {
    /// A new row, pending since `now`.
    pub fn new(
        said: FrontendSpec,
        service: Arc<Service>,
        redirect_to: Option<Name>,
        revision: u64,
        now: SystemTime,
    ) -> Frontend {
        let status = KeptStatus::Plain { is_done: false, since: now };
        Frontend { said, service, redirect_to, revision, status: Mutex::new(status) }
    }

    /// What it answers on.
    pub fn address(&self) -> &Address {
        &self.said.address
    }

    /// How far this row has come.
    pub fn status(&self) -> Status {
        self.status.lock().status()
    }

    /// Notes how far this row has come; `since` moves only when that is news.
    pub fn set_status(&self, progress: Progress, note: Option<&'static str>, now: SystemTime) {
        let mut kept = self.status.lock();
        let before = kept.status();
        let since = if before.progress == progress { before.since } else { now };
        *kept = Status { progress, since, note }.into();
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ({:?})", self.said.address, self.service.name, self.status())
    }
}

/// Whether a frontend is for all addresses of the appliance.
pub fn is_wildcard(said: &FrontendSpec) -> bool {
    matches!(said.kind, Kind::NodePort | Kind::HostPort) && is_unspecified(&said.address)
}
