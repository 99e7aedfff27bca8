//! The control loop. Open this first: it is the order in which slowpath does everything.
//!
//! ```text
//!   services file, configuration -> objects -> rows of the tables (desired.rs)
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

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::{Config, Plane};
use state::appliance::Appliance;
use state::object::Object;
use state::reconcile::{Now, Reconciler, Settings};
use tables::command::{Command, Event};
use tables::region::Region;

use crate::desired::{Desired, appliance};
use crate::lcores::Lcores;
use crate::live::{Published, Shared, Wanted};
use crate::neighbours::NextHops;
use crate::neighbours::kernel::Kernel;
use crate::path_mtus::PathMtus;
use crate::report::{FileStatus, NextHopStatus, Status};
use crate::rings::Rings;
use crate::sources::file::ServicesFile;
use crate::targets::region::RegionPlane;
use crate::trace::Tracer;

mod configure;
mod meet;
mod take;

use configure::{Configured, Waiting};
use take::Trial;

/// How often lcores are looked at and the status is published.
const LOOK: Duration = Duration::from_millis(100);
/// How often a lagging lcore is told again to switch (its ring may have been full, or it is new).
const TELL_AGAIN: Duration = Duration::from_millis(100);
/// How often everything is told again, and pruned. A few hundred frontends in each step, so that
/// many of them don't hold up the loop; a file is told all at once.
const TIMES: Settings = Settings {
    at_once: 256,
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
    file: ServicesFile,
    desired: Desired,
    appliance: Arc<Appliance>,
    reconciler: Reconciler,
    plane: RegionPlane<'r>,
    rings: Rings<'r>,
    lcores: Lcores,
    hops: NextHops,
    path_mtus: PathMtus,
    kernel: Box<dyn Kernel + Send>,
    tracer: Tracer,
    shared: Arc<Shared>,
    /// A services file was taken by this process.
    synced: bool,
    /// The services that were taken last.
    services: Vec<Object>,
    /// Read, and not yet taken.
    waiting: Option<Waiting>,
    /// Taken, and not yet in the region.
    trial: Option<Trial>,
    /// Until when what is new may wait for its backends' next hops.
    meeting: Option<Instant>,
    /// Next hops were asked for that the region may not want in the end.
    strangers_asked: bool,
    refused: Option<String>,
    applied: Option<Instant>,
    told: Instant,
    looked: Option<Instant>,
}

impl<'r> Reconcile<'r> {
    /// Begins over `plane`, which is attached to `region`.
    pub fn new(
        config: Arc<Config>,
        region: &'r Region,
        mut plane: RegionPlane<'r>,
        kernel: Box<dyn Kernel + Send>,
        shared: Arc<Shared>,
        now: Instant,
    ) -> Reconcile<'r> {
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
        Reconcile {
            file: ServicesFile::new(&config.services),
            desired: Desired::new(&config),
            appliance,
            reconciler: Reconciler::new(TIMES),
            rings: Rings::attach(region),
            lcores: Lcores::new(lcores, taps.len()),
            hops,
            path_mtus: PathMtus::find(region, now),
            kernel,
            tracer: Tracer::default(),
            synced: false,
            services: Vec::new(),
            waiting: None,
            trial: None,
            meeting: None,
            strangers_asked: false,
            refused: None,
            applied: None,
            told: now,
            looked: None,
            config,
            configured: Configured::default(),
            region,
            plane,
            shared,
        }
    }

    /// Once around. Does what is due at `now` and returns.
    pub fn step(&mut self, time: Now) {
        let now = time.steady;
        self.look_at_files(now);
        self.hear(now);
        // A lcore that still reads the generation before the last holds up the next one.
        if self.plane.ready() {
            self.take(time);
            self.tell_plane(time);
        }
        self.next_hops(now);
        self.path_mtus.expire(self.region, now);
        self.switch(now);
        self.plane.reclaim(now);
        if self.looked.is_none_or(|at| now >= at + LOOK) {
            self.look(now);
        }
    }

    fn refuse(&mut self, refusal: String) {
        let path = self.file.path().display();
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

    fn want_next_hops(&mut self, now: Instant) {
        let all = self.plane.next_hops();
        self.hops.want(all.map(|(arm, addr, _)| (arm, addr)), now);
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
        let mut able = self.lcores.able(&lcores, generation, self.region.draining());
        if generation == 0
            && let Some(refused) = &self.refused
        {
            able.reasons.push(format!("the services file was refused: {refused}"));
        }
        let (wanted, known) = self.hops.known();
        let acknowledged = lcores.iter().map(|lcore| lcore.acknowledged).min();
        let status = Status {
            able: able.able,
            reasons: able.reasons.clone(),
            generation,
            acknowledged: acknowledged.unwrap_or(generation),
            config_file: self.configured.status(now),
            services_file: FileStatus {
                path: self.file.path().display().to_string(),
                applied_s_ago: self.applied.map(|at| now.duration_since(at).as_secs()),
                refused: self.refused.clone(),
            },
            lcores,
            next_hops: NextHopStatus {
                wanted,
                known,
                trouble: self.hops.trouble().map(str::to_owned),
            },
            ..Status::default()
        };
        self.shared.publish_status(status, able);
    }

    /// Tells those who answer questions what is asked now.
    fn publish_wanted(&self) {
        let (objects, tables) = (self.desired.objects().clone(), self.desired.writer.tables());
        let appliance = Arc::clone(&self.appliance);
        self.shared.publish_wanted(Wanted { objects, tables, appliance });
    }

    /// The same, and that it is in the region.
    fn publish(&self) {
        self.publish_wanted();
        let tunnels = self.plane.tunnel_names();
        self.shared.publish_tables(Published::new(self.desired.writer.tables(), tunnels));
    }
}

#[cfg(test)]
mod tests;
