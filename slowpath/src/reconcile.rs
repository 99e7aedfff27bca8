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
use tables::region::Region;

use crate::control::report::Status;
use crate::kernel::neighbours::kernel::Kernel;
use crate::kernel::probe_addresses::ProbeAddresses;
use crate::kernel::proxy_rules::ProxyRules;
use crate::live::Shared;
use crate::plane::region::RegionPlane;
use crate::sources::desired::{Desired, Store, appliance};
use crate::sources::file::Files;

mod checks;
mod hops;
mod intake;
mod keeping;
mod lcores;
mod neighbors;
mod publish;
mod take;
mod wait;
mod wake;

use hops::Hops;
use intake::Intake;
use keeping::{Keeping, Trial};
use lcores::Lcores;
pub use wake::wake;

/// How long the loop rests between two steps where nobody wakes it: a lost neighbour or an lcore's
/// event waits no longer than this.
const REST: Duration = Duration::from_millis(5);
/// How long it rests while lcores are about to switch, which takes them microseconds.
const SHORT_REST: Duration = Duration::from_micros(50);
/// An lcore that has not switched so long after it was told may not do so soon.
const SOON: Duration = Duration::from_millis(20);
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

/// The control loop: the tables and the plane that follows them, and what each of the others around
/// them has to remember.
pub struct Reconcile<'r> {
    region: &'r Region,
    plane: RegionPlane<'r>,
    desired: Desired,
    appliance: Arc<Appliance>,
    reconciler: Reconciler,
    shared: Arc<Shared>,
    intake: Intake,
    /// The services that were taken last.
    services: Vec<Object>,
    /// On its way to disk.
    keeping: Option<Keeping>,
    /// Taken, and not yet in the region.
    trial: Option<Trial>,
    lcores: Lcores<'r>,
    hops: Hops,
    /// With XDP, how proxies' answers get into the programs.
    proxy_rules: Option<ProxyRules>,
    /// From where backends are probed through tunnels, if they are.
    probe_addresses: Option<ProbeAddresses>,
    /// What the health checker tells, if there is one.
    checker: Option<Receiver<Told>>,
    /// Who waits for a change to be in force.
    waits: Vec<Wait>,
    /// Of which objects the plane has BGP neighbors: their revision.
    neighbors_at: Option<u64>,
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
        // With XDP one process stands for all CPUs, so that all are there, or none.
        let lcores = match config.plane {
            Plane::Dpdk => config.fastpath.lcores.len(),
            Plane::Xdp => 1,
        };
        let appliance = Arc::new(appliance(&config));
        plane.set_appliance(&appliance);
        let mut desired = Desired::new(&config, store, &plane.quarantined(), time.wall);
        desired.wake_by(wake(&shared));
        // The appliance is there whether or not anything was asked of it.
        let remembers = desired.objects().all().any(|object| object.kind() != Kind::Appliance);
        desired.publish_appliance(&config, time.wall);
        // What is remembered is all that there was: nothing is scaled down by telling it.
        let patience = if remembers { Duration::ZERO } else { TIMES.patience };
        let reconcile = Reconcile {
            hops: Hops::new(&taps, kernel, &plane, now),
            lcores: Lcores::attach(region, lcores, taps.len(), now),
            proxy_rules: ProxyRules::new(&config),
            probe_addresses: None,
            checker: None,
            services: desired.of_files(),
            keeping: None,
            trial: None,
            waits: Vec::new(),
            neighbors_at: None,
            intake: Intake::new(files, config),
            reconciler: Reconciler::new(Settings { patience, ..TIMES }),
            region,
            plane,
            desired,
            appliance,
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
        // What is on its way decides what the next content is checked against.
        if self.trial.is_none() && self.keeping.is_none() {
            self.intake.look(now, &self.shared, &self.services);
        }
        for event in self.lcores.hear(&self.shared, now) {
            self.hops.hear(&event, &self.plane, now);
        }
        self.hear_checker(time);
        if self.desired.follow(time.wall) {
            self.publish();
        }
        if self.desired.take_confirmed() {
            tracing::info!("a removal was confirmed: reading the services again");
            self.intake.again();
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
        self.hops.step(&mut self.plane, now);
        self.lcores.tell_again(now);
        let generation = self.region.generation();
        let tables = self.desired.writer.tables();
        // A source that has not said all that it knows may name it yet.
        let is_named = |addr, port| !tables.initialized() || tables.is_named(addr, port);
        self.plane.reclaim(now, &is_named);
        if self.region.generation() != generation {
            // Told at once: the next change waits until all have switched.
            self.lcores.switch(now);
        }
        if self.lcores.is_due(now) {
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
        rest(self.lcores.switching(), now)
    }

    /// Has the region follow the tables, where there is something to follow.
    fn tell_plane(&mut self, time: Now) {
        let news = self.desired.writer.news(self.reconciler.seen());
        // Before anything was asked, the region stays as the last slowpath left it, or without a
        // generation, which tells probes that we are not able.
        if !self.intake.is_synced() && self.trial.is_none() && news.tables.frontend_count() == 0 {
            return;
        }
        let may_wait = self.intake.is_synced() && self.region.live_lcores().next().is_some();
        if !self.hops.met(&news, &mut self.plane, may_wait, time.steady) {
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
        if self.region.generation() != before {
            self.lcores.switch(time.steady);
            self.publish();
        } else if !self.reconciler.awaits_lcores() && self.lcores.switched() {
            self.shared.news().event();
        }
        self.hops.follow(&mut self.plane, time.steady);
    }

    /// Looks at the lcores, decides whether we are able, and publishes the status.
    fn look(&mut self, now: Instant) {
        let generation = self.region.generation();
        let draining = self.region.draining();
        let watch = self.lcores.look(now);
        let lcores = watch.look(self.region, now);
        let (mut able, carries) = watch.able(&lcores, generation, draining);
        if generation == 0
            && let Some(refused) = self.intake.refused()
        {
            able.reasons.push(format!("the services file was refused: {refused}"));
        }
        let acknowledged = lcores.iter().map(|lcore| lcore.acknowledged).min();
        let (config_file, mut services_file) = self.intake.status(now);
        let late = self.keeping.as_ref().and_then(|keeping| keeping.trouble(now));
        services_file.refused = late.or(services_file.refused);
        let status = Status {
            able: able.able,
            reasons: able.reasons.clone(),
            generation,
            acknowledged: acknowledged.unwrap_or(generation),
            config_file,
            services_file,
            lcores,
            next_hops: self.hops.status(),
            ..Status::default()
        };
        self.shared.publish_status(status, able, carries);
    }
}

#[cfg(test)]
mod tests;
