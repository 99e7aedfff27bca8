//! The main journey: real HTTP through both gateways while the backend set changes, and what can be
//! said about it afterwards. `make demo` shows it, a test asserts it.

use super::client::Seen;
use super::error::Result;
use super::gateway::{Gateway, Report, Setup};
use super::server::Served;
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

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Requests to the service through each gateway.
    pub requests: u64,
    /// The pause of each of the eight workers after each request.
    pub pause: Duration,
    /// How often the onlooker is called.
    pub glance: Duration,
}

/// How it goes, for an onlooker.
pub struct Progress<'j> {
    /// What is happening, in a sentence.
    pub step: &'j str,
    /// Since the first request.
    pub elapsed: Duration,
    /// Clients so far: name and what it saw.
    pub clients: Vec<(&'static str, Seen)>,
    /// Services with their backends, with the lab's names for the backends.
    pub services: Vec<ServiceNow>,
    /// Drops by reason.
    pub drops: Vec<DropNow>,
    /// The gateway's account.
    pub gateway: Report,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Clients by name: `aws`, `azure` to the service, kept alive for ten requests; `aws-steady`,
    /// `azure-steady` on one connection for the whole time; `aws-beyond`, `azure-beyond` to a
    /// server that is no service.
    pub clients: Vec<(&'static str, Seen)>,
    /// The gateway's account.
    pub gateway: Report,
    /// Weir's own account.
    pub totals: Totals,
    /// The kernel's account of the wires.
    pub wires: Wires,
    /// Services at the end.
    pub services: Vec<ServiceNow>,
    /// Connections that the terminating backend accepted after all lcores had acknowledged.
    pub late_connections: u64,
    /// Requests that it answered after that, on connections that it had.
    pub kept_requests: u64,
    /// How long after the change of the file the lcores had acknowledged.
    pub change_took: [Duration; 2],
    /// From the first request to the last answer.
    pub took: Duration,
    /// How the daemons ended on SIGTERM, if it was not in time and with status 0.
    pub ended_badly: Option<String>,
}

/// The running parts.
struct Stage<'s> {
    lab: &'s Lab,
    weir: Weir,
    gateway: Gateway,
    traffic: Traffic,
    begun: Instant,
    glanced: Instant,
    plan: Plan,
    look: &'s mut dyn FnMut(&Progress<'_>),
}

/// The service with these backends: a host's number and the backend's state.
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

/// The gateway that makes it hard: cookies and nodes change all the time.
pub fn restless() -> Setup {
    Setup { churn: 23, roam: 101, ..Setup::default() }
}

/// Runs the journey. The lab must have four hosts; `look` is called now and then.
pub fn run(lab: &mut Lab, plan: Plan, look: &mut dyn FnMut(&Progress<'_>)) -> Result<Outcome> {
    let first = [service(lab, &[(0, "active"), (1, "active"), (2, "active")])];
    let gateway = lab.aws_gateway(restless())?;
    let weir = Weir::start(lab, &Settings::default(), &first)?;
    let wires = Wires::now(lab)?;
    let before = Totals::now(&weir)?;
    let now = Instant::now();
    let traffic = Traffic::start(lab, plan.pause)?;
    let mut stage = Stage { lab, weir, gateway, traffic, begun: now, glanced: now, plan, look };

    stage.answers(plan.requests * 3 / 10, "three backends serve")?;
    let all = [(0, "active"), (1, "active"), (2, "active"), (3, "active")];
    let added = stage.change(&all)?;
    stage.answers(plan.requests * 3 / 10, "web-4 was added")?;
    let all = [(0, "terminating"), (1, "active"), (2, "active"), (3, "active")];
    let ended = stage.change(&all)?;
    stage.no_more_connections(0)?;
    let served = stage.lab.hosts[0].server.served();
    let counts = || {
        let Served { connections, requests } = served;
        (connections.load(Ordering::Relaxed), requests.load(Ordering::Relaxed))
    };
    let (connections, requests) = counts();
    stage.answers(plan.requests * 4 / 10, "web-1 is terminating")?;
    let took = stage.begun.elapsed();
    let Stage { mut weir, gateway, traffic, .. } = stage;
    let clients = traffic.finish()?;
    let (late, kept) = (counts().0 - connections, counts().1 - requests);

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
        kept_requests: kept,
        change_took: [added, ended],
        took,
        ended_badly: weir.stop().err().map(|e| e.to_string()),
    })
}

impl Stage<'_> {
    /// Calls the onlooker until each main client has so many more answers, right or wrong.
    fn answers(&mut self, more: u64, step: &str) -> Result<()> {
        let requests = self.traffic.answered() + more;
        let what = format!("{requests} answers through each gateway");
        poll(&what, Duration::from_secs(90), || {
            let mut look = || -> Result<bool> {
                let weir = &mut self.weir;
                for process in [&mut weir.fastpath, &mut weir.slowpath].into_iter().flatten() {
                    process.must_live()?;
                }
                let there = self.traffic.answered() >= requests;
                if !there && self.glanced.elapsed() >= self.plan.glance {
                    self.glance(step)?;
                }
                Ok(there)
            };
            match look() {
                Ok(true) => Ok(Ok(())),
                Ok(false) => {
                    Err(format!("{}{}{}", self.traffic, self.gateway.report(), self.weir.logs()))
                }
                Err(error) => Ok(Err(error)),
            }
        })?
    }

    /// A connection that was being made at the moment of the switch may still come about: waits
    /// until a host has got none for a second. One that goes on getting some is the reader's to
    /// judge.
    fn no_more_connections(&mut self, host: usize) -> Result<()> {
        let accepted = |stage: &Self| {
            stage.lab.hosts[host].server.served().connections.load(Ordering::Relaxed)
        };
        for _ in 0..10 {
            let before = accepted(self);
            std::thread::sleep(Duration::from_secs(1));
            if accepted(self) == before {
                break;
            }
        }
        Ok(())
    }

    fn glance(&mut self, step: &str) -> Result<()> {
        self.glanced = Instant::now();
        (self.look)(&Progress {
            step,
            elapsed: self.begun.elapsed(),
            clients: self.traffic.seen(),
            services: self.weir.services()?,
            drops: self.weir.drops()?,
            gateway: self.gateway.report(),
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
