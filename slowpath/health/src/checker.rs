//! The health checker: connects tables, scheduler and probes in one task. The task has a thread of
//! its own, so that the checker and the control loop never wait for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime};

use state::address::Endpoint;
use state::appliance::Appliance;
use state::name::Name;
use state::tables::Tables;
use state::writer::Writer;
use tokio::sync::{mpsc, oneshot};

use crate::counters::Counters;
use crate::node_port::{self, AbleFn, ListenerSettings, NodePorts};
use crate::plan::{self, ProbeSettings, Target};
use crate::probe::probe;
use crate::report::Row;
use crate::scheduler::{BackendStatus, ProbeResult, Scheduler, Start, Token, Verdict};
use crate::tls::TlsConfigs;
use crate::verdict::HealthState;

/// Condition of a service, false if some of its backends cannot be probed.
pub const PROBED: &str = "Probed";
/// Condition of a service, false if its health check port cannot be opened.
pub const PORT: &str = "HealthCheckPort";

/// Request for the status of all backends.
pub type StatusRequest = oneshot::Sender<Vec<Row>>;

/// Event for the control loop. Events may be repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HealthEvent {
    /// A verdict to write to the tables.
    Verdict(Verdict),
    /// The backend of the service is no longer checked.
    Unchecked(Name, Endpoint),
    /// A condition of a service, and the error if the condition is false.
    Condition(Name, &'static str, Option<String>),
}

/// Inputs of the checker.
pub struct Inputs {
    /// Writer whose tables are watched; the checker does not write them.
    pub writer: Arc<Writer>,
    /// Health check settings, and how probes of each arm enter the data plane's tunnels.
    pub settings: ProbeSettings,
    /// Defines which backends are local.
    pub appliance: Arc<Appliance>,
    /// Returns whether the appliance is able (see ARCHITECTURE.md, invariant 10).
    pub is_able: AbleFn,
    /// Seed of the jitter.
    pub seed: u64,
    /// Listener settings of health check ports.
    pub ports: ListenerSettings,
    /// Channel to the control loop.
    pub events: Sender<HealthEvent>,
    /// Counters to update.
    pub counters: Arc<Counters>,
}

struct Checker {
    inputs: Inputs,
    scheduler: Scheduler<Target>,
    ports: NodePorts,
    tls_configs: TlsConfigs,
    /// Revision of the tables up to which changes have been processed.
    observed: u64,
    /// Backends that cannot be probed, and the reason.
    unprobed: BTreeMap<(Name, Endpoint), String>,
    /// Services whose condition [`PROBED`] was false in the last event.
    failing: BTreeSet<Name>,
    results: mpsc::UnboundedSender<(Token, ProbeResult)>,
}

/// Runs the checker until the channel of status requests closes. Must be called within a tokio
/// runtime, on which the probes and the listeners of health check ports run too.
pub async fn run(inputs: Inputs, mut requests: mpsc::Receiver<StatusRequest>) {
    let mut tables = inputs.writer.subscribe();
    let (results, mut completed) = mpsc::unbounded_channel();
    let mut checker = Checker {
        scheduler: Scheduler::new(inputs.settings.probing.at_once as usize, inputs.seed),
        ports: NodePorts::new(Arc::clone(&inputs.is_able), inputs.ports.clone()),
        tls_configs: TlsConfigs::default(),
        observed: 0,
        unprobed: BTreeMap::new(),
        failing: BTreeSet::new(),
        results,
        inputs,
    };
    checker.apply_changes();
    loop {
        checker.start_probes();
        let due =
            [checker.scheduler.next_due(), checker.ports.retry_at()].into_iter().flatten().min();
        let due = async {
            match due {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = tables.changed() => match changed {
                Ok(()) => checker.apply_changes(),
                Err(_) => return,
            },
            Some((token, result)) = completed.recv() => {
                checker.handle_result(token, result);
                while let Ok((token, result)) = completed.try_recv() {
                    checker.handle_result(token, result);
                }
            }
            request = requests.recv() => match request {
                // The receiver may be gone.
                Some(request) => drop(request.send(checker.rows())),
                None => return,
            },
            () = due => checker.retry_ports(),
        }
    }
}

impl Checker {
    /// Updates every service whose rows have changed since the last call, or all services if the
    /// tables no longer know which ones have.
    fn apply_changes(&mut self) {
        let changes = self.inputs.writer.changes_since(self.observed);
        self.observed = changes.tables.revision();
        let touched: BTreeSet<Name> = match &changes.touched {
            Some(touched) => touched.iter().flat_map(|one| one.services.iter().cloned()).collect(),
            None => {
                let services = self.scheduler.services().chain(self.ports.services());
                let services = services.chain(&self.failing).cloned();
                services.chain(changes.tables.entries().map(|(name, _)| name.clone())).collect()
            }
        };
        for service in &touched {
            self.update_service(service, &changes.tables);
        }
        self.inputs.counters.states(self.scheduler.counts());
        self.apply_ports(Instant::now());
    }

    /// Passes a service's current rows to the scheduler and the health check ports, and emits the
    /// events that follow.
    fn update_service(&mut self, service: &Name, tables: &Tables) {
        let entry = tables.entry(service);
        let plan = entry.map(|entry| plan::plan(entry, &self.inputs.settings)).unwrap_or_default();
        let first = (service.clone(), Endpoint { addr: [0; 4].into(), port: 0, protocol: 0 });
        let old = self.unprobed.range(first..).take_while(|((name, _), _)| name == service);
        for key in old.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.unprobed.remove(&key);
        }
        let probed: BTreeSet<Endpoint> =
            plan.desired.iter().map(|(check, _)| check.endpoint).collect();
        let was_checked = self.scheduler.has(service) || !plan.unprobed.is_empty();
        for verdict in self.scheduler.set(service, plan.desired, Instant::now()) {
            self.emit(HealthEvent::Verdict(verdict));
        }
        if was_checked {
            let instances = entry.into_iter().flat_map(|entry| entry.used());
            let with_verdict = instances.filter(|instance| instance.health.since.is_some());
            for instance in with_verdict.filter(|instance| !probed.contains(&instance.endpoint)) {
                self.emit(HealthEvent::Unchecked(service.clone(), instance.endpoint));
            }
        }
        let error = plan.unprobed.first().map(|(endpoint, reason)| format!("{endpoint}: {reason}"));
        if error.is_some() || self.failing.contains(service) {
            match error {
                Some(_) => self.failing.insert(service.clone()),
                None => self.failing.remove(service),
            };
            self.emit(HealthEvent::Condition(service.clone(), PROBED, error));
        }
        let unprobed = plan.unprobed.into_iter();
        self.unprobed
            .extend(unprobed.map(|(endpoint, reason)| ((service.clone(), endpoint), reason)));
        let appliance = &self.inputs.appliance;
        let local = entry.and_then(|entry| node_port::local_backends(entry, appliance));
        self.ports.set(service, local);
        if let Some(reason) = self.ports.error(service) {
            self.emit(HealthEvent::Condition(service.clone(), PORT, Some(reason.to_owned())));
        }
    }

    fn retry_ports(&mut self) {
        let now = Instant::now();
        if self.ports.retry_at().is_some_and(|at| at <= now) {
            self.apply_ports(now);
        }
    }

    fn apply_ports(&mut self, now: Instant) {
        for service in self.ports.apply(now) {
            let error = self.ports.error(&service).map(str::to_owned);
            self.emit(HealthEvent::Condition(service, PORT, error));
        }
    }

    /// Sends an event to the control loop. If the loop has ended, the event is lost: the process is
    /// about to end as well.
    fn emit(&self, event: HealthEvent) {
        let _ = self.inputs.events.send(event);
    }

    /// Starts the probes that are due.
    fn start_probes(&mut self) {
        let now = Instant::now();
        while let Some(start) = self.scheduler.start(now) {
            let Start { token, target, timeout, delay, late } = start;
            self.inputs.counters.started(delay, late);
            let tls = target.probe_type.tls();
            let tls =
                tls.map(|tls| self.tls_configs.get(tls.authorities.as_ref(), now)).transpose();
            let results = self.results.clone();
            match tls {
                Ok(tls) => drop(tokio::spawn(async move {
                    let result = probe(&target, tls, timeout).await;
                    let _ = results.send((token, result));
                })),
                Err(reason) => {
                    let took = std::time::Duration::ZERO;
                    let result = ProbeResult { good: None, reason: reason.into(), took };
                    let _ = results.send((token, result));
                }
            }
        }
        self.inputs.counters.running(self.scheduler.running());
    }

    fn handle_result(&mut self, token: Token, result: ProbeResult) {
        self.inputs.counters.completed(&result);
        let reason = result.reason.clone();
        let Some(verdict) = self.scheduler.done(token, result, Instant::now()) else { return };
        let Verdict { service, endpoint, healthy } = &verdict;
        match healthy {
            true => {
                tracing::info!(
                    event = "backend_healthy",
                    backend = %endpoint,
                    %service,
                    %reason,
                    "backend healthy"
                )
            }
            false => {
                tracing::warn!(
                    event = "backend_unhealthy",
                    backend = %endpoint,
                    %service,
                    %reason,
                    "backend unhealthy"
                )
            }
        }
        self.inputs.counters.state_changed(*healthy);
        self.inputs.counters.states(self.scheduler.counts());
        self.emit(HealthEvent::Verdict(verdict));
    }

    fn rows(&self) -> Vec<Row> {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let tables = self.inputs.writer.tables();
        let mut rows: Vec<Row> =
            self.scheduler.statuses().map(|status| row(&status, &tables, now, wall)).collect();
        rows.extend(self.unprobed.iter().map(|((service, endpoint), reason)| Row {
            service: service.to_string(),
            backend: endpoint.to_string(),
            state: "unprobed".to_owned(),
            result: reason.clone(),
            ..Row::default()
        }));
        rows
    }
}

fn row(status: &BackendStatus<'_>, tables: &Tables, now: Instant, wall: SystemTime) -> Row {
    let instance =
        tables.entry(status.service).and_then(|entry| entry.at(&status.endpoint).first());
    let since = instance.and_then(|instance| instance.health.since);
    let since = since.filter(|_| status.state != HealthState::Unknown);
    let last = match status.last.map(|(_, result)| result.good) {
        None => "",
        Some(Some(true)) => "good",
        Some(Some(false)) => "bad",
        Some(None) => "not_run",
    };
    Row {
        service: status.service.to_string(),
        backend: status.endpoint.to_string(),
        state: status.state.as_str().to_owned(),
        since_s: since.map(|at| wall.duration_since(at).unwrap_or_default().as_secs()),
        last: last.to_owned(),
        result: status.last.map(|(_, result)| result.reason.to_string()).unwrap_or_default(),
        last_check_s_ago: status.last.map(|(at, _)| now.saturating_duration_since(*at).as_secs()),
        took_ms: status.last.map(|(_, result)| result.took.as_millis() as u64),
        next_ms: status.due.map(|at| at.saturating_duration_since(now).as_millis() as u64),
        needs: status.needs,
    }
}
