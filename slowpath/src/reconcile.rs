//! The control loop, which defines the order of all work in slowpath.
//!
//! ```text
//!   services file, configuration, API -> objects, stored -> rows of the tables (desired.rs)
//!     -> next hops of new backends are resolved -> state's reconciler: frontends to apply
//!     -> the region as a plane: begin, update, delete, prune -> commit -> generation n+1
//!     -> Switch to each lcore -> acknowledged -> frontends done, entries of generation n reusable
//! ```
//! The first content of the files leads to a full pass: all frontends are applied, and those in the
//! region that are not desired are pruned. After that only changes are applied, and once a minute
//! everything again, which repairs lost updates. A frontend that the region rejects stays as it was
//! and is retried. A file that is rejected, or whose commit fails, changes nothing.
//!
//! The loop is one thread that performs one step after the other and blocks in none of them; time
//! is an argument of [`Reconcile::step`]. Other threads read the files (sources/file.rs) and write
//! objects to disk (state::store). The loop polls their results, so that a disk that hangs does not
//! stop it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use api::Wait;
use config::checked::{Config, Plane};
use health::checker::HealthEvent;
use state::appliance::Appliance;
use state::object::{Kind, Object};
use state::plane::Plane as _;
use state::reconcile::{Now, Reconciler, Settings};
use tables::region::Region;

use crate::control::report::{Status, nics};
use crate::kernel::neighbors::kernel::Kernel;
use crate::kernel::probe_addresses::ProbeAddresses;
use crate::kernel::proxy_rules::ProxyRules;
use crate::live::Shared;
use crate::measurements::Stage;
use crate::plane::region::RegionPlane;
use crate::sources::desired::{Desired, Store, appliance};
use crate::sources::file::Files;

mod checks;
mod commit;
mod hops;
mod intake;
mod lcores;
mod neighbors;
mod observer;
mod pending;
mod publish;
mod wait;
mod wake;

use hops::Hops;
use intake::Intake;
use lcores::Lcores;
pub(crate) use observer::Observer;
use pending::{PendingWrite, Uncommitted};
pub use wake::wake;

/// How long the loop rests between two iterations unless it is woken. It bounds the delay of
/// neighbor notifications and lcore events.
const REST: Duration = Duration::from_millis(5);
/// How long the loop rests while lcores are switching generations, which takes them microseconds.
const SHORT_REST: Duration = Duration::from_micros(50);
/// Time after a switch command during which the loop takes short rests, because the lcores are
/// expected to acknowledge it.
const SWITCH_TIME: Duration = Duration::from_millis(20);
/// Settings of the reconciler: batch sizes, retry delays, and intervals of full passes and of
/// pruning. A step applies at most `frontends_per_step` frontends, to bound its time; only the
/// content of the files is applied in one step, whatever its size.
const RECONCILER_SETTINGS: Settings = Settings {
    frontends_per_step: 256,
    prunes_per_step: 256,
    retry_min: Duration::from_millis(50),
    retry_max: Duration::from_secs(60),
    pass: Duration::from_secs(60),
    prune: Duration::from_secs(10 * 60),
    initial_list_timeout: Duration::from_secs(60),
};

/// The control loop: the desired state, the plane that follows it, and the inputs and outputs of
/// both.
pub struct Reconcile<'r> {
    region: &'r Region,
    plane: RegionPlane<'r>,
    desired: Desired,
    appliance: Arc<Appliance>,
    reconciler: Reconciler,
    shared: Arc<Shared>,
    intake: Intake,
    /// The objects of the files as applied last.
    services: Vec<Object>,
    /// Content of the files that is being written to disk.
    pending_write: Option<PendingWrite>,
    /// Content of the files that is in the tables and not yet in the region.
    uncommitted: Option<Uncommitted>,
    lcores: Lcores<'r>,
    hops: Hops,
    /// With XDP: routing rules that lead proxies' responses into the programs.
    proxy_rules: Option<ProxyRules>,
    /// Source addresses of probes through tunnels.
    probe_addresses: Option<ProbeAddresses>,
    /// Events from the health checker.
    checker: Option<Receiver<HealthEvent>>,
    /// API requests that wait until their write is in force.
    waits: Vec<Wait>,
    /// The data plane and the backends as observed last.
    observer: Observer,
    /// Revision of the objects from which the plane's BGP neighbors were derived.
    neighbors_at: Option<u64>,
}

/// Returns how long the control loop may rest. `switching` is when the lcores were sent the last
/// switch command; `None` if all have acknowledged it.
pub fn rest(switching: Option<Instant>, now: Instant) -> Duration {
    match switching {
        Some(since) if now < since + SWITCH_TIME => SHORT_REST,
        _ => REST,
    }
}

impl<'r> Reconcile<'r> {
    /// Creates the control loop over `plane`. `files` watches the files of `config`: the
    /// configuration itself and the services.
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
        // With XDP, `ebpf-fallback` joins the region as one lcore that stands for all CPUs.
        let lcores = match config.plane {
            Plane::Dpdk => config.fastpath.lcores.len(),
            Plane::Xdp => 1,
        };
        let appliance = Arc::new(appliance(&config));
        plane.set_appliance(&appliance);
        let mut desired = Desired::new(&config, store, &plane.quarantined(), time.wall);
        desired.set_wake(wake(&shared));
        // The appliance's own object does not count: every start writes it.
        let has_stored_objects =
            desired.objects().all().any(|object| object.kind() != Kind::Appliance);
        desired.publish_appliance(&config, time.wall);
        // Stored objects are complete lists of their sources, so they can be applied without
        // waiting for the sources: no backend would be missing.
        let initial_list_timeout = if has_stored_objects {
            Duration::ZERO
        } else {
            RECONCILER_SETTINGS.initial_list_timeout
        };
        let reconcile = Reconcile {
            hops: Hops::new(&taps, kernel, &plane, now),
            lcores: Lcores::attach(region, lcores, taps.len(), now),
            proxy_rules: ProxyRules::new(&config),
            probe_addresses: None,
            checker: None,
            services: desired.file_objects(),
            pending_write: None,
            uncommitted: None,
            waits: Vec::new(),
            neighbors_at: None,
            observer: Observer::default(),
            intake: Intake::new(files, config),
            reconciler: Reconciler::new(Settings { initial_list_timeout, ..RECONCILER_SETTINGS }),
            region,
            plane,
            desired,
            appliance,
            shared,
        };
        if has_stored_objects {
            reconcile.publish();
        }
        reconcile
    }

    /// Runs one iteration: performs the work that is due at `time`.
    pub fn step(&mut self, time: Now) {
        let now = time.steady;
        // New content is checked against the configuration in force, which content in progress may
        // change.
        if self.uncommitted.is_none() && self.pending_write.is_none() {
            self.intake.poll(now, &self.shared, &self.services);
        }
        for event in self.lcores.take_events(&self.shared, now) {
            self.hops.handle_event(&event, &self.plane, now);
        }
        self.apply_health_events(time);
        if self.desired.follow(time.wall) {
            self.publish();
        }
        if self.desired.take_confirmed() {
            tracing::info!(
                event = "file_removal_confirmed",
                "removal by the services files confirmed; reading them again"
            );
            self.intake.reread();
        }
        // An lcore that still reads the generation before the committed one delays the next batch.
        if self.plane.ready() {
            self.apply_files(time);
            self.follow_neighbors();
            if self.pending_write.as_ref().is_none_or(|pending_write| !pending_write.is_restoring())
            {
                self.step_plane(time);
            }
        }
        self.answer_waits();
        self.hops.step(&mut self.plane, now);
        self.lcores.resend_switch(now);
        let generation = self.region.generation();
        let tables = self.desired.writer.tables();
        // A source without a complete list may still name the backend.
        let is_named = |addr, port| !tables.initialized() || tables.has_instance_at(addr, port);
        self.plane.reclaim(now, &is_named);
        if self.region.generation() != generation {
            // Switch immediately, because the next change waits until all lcores have switched.
            self.lcores.switch(now);
        }
        if self.lcores.is_due(now) {
            self.update_status(now);
            if let Some(rules) = &mut self.proxy_rules {
                rules.step(&tables, now);
            }
            if let Some(addresses) = &mut self.probe_addresses {
                addresses.step(&tables, now);
            }
        }
    }

    /// Replaces the state of observation, with one that continues from the history of an earlier
    /// process.
    pub(crate) fn set_observer(&mut self, observer: Observer) {
        self.observer = observer;
    }

    /// Returns whether a reload has ended since the last call: the content of the files is in force
    /// or rejected.
    pub fn take_reloaded(&mut self) -> bool {
        let is_pending = self.uncommitted.is_some() || self.pending_write.is_some();
        !is_pending && self.intake.take_reloaded()
    }

    /// Returns how long the loop may rest before the next step unless it is woken.
    pub fn rest(&self, now: Instant) -> Duration {
        rest(self.lcores.switching(), now)
    }

    /// Applies changes of the tables to the region.
    fn step_plane(&mut self, time: Now) {
        let changes = self.desired.writer.changes_since(self.reconciler.observed());
        // Until there is desired state, the region stays as the previous slowpath left it. A region
        // without a generation makes the appliance not able.
        if !self.intake.is_synced()
            && self.uncommitted.is_none()
            && changes.tables.frontend_count() == 0
        {
            return;
        }
        // The first content after a start is applied without delay, and without lcores nothing is
        // forwarded.
        let may_wait = self.intake.is_synced() && self.region.live_lcores().next().is_some();
        if !self.hops.resolve_new(&changes, &mut self.plane, may_wait, time.steady) {
            return;
        }
        let (before, began) = (self.region.generation(), Instant::now());
        self.reconciler.step(time, &changes, &self.appliance, &mut self.plane);
        self.measure_step(before, (began, began.elapsed()), time);
        if let Some(outcome) = self.plane.take_outcome() {
            self.commit_done(outcome, time);
        } else if self.uncommitted.is_some() && !self.reconciler.has_work(time.steady) {
            // No part of the change concerns the region.
            self.commit_done(Ok(()), time);
        }
        // Only frontends that are done are advertised. Their status may change without a new
        // generation: a slowpath that restarts commits what is in force already.
        let status_changed = self.reconciler.take_status_changed();
        if self.region.generation() != before {
            self.lcores.switch(Instant::now());
            self.publish();
        } else {
            let switched = match self.reconciler.awaits_lcores() {
                true => None,
                false => self.lcores.mark_switched(),
            };
            if let Some(since) = switched {
                let measured = (since, time.steady.saturating_duration_since(since));
                self.shared.measurements.record_stage(Stage::Acknowledged, measured, Some(before));
            }
            if switched.is_some() || status_changed {
                self.shared.changes().event();
            }
        }
        self.hops.follow(&mut self.plane, time.steady);
    }

    /// Records how long a step of the reconciler compiled and committed, if it led from generation
    /// `before` to another.
    fn measure_step(&mut self, before: u32, (began, took): (Instant, Duration), time: Now) {
        let commit = self.plane.take_commit_time().unwrap_or_default();
        let generation = self.region.generation();
        if generation != before {
            let (measurements, at) = (&self.shared.measurements, Some(generation));
            let compile = took.saturating_sub(commit);
            measurements.record_stage(Stage::Compile, (began, compile), at);
            measurements.record_stage(Stage::Commit, (began + compile, commit), at);
            measurements.set_committed(time.wall);
        }
    }

    /// Reads the lcores' status, decides whether the appliance is able, and publishes the status.
    fn update_status(&mut self, now: Instant) {
        let generation = self.region.generation();
        let draining = self.region.draining();
        self.shared.measurements.set_table_uses(self.plane.table_uses());
        let monitor = self.lcores.begin_check(now);
        let lcores = monitor.observe(self.region, now);
        let (mut able, forwarding) = monitor.able(self.region, &lcores, generation, draining);
        if generation == 0
            && let Some(error) = self.intake.services_error()
        {
            able.reasons.push(format!("the services file was rejected: {error}"));
        }
        let arms = self.intake.config().arms().count();
        self.observer.observe(self.region, &lcores, &nics(self.region, arms));
        if self.intake.is_synced() {
            self.observer.observe_backends(&self.desired.writer.tables(), now);
        }
        let acknowledged = lcores.iter().map(|lcore| lcore.acknowledged).min();
        let (config_file, mut services_file) = self.intake.status(now);
        let late =
            self.pending_write.as_ref().and_then(|pending_write| pending_write.delay_error(now));
        services_file.error = late.or(services_file.error);
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
        self.shared.publish_status(status, able, forwarding);
    }
}

#[cfg(test)]
mod tests;
