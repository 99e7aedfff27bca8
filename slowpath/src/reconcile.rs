//! The control loop. Open this first: it is the order in which slowpath does everything.
//!
//! ```text
//!   services file, configuration -> next hops of new backends are met -> changes
//!     -> target: update, delete, prune -> commit -> generation n+1
//!     -> Switch to each lcore -> acknowledged -> room of generation n is used again
//! ```
//! The first content that is read leads to a full sync: everything is said again and what nobody
//! wants is pruned. After that, only changes are said; and when it is quiet, everything again, so
//! that whatever was lost on the way is repaired. A content that is refused changes nothing.
//!
//! One thread, one step after the other, no waiting: time is an argument of [`Reconcile::step`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::{Config, Plane};
use tables::command::{Command, Event};
use tables::region::Region;

use crate::lcores::Lcores;
use crate::live::{Published, Shared};
use crate::neighbours::NextHops;
use crate::neighbours::kernel::Kernel;
use crate::path_mtus::PathMtus;
use crate::report::{FileStatus, NextHopStatus, Status};
use crate::rings::Rings;
use crate::sources::file::ServicesFile;
use crate::state::{Change, State};
use crate::targets::Target;
use crate::targets::tables::Tables;
use crate::trace::Tracer;

mod configure;
mod meet;

use configure::{Configured, Waiting};

/// How often lcores are looked at and the status is published.
const LOOK: Duration = Duration::from_millis(100);
/// How often a lagging lcore is told again to switch (its ring may have been full, or it is new).
const TELL_AGAIN: Duration = Duration::from_millis(100);
/// After so long without a change everything is said again.
const QUIET: Duration = Duration::from_secs(60);

/// How many services a full sync says again in one step: a Maglev table takes about a millisecond.
const AT_ONCE: usize = 4;

/// All that the control loop knows.
pub struct Reconcile<'r> {
    config: Arc<Config>,
    configured: Configured,
    region: &'r Region,
    file: ServicesFile,
    state: State,
    tables: Tables<'r>,
    rings: Rings<'r>,
    lcores: Lcores,
    hops: NextHops,
    path_mtus: PathMtus,
    kernel: Box<dyn Kernel + Send>,
    tracer: Tracer,
    shared: Arc<Shared>,
    /// A services file was taken by this process.
    synced: bool,
    /// Services still to be said in the full sync that is under way.
    to_say: Vec<String>,
    /// Read, and not yet said.
    waiting: Option<Waiting>,
    /// Until when what waits may wait for its backends' next hops.
    meeting: Option<Instant>,
    refused: Option<String>,
    applied: Option<Instant>,
    quiet_since: Instant,
    told: Instant,
    looked: Option<Instant>,
}

impl<'r> Reconcile<'r> {
    /// Begins over `tables`, which is attached to `region`.
    pub fn new(
        config: Arc<Config>,
        region: &'r Region,
        tables: Tables<'r>,
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
        for (arm, addr, mac) in tables.next_hops() {
            hops.remember(arm, addr, mac, now);
        }
        Reconcile {
            file: ServicesFile::new(&config.services),
            state: State::default(),
            rings: Rings::attach(region),
            lcores: Lcores::new(lcores, taps.len()),
            hops,
            path_mtus: PathMtus::find(region, now),
            kernel,
            tracer: Tracer::default(),
            synced: false,
            to_say: Vec::new(),
            waiting: None,
            meeting: None,
            refused: None,
            applied: None,
            quiet_since: now,
            told: now,
            looked: None,
            config,
            configured: Configured::default(),
            region,
            tables,
            shared,
        }
    }

    /// Once around. Does what is due at `now` and returns.
    pub fn step(&mut self, now: Instant) {
        self.look_at_files(now);
        self.hear(now);
        // A lcore that still reads the generation before the last holds up the next one.
        if self.tables.ready() {
            if let Some(waiting) = self.waiting.take() {
                if self.met(&waiting.services, now) {
                    self.take(waiting, now);
                } else {
                    self.waiting = Some(waiting);
                }
            } else if self.synced && now >= self.quiet_since + QUIET {
                self.sync_again(now);
            }
        }
        self.next_hops(now);
        self.path_mtus.expire(self.region, now);
        self.switch(now);
        self.tables.reclaim(now);
        if self.looked.is_none_or(|at| now >= at + LOOK) {
            self.look(now);
        }
    }

    fn refuse(&mut self, refusal: String) {
        let path = self.file.path().display();
        tracing::error!("{path} was refused, the set before it stays: {refusal}");
        self.refused = Some(refusal);
    }

    /// Takes over what was read: all of it, or nothing.
    fn take(&mut self, Waiting { config, services }: Waiting, now: Instant) {
        let changes = self.state.towards(&services.services);
        let mut wanted = self.state.clone();
        for change in &changes {
            wanted.apply(change.clone());
        }
        let before = config.clone().map(|config| self.tables.configure(config));
        if !self.synced || !changes.is_empty() || config.is_some() {
            if let Err(refusal) = self.say(&changes, &wanted, !self.synced) {
                let with_config = before.map(|before| self.tables.configure(before)).is_some();
                return self.refuse_waiting(with_config, refusal);
            }
            tracing::info!(
                generation = self.region.generation(),
                services = services.services.len(),
                changes = changes.len(),
                "services taken"
            );
        }
        if let Some(config) = config {
            self.configured(config, now);
        }
        self.state = wanted;
        self.to_say.clear();
        self.synced = true;
        self.refused = None;
        self.applied = Some(now);
        self.quiet_since = now;
        self.want_next_hops(now);
        self.publish_services();
    }

    /// Tells the target these changes and commits them; all of them, or none.
    fn say(&mut self, changes: &[Change], wanted: &State, prune: bool) -> Result<(), String> {
        let said = (|| {
            for change in changes {
                match change {
                    Change::Put(service) => self.tables.update(service)?,
                    Change::Remove(name) => self.tables.delete(name)?,
                }
            }
            if prune {
                self.tables.prune(wanted)?;
            }
            self.introduce();
            self.tables.commit(wanted)
        })();
        match said {
            Ok(None) => Ok(()),
            Ok(Some(generation)) => {
                self.tell(generation);
                Ok(())
            }
            Err(refusal) => {
                self.tables.discard();
                Err(refusal.to_string())
            }
        }
    }

    /// When it is quiet: everything again, in case something was lost. A few services each step,
    /// so that a thousand of them don't hold up the loop; the last step prunes.
    fn sync_again(&mut self, now: Instant) {
        if self.to_say.is_empty() {
            self.to_say = self.state.services().map(|service| service.name.clone()).collect();
        }
        let rest = self.to_say.len().saturating_sub(AT_ONCE);
        let names = self.to_say.split_off(rest);
        let services = names.iter().filter_map(|name| self.state.service(name)).cloned();
        let some: Vec<Change> = services.map(|service| Change::Put(Box::new(service))).collect();
        let wanted = self.state.clone();
        let last = self.to_say.is_empty();
        if let Err(refusal) = self.say(&some, &wanted, last) {
            tracing::error!("the full sync was refused: {refusal}");
        }
        if last {
            self.quiet_since = now;
        }
    }

    /// Takes the lcores' events.
    fn hear(&mut self, now: Instant) {
        let published = self.shared.published();
        for (lcore, event) in self.rings.take() {
            match event {
                Event::Switched { generation } => {
                    tracing::debug!(lcore, generation, "switched");
                }
                Event::NeighbourWanted { next_hop } => {
                    if let Some((arm, addr)) = self.tables.next_hop(next_hop) {
                        self.hops.ask(arm, addr, now);
                    }
                }
                Event::PathMtu { next_hop, mtu } => {
                    let to = self.tables.next_hop(next_hop).map(|(_, addr)| addr.to_string());
                    let to = to.unwrap_or_else(|| format!("next hop {next_hop}"));
                    tracing::warn!("the path to {to} carries {mtu} bytes at most");
                    self.path_mtus.learned(next_hop, now);
                }
                Event::TraceStage { packet, stage, words } => {
                    self.tracer.stage(lcore, packet, stage, words, &published);
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
        let all = self.tables.next_hops();
        self.hops.want(all.map(|(arm, addr, _)| (arm, addr)), now);
    }

    fn next_hops(&mut self, now: Instant) {
        for resolved in self.hops.step(self.kernel.as_mut(), now) {
            self.tables.set_next_hop(&resolved);
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

    fn publish_services(&self) {
        self.shared.publish_tables(Published {
            services: self.tables.services(&self.state),
            tunnels: self.tables.tunnel_names(),
        });
    }
}

#[cfg(test)]
mod tests;
