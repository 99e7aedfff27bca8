//! Azure Private Link. The crate `private-link` reconciles; this module connects it to the store
//! and to Azure.
//!
//! ```text
//!   store --> kept.rs --> private_link::run --> reach.rs --> Azure
//!     ^          |                                 ^
//!     '----------'          `weir pls` --> routes.rs
//! ```

mod kept;
mod reach;
mod routes;
mod shadowed;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use azure::arm::Arm;
use clouds::requests::Counts;
use clouds::retry::{Clock, Pause};
use config::checked::{Config, PrivateLink, PrivateLinkOwner};
use private_link::lease::Ownership;
use private_link::run::Run;
use private_link::time::Time;
use tokio::sync::watch;

use crate::sources::desired::Store;
pub use kept::{Kept, Told};
use reach::Reach;
pub use routes::{Shown, router};

/// State of private links for the API and metrics, and the clients for Azure.
#[derive(Clone)]
pub struct Desk {
    /// The objects.
    pub kept: Arc<Kept>,
    /// The client for the service's side, then that for the consumers' side if it has another
    /// identity. Empty if the configuration has no section `[private_link]`.
    reaches: Vec<Arc<Reach>>,
    pause: Arc<dyn Pause>,
}

/// Creates the state, and the task to run if the configuration has a section `[private_link]`.
pub fn open(
    config: &Config,
    store: &Arc<Store>,
) -> (Desk, Option<impl Future<Output = ()> + use<>>) {
    let kept = Arc::new(Kept::new(config, Arc::clone(store)));
    let pause: Arc<dyn Pause> = Arc::new(Clock::default());
    let Some(settings) = &config.private_link else {
        return (Desk { kept, reaches: Vec::new(), pause }, None);
    };
    // Dropping the sender cancels all outstanding requests.
    let (keep, cancel) = watch::channel(false);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let reach = |client_id: Option<&String>, seed| {
        Arc::new(Reach::new(settings, client_id.cloned(), seed, cancel.clone()))
    };
    let service = reach(settings.client_id.as_ref(), seed);
    let endpoint = settings.endpoint_client_id.as_ref().map(|other| reach(Some(other), seed ^ 1));
    let reaches = [service.clone()].into_iter().chain(endpoint.clone()).collect();
    let desk = Desk { kept, reaches, pause };
    let endpoint = endpoint.unwrap_or_else(|| service.clone());
    let run = run(config, settings, &desk, [service, endpoint]);
    let kept = Arc::clone(&desk.kept);
    let running = async move {
        tokio::select! {
            () = run.run(cancel) => {}
            () = kept.tell_shadowed() => {}
        }
        drop(keep);
    };
    (desk, Some(running))
}

impl Desk {
    /// Returns the client for the service's side.
    fn arm(&self) -> Option<&dyn Arm> {
        self.reaches.first().map(|reach| &**reach as &dyn Arm)
    }

    /// Returns the number of requests to Azure so far, summed over both identities.
    pub fn asked(&self) -> Counts {
        let mut all = Counts::new();
        for (what, times) in self.reaches.iter().flat_map(|reach| reach.asked()) {
            *all.entry(what).or_default() += times;
        }
        all
    }
}

fn run(
    config: &Config,
    settings: &PrivateLink,
    desk: &Desk,
    [service, endpoint]: [Arc<Reach>; 2],
) -> Run {
    Run {
        objects: Arc::clone(&desk.kept) as _,
        service,
        endpoint,
        pause: Arc::clone(&desk.pause),
        clock: Arc::new(Time::now),
        settings: private_link::Settings { fleet: settings.fleet.clone() },
        me: config.name.clone(),
        ownership: match &settings.owner {
            PrivateLinkOwner::Named(name) => Ownership::Named(name.clone()),
            PrivateLinkOwner::Lease(zone) => {
                Ownership::Lease { zone: zone.clone(), period: settings.lease }
            }
        },
    }
}
