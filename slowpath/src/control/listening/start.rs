//! Starts all listeners.

use std::sync::Arc;

use api::Api;
use api::principal::Listener;
use api::serve::ListenerResources;
use config::checked::Config;
use listeners::Slots;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::cloud::private_link;
use crate::control;
use crate::control::peer::Groups;
use crate::health;
use crate::live::Live;
use crate::metrics;
use crate::page;

/// Starts all listeners, each as a task, and the task that watches the files of credentials. A task
/// whose address can't be bound retries and does not delay the others. None of these tasks ends.
pub fn start<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    config: &Config,
    live: &Arc<Live>,
    (socket, api, links): ((UnixListener, Groups), Api, private_link::PrivateLinkState),
) {
    let listening = live.listening();
    for (addr, slots) in &listening.health {
        let (addr, slots, of_health) = (*addr, Arc::clone(slots), Arc::clone(live));
        let conditions = Arc::clone(&listening.conditions);
        tasks.spawn(async move {
            let listener = conditions.listen("health.listen", addr).await;
            health::serve_http(listener, slots, move || of_health.able()).await;
            Ok(())
        });
    }
    for (addr, slots) in &listening.health_tcp {
        let (addr, slots, able) = (*addr, Arc::clone(slots), live.watch_able());
        let conditions = Arc::clone(&listening.conditions);
        tasks.spawn(async move {
            health::serve_tcp((&conditions, "health.tcp"), addr, slots, able).await;
            Ok(())
        });
    }
    let resources = |slots: &Arc<Slots>| ListenerResources {
        slots: Arc::clone(slots),
        conditions: Arc::clone(&listening.conditions),
        auth_failures: Arc::clone(&listening.auth_failures),
        credentials: listening.credentials.clone(),
        audit: api.audit.clone(),
        browser: None,
    };
    let hosts = config.api.as_ref().map(|settings| settings.hosts.clone());
    let browser = hosts.map(|hosts| page::start(live, &api.store, hosts));
    let of_api = config.api.iter().flat_map(|settings| &settings.listen);
    let of_api = of_api.map(|addr| (addr, Listener::Api, &listening.api));
    let of_metrics = config.metrics.listen.iter();
    let of_metrics = of_metrics.map(|addr| (addr, Listener::Metrics, &listening.metrics));
    for (addr, listener, slots) in of_api.chain(of_metrics) {
        let app = match listener {
            Listener::Metrics => metrics::calls().with_state(Arc::clone(live)).into_router(),
            Listener::Api | Listener::Socket => api::router(api.clone()),
        };
        let browser = browser.clone().filter(|_| listener == Listener::Api);
        let (addr, resources) = (*addr, ListenerResources { browser, ..resources(slots) });
        tasks.spawn(async move {
            api::serve::serve(addr, listener, resources, app).await;
            Ok(())
        });
    }
    if let Some(credentials) = &listening.credentials {
        let credentials = Arc::clone(credentials);
        tasks.spawn(async move {
            api::credentials::watch(credentials).await;
            Ok(())
        });
    }
    let (slots, of_control) = (Arc::clone(&listening.control), Arc::clone(live));
    tasks.spawn(async move {
        control::serve(socket, slots, of_control, api, links).await;
        Ok(())
    });
}
