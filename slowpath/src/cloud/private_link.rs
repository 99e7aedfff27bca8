//! Azure Private Link. The crate `private-link` reconciles private link objects with Azure; this
//! module gives it the objects of the store and the clients for Azure.
//!
//! ```text
//!   store --> store.rs --> private_link::controller --> arm_client.rs --> Azure
//!     ^          |                                  ^
//!     '----------'           `weir pls` --> routes.rs
//! ```

mod arm_client;
mod routes;
mod shadowed;
mod store;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use azure::arm::Arm;
use clouds::requests::Counts;
use clouds::retry::{Clock, Pause};
use config::checked::{Config, PrivateLink, PrivateLinkOwner};
use private_link::controller::Controller;
use private_link::lease::Ownership;
use private_link::time::Time;
use tokio::sync::watch;

use crate::sources::desired::Store;
use arm_client::ArmClient;
pub use routes::{LinkDetail, calls};
pub use store::{LinkEvent, StoredLinks};

/// State of private links for the API and metrics, and the clients for Azure.
#[derive(Clone)]
pub struct PrivateLinkState {
    /// The objects.
    pub links: Arc<StoredLinks>,
    /// The client for private link services, then the client for private endpoints if
    /// `endpoint_client_id` names another identity for these. Empty if the configuration has no
    /// section `[private_link]`.
    clients: Vec<Arc<ArmClient>>,
    pause: Arc<dyn Pause>,
}

/// Creates the state, and the task to run if the configuration has a section `[private_link]`.
pub fn open(
    config: &Config,
    store: &Arc<Store>,
) -> (PrivateLinkState, Option<impl Future<Output = ()> + use<>>) {
    let links = Arc::new(StoredLinks::new(config, Arc::clone(store)));
    let pause: Arc<dyn Pause> = Arc::new(Clock::default());
    let Some(settings) = &config.private_link else {
        return (PrivateLinkState { links, clients: Vec::new(), pause }, None);
    };
    // Dropping the sender cancels all outstanding requests.
    let (cancel_guard, cancel) = watch::channel(false);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let client = |client_id: Option<&String>, seed| {
        Arc::new(ArmClient::new(settings, client_id.cloned(), seed, cancel.clone()))
    };
    let service = client(settings.client_id.as_ref(), seed);
    let endpoint = settings.endpoint_client_id.as_ref().map(|other| client(Some(other), seed ^ 1));
    let clients = [service.clone()].into_iter().chain(endpoint.clone()).collect();
    let state = PrivateLinkState { links, clients, pause };
    let endpoint = endpoint.unwrap_or_else(|| service.clone());
    let controller = controller(config, settings, &state, [service, endpoint]);
    let links = Arc::clone(&state.links);
    let task = async move {
        tokio::select! {
            () = controller.run(cancel) => {}
            () = links.record_shadowed() => {}
        }
        drop(cancel_guard);
    };
    (state, Some(task))
}

impl PrivateLinkState {
    /// Returns the client for private link services; `None` without a section `[private_link]`.
    fn arm(&self) -> Option<&dyn Arm> {
        self.clients.first().map(|client| &**client as &dyn Arm)
    }

    /// Returns the number of requests to Azure so far by operation and outcome, summed over both
    /// identities.
    pub fn call_counts(&self) -> Counts {
        let mut all = Counts::new();
        for (operation, times) in self.clients.iter().flat_map(|client| client.call_counts()) {
            *all.entry(operation).or_default() += times;
        }
        all
    }
}

fn controller(
    config: &Config,
    settings: &PrivateLink,
    state: &PrivateLinkState,
    [service, endpoint]: [Arc<ArmClient>; 2],
) -> Controller {
    Controller {
        objects: Arc::clone(&state.links) as _,
        service,
        endpoint,
        pause: Arc::clone(&state.pause),
        clock: Arc::new(Time::now),
        settings: private_link::Settings { fleet: settings.fleet.clone() },
        appliance: config.name.clone(),
        ownership: match &settings.owner {
            PrivateLinkOwner::Named(name) => Ownership::Named(name.clone()),
            PrivateLinkOwner::Lease(zone) => {
                Ownership::Lease { zone: zone.clone(), period: settings.lease }
            }
        },
    }
}
