//! Starts all listeners.

use std::sync::Arc;

use api::{Api, serve::ListenerResources};
use config::checked::Config;
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::cloud::private_link;
use crate::control;
use crate::health;
use crate::live::Live;
use crate::metrics;

/// Starts all listeners, each as a task. A task whose address can't be bound retries and does not
/// delay the others. None of these tasks ends.
pub fn start<E: Send + 'static>(
    tasks: &mut JoinSet<Result<(), E>>,
    config: &Config,
    live: &Arc<Live>,
    (socket, api, links): (UnixListener, Api, private_link::PrivateLinkState),
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
    let (addr, of_metrics) = (config.metrics.listen, Arc::clone(live));
    let (conditions, slots) = (Arc::clone(&listening.conditions), Arc::clone(&listening.metrics));
    tasks.spawn(async move {
        let listener = conditions.listen("metrics.listen", addr).await;
        metrics::serve(listener, slots, of_metrics).await;
        Ok(())
    });
    if let (Some(settings), Some(credentials)) = (&config.api, &listening.credentials) {
        let resources = ListenerResources {
            slots: Arc::clone(&listening.api),
            conditions: Arc::clone(&listening.conditions),
            auth_failures: Arc::clone(&listening.auth_failures),
            credentials: Arc::clone(credentials),
        };
        for addr in settings.listen.iter().copied() {
            let (resources, api) = (resources.clone(), api.clone());
            tasks.spawn(async move {
                api::serve::serve(addr, resources, api).await;
                Ok(())
            });
        }
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
