//! The health checker: connects tables, scheduler and probes in one task on a thread of its own, so
//! that it and the control loop never wait for each other.

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
use crate::judge::Standing;
use crate::machine::{Answer, Known, Machine, Start, Token, Verdict};
use crate::node_port::{self, Able, Listening, NodePorts};
use crate::plan::{self, Place, Target};
use crate::probe::probe;
use crate::report::Row;
use crate::tls::Believed;

/// Condition of a service, false if some of its backends cannot be probed.
pub const PROBED: &str = "Probed";
/// Condition of a service, false if its health check port cannot be opened.
pub const PORT: &str = "HealthCheckPort";

/// Request for the status of all backends.
pub type Question = oneshot::Sender<Vec<Row>>;

/// Event for the control loop. Events may be repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// A verdict to write to the tables.
    Verdict(Verdict),
    /// The backend of the service is no longer checked.
    Unchecked(Name, Endpoint),
    /// A condition of a service, and its error, if any.
    Condition(Name, &'static str, Option<String>),
}

/// Inputs of the checker.
pub struct Given {
    /// Writer whose tables are watched; the checker does not write them.
    pub writer: Arc<Writer>,
    /// Health check settings and tunnel entries of the appliance.
    pub place: Place,
    /// Defines which backends are local.
    pub appliance: Arc<Appliance>,
    /// Returns whether the appliance is able to serve.
    pub able: Able,
    /// Seed of the jitter.
    pub seed: u64,
    /// Listener settings of health check ports.
    pub ports: Listening,
    /// Channel to the control loop.
    pub told: Sender<Told>,
    /// Counters to update.
    pub counters: Arc<Counters>,
}

struct Checker {
    given: Given,
    machine: Machine<Target>,
    ports: NodePorts,
    believed: Believed,
    seen: u64,
    /// Backends that cannot be probed, and the reason.
    unprobed: BTreeMap<(Name, Endpoint), String>,
    /// Services whose last `Probed` condition was false.
    troubled: BTreeSet<Name>,
    answers: mpsc::UnboundedSender<(Token, Answer)>,
}

/// Runs the checker until one of its channels closes. Requires a single-threaded tokio runtime.
pub async fn run(given: Given, mut asked: mpsc::Receiver<Question>) {
    let mut tables = given.writer.subscribe();
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut checker = Checker {
        machine: Machine::new(given.place.probing.at_once as usize, given.seed),
        ports: NodePorts::new(Arc::clone(&given.able), given.ports.clone()),
        believed: Believed::default(),
        seen: 0,
        unprobed: BTreeMap::new(),
        troubled: BTreeSet::new(),
        answers,
        given,
    };
    checker.catch_up();
    loop {
        checker.begin();
        let due = [checker.machine.next_due(), checker.ports.again()].into_iter().flatten().min();
        let due = async {
            match due {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = tables.changed() => match changed {
                Ok(()) => checker.catch_up(),
                Err(_) => return,
            },
            Some((token, answer)) = answered.recv() => {
                checker.hear(token, answer);
                while let Ok((token, answer)) = answered.try_recv() {
                    checker.hear(token, answer);
                }
            }
            question = asked.recv() => match question {
                // The requester may have gone.
                Some(question) => drop(question.send(checker.rows())),
                None => return,
            },
            () = due => checker.follow_ports(),
        }
    }
}

impl Checker {
    /// Processes the changes of the tables.
    fn catch_up(&mut self) {
        let news = self.given.writer.news(self.seen);
        self.seen = news.tables.revision();
        let touched: BTreeSet<Name> = match &news.touched {
            Some(touched) => touched.iter().flat_map(|one| one.services.iter().cloned()).collect(),
            None => {
                let known = self.machine.services().chain(self.ports.services());
                let known = known.chain(&self.troubled).cloned();
                known.chain(news.tables.entries().map(|(name, _)| name.clone())).collect()
            }
        };
        for service in &touched {
            self.look_at(service, &news.tables);
        }
        self.given.counters.standing(self.machine.counts());
        self.ports_follow(Instant::now());
    }

    fn look_at(&mut self, service: &Name, tables: &Tables) {
        let entry = tables.entry(service);
        let plan = entry.map(|entry| plan::plan(entry, &self.given.place)).unwrap_or_default();
        let first = (service.clone(), Endpoint { addr: [0; 4].into(), port: 0, protocol: 0 });
        let old = self.unprobed.range(first..).take_while(|((name, _), _)| name == service);
        for key in old.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.unprobed.remove(&key);
        }
        let probed: BTreeSet<Endpoint> =
            plan.wanted.iter().map(|(wanted, _)| wanted.endpoint).collect();
        let ours = self.machine.has(service) || !plan.unprobed.is_empty();
        for verdict in self.machine.set(service, plan.wanted, Instant::now()) {
            self.tell(Told::Verdict(verdict));
        }
        if ours {
            let left = entry.into_iter().flat_map(|entry| entry.used());
            let judged = left.filter(|instance| instance.health.since.is_some());
            for instance in judged.filter(|instance| !probed.contains(&instance.endpoint)) {
                self.tell(Told::Unchecked(service.clone(), instance.endpoint));
            }
        }
        let trouble = plan.unprobed.first().map(|(endpoint, why)| format!("{endpoint}: {why}"));
        if trouble.is_some() || self.troubled.contains(service) {
            match trouble {
                Some(_) => self.troubled.insert(service.clone()),
                None => self.troubled.remove(service),
            };
            self.tell(Told::Condition(service.clone(), PROBED, trouble));
        }
        let unprobed = plan.unprobed.into_iter();
        self.unprobed.extend(unprobed.map(|(endpoint, why)| ((service.clone(), endpoint), why)));
        let local = entry.and_then(|entry| node_port::local(entry, &self.given.appliance));
        self.ports.set(service, local);
        if let Some(why) = self.ports.trouble(service) {
            self.tell(Told::Condition(service.clone(), PORT, Some(why.to_owned())));
        }
    }

    fn follow_ports(&mut self) {
        let now = Instant::now();
        if self.ports.again().is_some_and(|at| at <= now) {
            self.ports_follow(now);
        }
    }

    fn ports_follow(&mut self, now: Instant) {
        for service in self.ports.follow(now) {
            let trouble = self.ports.trouble(&service).map(str::to_owned);
            self.tell(Told::Condition(service, PORT, trouble));
        }
    }

    /// Sends an event. If the control loop has ended, the process ends too.
    fn tell(&self, told: Told) {
        let _ = self.given.told.send(told);
    }

    /// Starts the probes that are due.
    fn begin(&mut self) {
        let now = Instant::now();
        while let Some(start) = self.machine.start(now) {
            let Start { token, target, timeout, behind, late } = start;
            self.given.counters.began(behind, late);
            let tls = target.ask.tls();
            let tls = tls.map(|tls| self.believed.by(tls.authorities.as_ref(), now)).transpose();
            let answers = self.answers.clone();
            match tls {
                Ok(tls) => drop(tokio::spawn(async move {
                    let answer = probe(&target, tls, timeout).await;
                    let _ = answers.send((token, answer));
                })),
                Err(why) => {
                    let took = std::time::Duration::ZERO;
                    let answer = Answer { good: None, why: why.into(), took };
                    let _ = answers.send((token, answer));
                }
            }
        }
        self.given.counters.running(self.machine.running());
    }

    fn hear(&mut self, token: Token, answer: Answer) {
        self.given.counters.answered(&answer);
        let why = answer.why.clone();
        let Some(verdict) = self.machine.done(token, answer, Instant::now()) else { return };
        let Verdict { service, endpoint, healthy } = &verdict;
        match healthy {
            true => tracing::info!("{endpoint} of {service} is healthy: {why}"),
            false => tracing::warn!("{endpoint} of {service} is unhealthy: {why}"),
        }
        self.given.counters.judged(*healthy);
        self.given.counters.standing(self.machine.counts());
        self.tell(Told::Verdict(verdict));
    }

    fn rows(&self) -> Vec<Row> {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let tables = self.given.writer.tables();
        let mut rows: Vec<Row> =
            self.machine.known().map(|known| row(&known, &tables, now, wall)).collect();
        rows.extend(self.unprobed.iter().map(|((service, endpoint), why)| Row {
            service: service.to_string(),
            backend: endpoint.to_string(),
            state: "unprobed".to_owned(),
            why: why.clone(),
            ..Row::default()
        }));
        rows
    }
}

fn row(known: &Known<'_>, tables: &Tables, now: Instant, wall: SystemTime) -> Row {
    let instance = tables.entry(known.service).and_then(|entry| entry.at(&known.endpoint).first());
    let since = instance.and_then(|instance| instance.health.since);
    let since = since.filter(|_| known.standing != Standing::Unknown);
    let last = match known.last.map(|(_, answer)| answer.good) {
        None => "",
        Some(Some(true)) => "good",
        Some(Some(false)) => "bad",
        Some(None) => "untold",
    };
    Row {
        service: known.service.to_string(),
        backend: known.endpoint.to_string(),
        state: known.standing.as_str().to_owned(),
        since_s: since.map(|at| wall.duration_since(at).unwrap_or_default().as_secs()),
        last: last.to_owned(),
        why: known.last.map(|(_, answer)| answer.why.to_string()).unwrap_or_default(),
        asked_s_ago: known.last.map(|(at, _)| now.saturating_duration_since(*at).as_secs()),
        took_ms: known.last.map(|(_, answer)| answer.took.as_millis() as u64),
        next_ms: known.due.map(|at| at.saturating_duration_since(now).as_millis() as u64),
        needs: known.needs,
    }
}
