//! Responses on `healthCheckNodePort`: whether this appliance has local backends of a service.
//!
//! Load balancers in front of several appliances probe each of them, and send a service's packets
//! to those that respond with 200. The response is that of a Kubernetes node: the number of local
//! backends, in the body and as weight in a header. Only active backends count: terminating ones
//! still serve, but should not attract traffic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State as AxumState;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Json, Router};
use config::services::TrafficPolicy;
use listeners::{BindError, Conditions, Http, Slots};
use serde::Serialize;
use state::appliance::Appliance;
use state::backend::State;
use state::name::Name;
use state::tables::Entry;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Retry interval for ports that cannot be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Returns whether the appliance is able (see ARCHITECTURE.md, invariant 10).
pub type AbleFn = Arc<dyn Fn() -> bool + Send + Sync>;

/// Content of the responses for one service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalBackends {
    /// Health check port.
    pub port: u16,
    /// Number of distinct addresses of active backends on local nodes or in local zones.
    pub backends: usize,
}

/// Returns the content of the responses for a service, or `None` if it has no health check port.
pub fn local_backends(entry: &Entry, appliance: &Appliance) -> Option<LocalBackends> {
    let service = entry.service.as_ref()?;
    if service.spec.health_check_port == 0 || service.spec.external_policy != TrafficPolicy::Local {
        return None;
    }
    let serves = entry.used().filter(|instance| {
        instance.effective() == State::Active && appliance.is_local(instance.placement.as_deref())
    });
    let addresses: BTreeSet<_> = serves.map(|instance| instance.endpoint.addr).collect();
    Some(LocalBackends { port: service.spec.health_check_port, backends: addresses.len() })
}

/// Listener settings of health check ports.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Connection slots shared by all ports, since the number of ports depends on the services.
    pub slots: Arc<Slots>,
    /// Where listener errors are published.
    pub conditions: Arc<Conditions>,
}

/// Listeners on the health check ports of services.
pub struct NodePorts {
    is_able: AbleFn,
    listening: ListenerSettings,
    desired: BTreeMap<Name, LocalBackends>,
    open: HashMap<u16, OpenPort>,
    /// Services whose configured port could not be opened for them, with the port and the error.
    errors: BTreeMap<Name, (u16, String)>,
    retry_at: Option<Instant>,
}

/// An open port, closed on drop.
struct OpenPort {
    status: watch::Sender<PortStatus>,
    _accepts: JoinSet<()>,
}

#[derive(Clone, PartialEq, Debug)]
struct PortStatus {
    service: Name,
    local: usize,
}

#[derive(Serialize)]
struct Body<'a> {
    service: Service<'a>,
    #[serde(rename = "localEndpoints")]
    local: usize,
    #[serde(rename = "serviceProxyHealthy")]
    is_able: bool,
}

#[derive(Serialize)]
struct Service<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl NodePorts {
    /// Creates an instance without services. `is_able` is called for each request.
    pub fn new(is_able: AbleFn, listening: ListenerSettings) -> NodePorts {
        NodePorts {
            is_able,
            listening,
            desired: BTreeMap::new(),
            open: HashMap::new(),
            errors: BTreeMap::new(),
            retry_at: None,
        }
    }

    /// Sets the desired content for a service; `None` removes it.
    pub fn set(&mut self, service: &Name, local: Option<LocalBackends>) {
        match local {
            Some(local) => drop(self.desired.insert(service.clone(), local)),
            None => drop(self.desired.remove(service)),
        }
    }

    /// Returns the services with a health check port.
    pub fn services(&self) -> impl Iterator<Item = &Name> {
        self.desired.keys()
    }

    /// Returns why a service's port is not open; `None` if it is, or if the service has none.
    pub fn error(&self, service: &Name) -> Option<&str> {
        self.errors.get(service).map(|(_, why)| why.as_str())
    }

    /// Returns when to try again to open the ports that are not open; `None` if all are.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Opens, updates and closes ports until they match the desired state. Returns the services
    /// whose error has changed. Must be called within a tokio runtime.
    pub fn apply(&mut self, now: Instant) -> Vec<Name> {
        let mut owners: HashMap<u16, Name> = HashMap::new();
        let mut errors = BTreeMap::new();
        for (service, local) in &self.desired {
            if let Some(owner) = owners.get(&local.port) {
                let why = format!(
                    "health check port {} is used by service {owner}; give each service its own",
                    local.port
                );
                errors.insert(service.clone(), (local.port, why));
                continue;
            }
            owners.insert(local.port, service.clone());
            let status = PortStatus { service: service.clone(), local: local.backends };
            if let Some(open) = self.open.get(&local.port) {
                open.status.send_if_modified(|before| {
                    let is_changed = *before != status;
                    *before = status;
                    is_changed
                });
                continue;
            }
            match listen(local.port, status, &self.is_able, &self.listening.slots) {
                Ok(open) => drop(self.open.insert(local.port, open)),
                Err(e) => {
                    let why = bind_error_text(local.port, &e);
                    errors.insert(service.clone(), (local.port, why));
                }
            }
        }
        self.open.retain(|port, _| owners.contains_key(port));
        self.retry_at = (!errors.is_empty()).then_some(now + RETRY_INTERVAL);
        let before = std::mem::replace(&mut self.errors, errors);
        self.publish_errors(&before);
        let touched: BTreeSet<&Name> = before.keys().chain(self.errors.keys()).collect();
        let changed =
            touched.into_iter().filter(|name| before.get(*name) != self.errors.get(*name));
        changed.cloned().collect()
    }

    /// Publishes the listener errors, and removes those in `before` that no longer apply.
    fn publish_errors(&self, before: &BTreeMap<Name, (u16, String)>) {
        let key = |service: &Name| format!("health_check_port of {service}");
        let conditions = &self.listening.conditions;
        for (service, (port, _)) in before {
            if self.errors.get(service).is_none_or(|(now, _)| now != port) {
                conditions.remove(&key(service), any_address(*port));
            }
        }
        for (service, (port, why)) in &self.errors {
            conditions.set(&key(service), any_address(*port), Some(why.clone()));
        }
    }
}

fn any_address(port: u16) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port).into()
}

fn bind_error_text(port: u16, error: &BindError) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "health check port {port} is in use by another process; find it with \
             `ss -ltnp 'sport = :{port}'`; retried every second"
        ),
        _ => format!("cannot listen on health check port {port}: {error}"),
    }
}

/// Listens on all addresses, because probes may use any of them.
fn listen(
    port: u16,
    status: PortStatus,
    is_able: &AbleFn,
    slots: &Arc<Slots>,
) -> Result<OpenPort, BindError> {
    let key = "health_check_port";
    let listener = listeners::bind(key, any_address(port)).or_else(|e| match e.kind() {
        io::ErrorKind::AddrInUse => Err(e),
        // The machine may have no IPv6.
        _ => listeners::bind(key, (Ipv4Addr::UNSPECIFIED, port).into()),
    })?;
    let (sender, receiver) = watch::channel(status);
    let app = Router::new().fallback(respond).with_state((receiver, Arc::clone(is_able)));
    let mut accepts = JoinSet::new();
    accepts.spawn(listeners::accept(listener, Arc::clone(slots), move |stream, connection| {
        listeners::http(stream, connection, app.clone(), Http::OneRequest)
    }));
    Ok(OpenPort { status: sender, _accepts: accepts })
}

/// Responds on any path, because clients are only configured with the port.
async fn respond(
    AxumState((receiver, is_able)): AxumState<(watch::Receiver<PortStatus>, AbleFn)>,
) -> impl IntoResponse {
    let PortStatus { service, local } = receiver.borrow().clone();
    let is_able = is_able();
    let (_, namespace, name) = service.parts();
    let code = match is_able && local > 0 {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let weight = [
        ("x-load-balancing-endpoint-weight", local.to_string()),
        ("x-content-type-options", "nosniff".to_owned()),
    ];
    let body = Json(Body { service: Service { namespace, name }, local, is_able });
    (code, weight, body).into_response()
}

#[cfg(test)]
mod tests;
