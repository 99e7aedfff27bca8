//! The main scenario: real HTTP through both gateways while the backend set changes, and its
//! results. `make demo` prints the results, and a test asserts them.

use super::client::ClientStats;
use super::error::Result;
use super::gateway::{Gateway, GatewaySetup, Report};
use super::server::ServerStats;
use super::settings::{Backend, Service, Settings};
use super::topology::{FRONTEND, HTTP, Lab};
use super::traffic::Traffic;
use super::weir::{DropNow, ServiceNow, Weir};
use patience::poll;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

mod claims;
mod totals;

pub use claims::Claim;
pub use totals::{Totals, Wires, at_rest};

/// The size of the scenario.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Requests to the service through each gateway, on connections of ten requests.
    pub requests: u64,
    /// The pause of each of a main client's eight workers after each request; a worker of a steady
    /// client pauses four times as long.
    pub pause: Duration,
    /// The interval between calls of the observer.
    pub report_interval: Duration,
}

/// The current progress, for an observer.
pub struct Progress<'j> {
    /// The current step, in a sentence.
    pub step: &'j str,
    /// The time since the clients were started.
    pub elapsed: Duration,
    /// The clients' results so far, by name.
    pub clients: Vec<(&'static str, ClientStats)>,
    /// Services with their backends.
    pub services: Vec<ServiceNow>,
    /// Drops by reason.
    pub drops: Vec<DropNow>,
}

/// The results.
#[derive(Debug)]
pub struct Outcome {
    /// Clients by name: `aws`, `azure` use the service with ten requests per connection;
    /// `aws-steady`, `azure-steady` with one connection for the whole time; `aws-beyond`,
    /// `azure-beyond` use a server without a service.
    pub clients: Vec<(&'static str, ClientStats)>,
    /// The gateway's report.
    pub gateway: Report,
    /// Weir's packet counters.
    pub totals: Totals,
    /// The kernel's counters of the wires.
    pub wires: Wires,
    /// Services at the end.
    pub services: Vec<ServiceNow>,
    /// Connections that the terminating backend accepted after all lcores had acknowledged its
    /// state and the connections that were being established at that time had completed.
    pub late_connections: u64,
    /// Requests that the terminating backend answered after that, on existing connections.
    pub later_requests: u64,
    /// For each of the two changes, the time from the change of the file to the lcores'
    /// acknowledgment.
    pub change_took: [Duration; 2],
    /// The time from the start of the clients to the last awaited response.
    pub took: Duration,
    /// The error if a daemon did not end on SIGTERM in time and with status 0.
    pub shutdown_error: Option<String>,
}

/// A run of the scenario: the lab, the appliance, the gateway and the clients.
struct Run<'s> {
    lab: &'s Lab,
    weir: Weir,
    gateway: Gateway,
    traffic: Traffic,
    begun: Instant,
    reported: Instant,
    plan: Plan,
    observer: &'s mut dyn FnMut(&Progress<'_>),
}

/// Returns the service "lab/web" with these backends, each by the index of its host and its state.
pub fn service(lab: &Lab, backends: &[(usize, &'static str)]) -> Service {
    let backend = |(at, state): &(usize, &'static str)| Backend {
        address: lab.hosts[*at].address.to_string(),
        port: HTTP,
        weight: 100,
        state,
    };
    Service {
        name: "lab/web".into(),
        mode: "mode = \"nat\"".into(),
        frontends: vec![(FRONTEND.to_string(), 80, "tcp")],
        backends: backends.iter().map(backend).collect(),
    }
}

/// Returns a demanding gateway setup: a flow's cookie changes every 23 packets, its node every 101.
pub fn changing_gateway() -> GatewaySetup {
    GatewaySetup { churn: 23, roam: 101, ..GatewaySetup::default() }
}

/// Runs the scenario. The lab must have four hosts; `observer` is called at intervals.
pub fn run(lab: &mut Lab, plan: Plan, observer: &mut dyn FnMut(&Progress<'_>)) -> Result<Outcome> {
    let first = [service(lab, &[(0, "active"), (1, "active"), (2, "active")])];
    let gateway = lab.aws_gateway(changing_gateway())?;
    let weir = Weir::start(lab, &Settings::default(), &first)?;
    let wires = Wires::now(lab)?;
    let before = Totals::now(&weir)?;
    let now = Instant::now();
    let traffic = Traffic::start(lab, plan.pause)?;
    let mut run = Run { lab, weir, gateway, traffic, begun: now, reported: now, plan, observer };

    run.wait_for_responses(plan.requests * 3 / 10, "three backends serve")?;
    let all = [(0, "active"), (1, "active"), (2, "active"), (3, "active")];
    let added = run.change(&all)?;
    run.wait_for_responses(plan.requests * 3 / 10, "web-4 was added")?;
    let all = [(0, "terminating"), (1, "active"), (2, "active"), (3, "active")];
    let ended = run.change(&all)?;
    run.wait_for_no_connections(0)?;
    let served = run.lab.hosts[0].server.stats();
    let counts = || {
        let ServerStats { connections, requests } = served;
        (connections.load(Ordering::Relaxed), requests.load(Ordering::Relaxed))
    };
    let (connections, requests) = counts();
    run.wait_for_responses(plan.requests * 4 / 10, "web-1 is terminating")?;
    let took = run.begun.elapsed();
    let Run { mut weir, gateway, traffic, .. } = run;
    let clients = traffic.finish()?;
    let (late, later) = (counts().0 - connections, counts().1 - requests);

    let gateway = gateway.stop()?;
    let (totals, wires) = totals::at_rest(lab, &mut weir, &before, &wires)?;
    let services = weir.services()?;
    Ok(Outcome {
        clients,
        gateway,
        totals,
        wires,
        services,
        late_connections: late,
        later_requests: later,
        change_took: [added, ended],
        took,
        shutdown_error: weir.stop().err().map(|e| e.to_string()),
    })
}

impl Run<'_> {
    /// Calls the observer at intervals until the clients `aws` and `azure` each have `more` further
    /// responses, correct or not.
    fn wait_for_responses(&mut self, more: u64, step: &str) -> Result<()> {
        let requests = self.traffic.answered() + more;
        let what = format!("{requests} responses through each gateway");
        poll(&what, Duration::from_secs(90), || {
            let mut poll_once = || -> Result<bool> {
                let weir = &mut self.weir;
                for process in [&mut weir.fastpath, &mut weir.slowpath].into_iter().flatten() {
                    process.check_running()?;
                }
                let reached = self.traffic.answered() >= requests;
                if !reached && self.reported.elapsed() >= self.plan.report_interval {
                    self.report(step)?;
                }
                Ok(reached)
            };
            match poll_once() {
                Ok(true) => Ok(Ok(())),
                Ok(false) => {
                    Err(format!("{}{}{}", self.traffic, self.gateway.report(), self.weir.logs()))
                }
                Err(error) => Ok(Err(error)),
            }
        })?
    }

    /// Waits until a host has accepted no connection for a second: a connection that was being
    /// established when the lcores switched may still complete. If new connections keep arriving,
    /// the wait ends after ten seconds, and the caller's assertions fail.
    fn wait_for_no_connections(&mut self, host: usize) -> Result<()> {
        let accepted =
            |run: &Self| run.lab.hosts[host].server.stats().connections.load(Ordering::Relaxed);
        for _ in 0..10 {
            let before = accepted(self);
            std::thread::sleep(Duration::from_secs(1));
            if accepted(self) == before {
                break;
            }
        }
        Ok(())
    }

    fn report(&mut self, step: &str) -> Result<()> {
        self.reported = Instant::now();
        (self.observer)(&Progress {
            step,
            elapsed: self.begun.elapsed(),
            clients: self.traffic.stats(),
            services: self.weir.services()?,
            drops: self.weir.drops()?,
        });
        Ok(())
    }

    /// Changes the backend set and waits until every lcore serves it.
    fn change(&mut self, backends: &[(usize, &'static str)]) -> Result<Duration> {
        let generation = self.weir.status()?.generation;
        let changed = Instant::now();
        self.weir.change_services(&[service(self.lab, backends)])?;
        self.weir.wait_for_generation(generation + 1)?;
        Ok(changed.elapsed())
    }
}
