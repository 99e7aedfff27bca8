//! What the API works on: the objects, and the control loop behind [`Control`].

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use state::appliance::Appliance;
use state::reconcile::Now;
use state::sources::{Settings, Sources};
use state::store::{AnyDisk, Shared};
use state::tables::Tables;
use tokio::sync::oneshot;

use crate::documents::Document;
use crate::problem::Problem;
use crate::wait::{About, Outcome, Wait};

/// What the API asks of whoever runs the appliance. It is asked from many threads and must not
/// block.
pub trait Control: Send + Sync {
    /// The tables as they are, and the appliance as selection sees it.
    fn tables(&self) -> (Tables, Arc<Appliance>);

    /// Answers when what was written has come as far as it gets; never, where it doesn't: whoever
    /// asks has a time of his own.
    fn wait(&self, wait: Wait);

    /// What the configuration says of sources, as it is in force.
    fn sources(&self) -> Settings;

    /// What time it is, for sources' leases.
    fn now(&self) -> Now {
        Now { steady: Instant::now(), wall: SystemTime::now() }
    }
}

/// What the API works on.
#[derive(Clone)]
pub struct Api {
    /// The objects.
    pub store: Arc<Shared<AnyDisk>>,
    /// The appliance.
    pub control: Arc<dyn Control>,
    /// Sessions and leases of sources. Locked while a write of theirs waits for the disk.
    pub sources: Arc<Mutex<Sources>>,
    /// What there is beside objects and tables.
    pub documents: Arc<[Document]>,
}

/// Waits so long for all of it to be in force. False: it is kept, and on its way.
pub(crate) async fn until(
    api: &Api,
    revision: u64,
    (about, whole): (Vec<About>, bool),
    patience: Duration,
) -> Result<bool, Problem> {
    let (answer, come) = oneshot::channel();
    api.control.wait(Wait { revision, about, whole, answer });
    match tokio::time::timeout(patience, come).await {
        Ok(Ok(Outcome::Done)) => Ok(true),
        Ok(Ok(Outcome::Refused { object, why })) => {
            Err(Problem::not_in_force(object.to_string(), why))
        }
        Ok(Err(_)) | Err(_) => Ok(false),
    }
}
