//! The control loop. Open this first: it is the order in which slowpath does everything.
//!
//! ```text
//!   services file, configuration, API -> objects, kept -> rows of the tables (desired.rs)
//!     -> next hops of new backends are met -> state's reconciler: which frontends are to be told
//!     -> the region as a plane: begin, update, delete, prune -> commit -> generation n+1
//!     -> Switch to each lcore -> acknowledged -> frontends are done, room of generation n is free
//! ```
//! The first content that is read leads to a full pass: everything is told and what nobody wants is
//! pruned. After that, only changes are told; and once a minute everything again, so that whatever
//! was lost on the way is repaired. A frontend that the region refuses stays as it was, and is
//! tried again; a file that is refused, or whose commit is, changes nothing.
//!
//! One thread, one step after the other, no waiting: time is an argument of [`Reconcile::step`].
//! Files are read (sources/file.rs) and objects kept (state::store) by threads of their own, whose
//! results are events here. A disk may hang: the loop does not.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use api::Wait;
use config::checked::{Config, Plane};
use health::checker::Told;
use state::appliance::Appliance;
use state::object::{Kind, Object};
use state::plane::Plane as _;
use state::reconcile::{Now, Reconciler, Settings};
use tables::command::{Command, Event};
use tables::region::Region;

use crate::control::report::{FileStatus, NextHopStatus, Status};
use crate::control::trace::Tracer;
use crate::kernel::neighbours::NextHops;
use crate::kernel::neighbours::kernel::Kernel;
use crate::kernel::probe_addresses::ProbeAddresses;
use crate::kernel::proxy_rules::ProxyRules;
use crate::live::Shared;
use crate::plane::lcores::Lcores;
use crate::plane::path_mtus::PathMtus;
use crate::plane::region::RegionPlane;
use crate::plane::rings::Rings;
use crate::sources::desired::{Desired, Store, appliance};
use crate::sources::file::Files;

mod checks;
mod configure;
mod configured;
mod keeping;
mod meet;
mod neighbors;
mod publish;
mod take;
mod wait;
mod wake;

use configured::{Configured, Waiting};
use keeping::{Keeping, Trial};
pub use wake::wake;

/// How long the loop rests between two steps where nobody wakes it: a lost neighbour or an lcore's
/// event waits no longer than this.
const REST: Duration = Duration::from_millis(5);
/// How long it rests while lcores are about to switch, which takes them microseconds.
const SHORT_REST: Duration = Duration::from_micros(50);
/// An lcore that has not switched so long after it was told may not do so soon.
const SOON: Duration = Duration::from_millis(20);
/// How often lcores are looked at and the status is published.
const LOOK: Duration = Duration::from_millis(100);
/// How often a lagging lcore is told again to switch (its ring may have been full, or it is new).
const TELL_AGAIN: Duration = Duration::from_millis(100);
/// How often everything is told again, and pruned. A few hundred frontends in each step, so that
/// many of them don't hold up the loop; a file is told all at once.
const TIMES: Settings = Settings {
    at_once: 256,
    prune_at_once: 256,
    retry_min: Duration::from_millis(50),
    retry_max: Duration::from_secs(60),
    pass: Duration::from_secs(60),
    prune: Duration::from_secs(10 * 60),
    patience: Duration::from_secs(60),
};

/// All that the control loop knows.
pub struct Reconcile<'r> {
    config: Arc<Config>,
    configured: Configured,
    region: &'r Region,
    files: Files,
    desired: Desired,
    appliance: Arc<Appliance>,
    reconciler: Reconciler,
    plane: RegionPlane<'r>,
    rings: Rings<'r>,
    lcores: Lcores,
    hops: NextHops,
    path_mtus: PathMtus,
    kernel: Box<dyn Kernel + Send>,
    /// With XDP, how proxies' answers get into the programs.
    proxy_rules: Option<ProxyRules>,
    /// From where backends are probed through tunnels, if they are.
    probe_addresses: Option<ProbeAddresses>,
    tracer: Tracer,
    shared: Arc<Shared>,
    /// What the health checker tells, if there is one.
    checker: Option<Receiver<Told>>,
    /// A services file was taken by this process.
    synced: bool,
    /// The services that were taken last.
    services: Vec<Object>,
    /// Read, and not yet taken.
    waiting: Option<Waiting>,
    /// On its way to disk.
    keeping: Option<Keeping>,
    /// Taken, and not yet in the region.
    trial: Option<Trial>,
    /// Until when what is new may wait for its backends' next hops.
    meeting: Option<Instant>,
    /// Next hops were asked for that the region may not want in the end.
    strangers_asked: bool,
    refused: Option<String>,
    /// Who waits for a change to be in force.
    waits: Vec<Wait>,
    /// When what the store's disk did not take is read again.
    again: Option<Instant>,
    applied: Option<Instant>,
    /// Of which objects the plane has BGP neighbors: their revision.
    neighbors_at: Option<u64>,
    told: Instant,
    /// When the last generation was told that is not yet known to be acknowledged.
    switching: Option<Instant>,
    looked: Option<Instant>,
}

/// How long the control loop may rest. `switching` is when lcores were told to switch, if they are
/// not known to have.
pub fn rest(switching: Option<Instant>, now: Instant) -> Duration {
    match switching {
        Some(told) if now < told + SOON => SHORT_REST,
        _ => REST,
    }
}

impl<'r> Reconcile<'r> {
    /// Begins over `plane`; `files` watches those of `config`.
    pub fn new(
        config: Arc<Config>,
        mut plane: RegionPlane<'r>,
        kernel: Box<dyn Kernel + Send>,
        shared: Arc<Shared>,
        store: Arc<Store>,
        files: Files,
        time: Now,
    ) -> Reconcile<'r> {
        let (now, region) = (time.steady, plane.region());
        let taps: Vec<(String, u16)> =
            config.arms().map(|(_, arm)| (config.kernel_interface(arm), arm.mtu)).collect();
        let mut hops = NextHops::new(&taps, now);
        // With XDP one process stands for all CPUs, so that all are there, or none.
        let lcores = match config.plane {
            Plane::Dpdk => config.fastpath.lcores.len(),
            Plane::Xdp => 1,
        };
        let appliance = Arc::new(appliance(&config));
        plane.set_appliance(&appliance);
        for (arm, addr, mac) in plane.next_hops() {
            hops.remember(arm, addr, mac, now);
        }
        let mut desired = Desired::new(&config, store, &plane.quarantined(), time.wall);
        desired.wake_by(wake(&shared));
        // The appliance is there whether or not anything was asked of it.
        let remembers = desired.objects().all().any(|object| object.kind() != Kind::Appliance);
        desired.publish_appliance(&config, time.wall);
        // What is remembered is all that there was: nothing is scaled down by telling it.
        let patience = if remembers { Duration::ZERO } else { TIMES.patience };
        let reconcile = Reconcile {
            files,
            services: desired.of_files(),
            desired,
            appliance,
            reconciler: Reconciler::new(Settings { patience, ..TIMES }),
            rings: Rings::attach(region),
            lcores: Lcores::new(lcores, taps.len()),
            hops,
            path_mtus: PathMtus::find(region, now),
            kernel,
            proxy_rules: ProxyRules::new(&config),
            probe_addresses: None,
            tracer: Tracer::default(),
            checker: None,
            synced: false,
            waiting: None,
            keeping: None,
            trial: None,
            meeting: None,
            strangers_asked: false,
            refused: None,
            waits: Vec::new(),
            again: None,
            applied: None,
            neighbors_at: None,
            told: now,
            switching: None,
            looked: None,
            config,
            configured: Configured::default(),
            region,
            plane,
            shared,
        };
        if remembers {
            reconcile.publish();
        }
        reconcile
    }

    /// Once around. Does what is due at `now` and returns.
    pub fn step(&mut self, time: Now) {
        let now = time.steady;
        self.look_at_files(now);
        self.hear(now);
        self.hear_checker(time);
        if self.desired.follow(time.wall) {
            self.publish();
        }
        if self.desired.take_confirmed() {
            tracing::info!("a removal was confirmed: reading the services again");
            self.files.again();
        }
        // A lcore that still reads the generation before the last holds up the next one.
        if self.plane.ready() {
            self.take(time);
            self.follow_neighbors();
            if self.keeping.as_ref().is_none_or(|keeping| !keeping.is_back()) {
                self.tell_plane(time);
            }
        }
        self.answer_waits();
        self.next_hops(now);
        self.path_mtus.expire(self.region, now);
        self.switch(now);
        let generation = self.region.generation();
        let tables = self.desired.writer.tables();
        // A source that has not said all that it knows may name it yet.
        let is_named = |addr, port| !tables.initialized() || tables.is_named(addr, port);
        self.plane.reclaim(now, &is_named);
        if self.region.generation() != generation {
            // Told at once: the next change waits until all have switched.
            self.tell(self.region.generation());
            self.switching = Some(now);
        }
        if self.looked.is_none_or(|at| now >= at + LOOK) {
            self.look(now);
            if let Some(rules) = &mut self.proxy_rules {
                rules.step(&tables, now);
            }
            if let Some(addresses) = &mut self.probe_addresses {
                addresses.step(&tables, now);
            }
        }
    }

    /// How long the loop may rest before the next step, if nobody wakes it.
    pub fn rest(&self, now: Instant) -> Duration {
        rest(self.switching, now)
    }

    fn refuse(&mut self, refusal: String) {
        let path = self.files.services().display();
        tracing::error!("{path} was refused, the set before it stays: {refusal}");
        self.refused = Some(refusal);
    }

    /// Has the region follow the tables, where there is something to follow.
    fn tell_plane(&mut self, time: Now) {
        let news = self.desired.writer.news(self.reconciler.seen());
        // Before anything was asked, the region stays as the last slowpath left it, or without a
        // generation, which tells probes that we are not able.
        if !self.synced && self.trial.is_none() && news.tables.frontend_count() == 0 {
            return;
        }
        if !self.met(&news, time.steady) {
            return;
        }
        let before = self.region.generation();
        self.reconciler.step(time, &news, &self.appliance, &mut self.plane);
        if let Some(outcome) = self.plane.take_outcome() {
            self.taken(outcome, time);
        } else if self.trial.is_some() && !self.reconciler.has_work(time.steady) {
            // Nothing of it concerns the region.
            self.taken(Ok(()), time);
        }
        let generation = self.region.generation();
        if generation != before {
            self.tell(generation);
            self.publish();
            self.switching = Some(time.steady);
        } else if !self.reconciler.awaits_lcores() && self.switching.take().is_some() {
            self.shared.news().event();
        }
        if self.plane.take_hops_changed() | std::mem::take(&mut self.strangers_asked) {
            self.want_next_hops(time.steady);
        }
    }

    /// Takes the lcores' events.
    fn hear(&mut self, now: Instant) {
        for (lcore, event) in self.rings.take() {
            match event {
                Event::Switched { generation } => {
                    tracing::debug!(lcore, generation, "switched");
                }
                Event::NeighbourWanted { next_hop } => {
                    if let Some((arm, addr)) = self.plane.next_hop(next_hop) {
                        self.hops.ask(arm, addr, now);
                    }
                }
                Event::PathMtu { next_hop, mtu } => {
                    let to = self.plane.next_hop(next_hop).map(|(_, addr)| addr.to_string());
                    let to = to.unwrap_or_else(|| format!("next hop {next_hop}"));
                    tracing::warn!("the path to {to} carries {mtu} bytes at most");
                    self.path_mtus.learned(next_hop, now);
                }
                Event::TraceStage { packet, stage, words } => {
                    let published = self.shared.published();
                    let known = published.services(self.region);
                    self.tracer.stage(lcore, packet, stage, words, known);
                }
            }
        }
        if let Some(request) = self.shared.take_trace() {
            let command = self.tracer.begin(request, now);
            self.tell_all(&command);
        }
        if let Some(command) = self.tracer.ended(now) {
            self.tell_all(&command);
            self.shared.free_trace();
        }
    }

    fn tell_all(&mut self, command: &Command) {
        for (lcore, _) in self.region.live_lcores() {
            self.rings.send(lcore, command);
        }
    }

    fn next_hops(&mut self, now: Instant) {
        for resolved in self.hops.step(self.kernel.as_mut(), now) {
            self.plane.set_next_hop(&resolved);
        }
    }

    /// Tells lcores that serve an older generation to switch.
    fn switch(&mut self, now: Instant) {
        if now >= self.told + TELL_AGAIN {
            self.told = now;
            self.tell(self.region.generation());
        }
    }

    fn tell(&mut self, generation: u32) {
        let behind = self.region.live_lcores().filter(|(_, l)| l.acknowledged() != generation);
        for (lcore, _) in behind {
            self.rings.send(lcore, &Command::Switch { generation });
        }
    }

    /// Looks at the lcores, decides whether we are able, and publishes the status.
    fn look(&mut self, now: Instant) {
        self.looked = Some(now);
        let lcores = self.lcores.look(self.region, now);
        let generation = self.region.generation();
        let draining = self.region.draining();
        let (mut able, carries) = self.lcores.able(&lcores, generation, draining);
        if generation == 0
            && let Some(refused) = &self.refused
        {
            able.reasons.push(format!("the services file was refused: {refused}"));
        }
        let (wanted, known) = self.hops.known();
        let acknowledged = lcores.iter().map(|lcore| lcore.acknowledged).min();
        let late = self.keeping.as_ref().and_then(|keeping| keeping.trouble(now));
        let status = Status {
            able: able.able,
            reasons: able.reasons.clone(),
            generation,
            acknowledged: acknowledged.unwrap_or(generation),
            config_file: self.configured.status(self.files.config(), now),
            services_file: FileStatus {
                path: self.files.services().display().to_string(),
                applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
                refused: late.or_else(|| self.refused.clone()),
            },
            lcores,
            next_hops: NextHopStatus {
                wanted,
                known,
                trouble: self.hops.trouble().map(str::to_owned),
            },
            ..Status::default()
        };
        self.shared.publish_status(status, able, carries);
    }
}

#[cfg(test)]
mod tests;
