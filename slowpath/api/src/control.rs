//! The state that the API serves: the objects, and the control loop behind [`Control`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use state::appliance::Appliance;
use state::reconcile::Now;
use state::sources::{Settings, Sources};
use state::store::{AnyDisk, Shared};
use state::tables::Tables;
use tokio::sync::oneshot;

use crate::audit::Audit;
use crate::credentials::Credentials;
use crate::documents::Document;
use crate::problem::Problem;
use crate::wait::{Outcome, Wait, WrittenObject};

/// Interface of the running appliance. Methods are called from many threads and must not block.
pub trait Control: Send + Sync {
    /// Returns the current tables, and the appliance's attributes that backend selection uses.
    fn tables(&self) -> (Tables, Arc<Appliance>);

    /// Registers a waiter. The outcome is sent once the write is in force or rejected, which may
    /// never happen: the caller applies its own timeout.
    fn wait(&self, wait: Wait);

    /// Returns the sources' settings of the configuration in force.
    fn sources(&self) -> Settings;

    /// Records a request whose response begins now: method, pattern of the path unless no route
    /// matched, status, and when the request began.
    fn request_done(&self, method: &str, route: Option<&str>, status: u16, began: Instant) {
        let _ = (method, route, status, began);
    }

    /// Returns the current time, for the leases of sources.
    fn now(&self) -> Now {
        Now { steady: Instant::now(), wall: SystemTime::now() }
    }
}

/// Shared state of all handlers.
#[derive(Clone)]
pub struct Api {
    /// The store of objects.
    pub store: Arc<Shared<AnyDisk>>,
    /// The running appliance.
    pub control: Arc<dyn Control>,
    /// Sessions and leases of sources. The lock is held while a source's write waits for the disk.
    pub sources: Arc<Mutex<Sources>>,
    /// Further read-only documents, neither objects nor tables.
    pub documents: Arc<[Document]>,
    /// The audit log.
    pub audit: Audit,
    /// Credentials of listeners over TCP; `None` if none needs any.
    pub credentials: Option<Arc<Credentials>>,
}

/// Waits up to `timeout` until the write is in force. Returns false if there was no outcome by
/// then: the write is stored and still being applied.
pub(crate) async fn wait_until_in_force(
    api: &Api,
    revision: u64,
    (objects, is_complete_list): (Vec<WrittenObject>, bool),
    timeout: Duration,
) -> Result<bool, Problem> {
    let (answer, outcome) = oneshot::channel();
    api.control.wait(Wait { revision, objects, is_complete_list, answer });
    match tokio::time::timeout(timeout, outcome).await {
        Ok(Ok(Outcome::InForce)) => Ok(true),
        Ok(Ok(Outcome::Rejected { object, reason })) => {
            Err(Problem::not_in_force(object.to_string(), reason))
        }
        Ok(Err(_)) | Err(_) => Ok(false),
    }
}
