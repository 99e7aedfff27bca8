//! Reconciler: brings a plane in line with the tables. [`Reconciler::step`] shows the order of all
//! its work.
//!
//! ```text
//!   changes of the tables --> queue of addresses, each once, oldest first
//!     begin --> due retries, queue, a part of the full pass: update or delete --> prune --> commit
//!     generation acknowledged by all lcores --> Done; rejected --> Error, retried later
//! ```
//! An address is looked up when the plane is updated: the current tables count, not the change that
//! queued the address. Correctness therefore does not depend on which changes were observed, a full
//! pass repairs everything, and a pass over a plane in line with the tables changes nothing.
//!
//! The reconciler has no clock and no thread: its caller passes changes and time to
//! [`Reconciler::step`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use foldhash::HashMap;

use crate::address::{Address, Endpoint};
use crate::appliance::Appliance;
use crate::backend::State;
use crate::frontend::{Frontend, Progress};
use crate::plane::{Generation, Plane, Refusal, Wanted};
use crate::select;
use crate::tables::Tables;
use crate::watch::News;

mod health;
mod jobs;
mod prune;
mod schedule;
mod settings;

pub use health::Health;
use jobs::Jobs;
use schedule::{Prune, delay};
pub use settings::{Now, Settings};
/// Reconciler of one plane.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    /// Time of the first step.
    started: Option<Instant>,
    /// Whether all sources have completed their initial list, or the wait for them has timed out.
    running: bool,
    /// Revision up to which changes were observed.
    seen: u64,
    jobs: Jobs,
    /// Position of the full pass that is in progress.
    pass: Option<From>,
    next_pass: Option<Instant>,
    prune: Prune,
    /// Revision from which changes were not observed one by one; a full pass and a prune make up
    /// for it.
    gap: Option<u64>,
    /// Batches that are committed and not yet acknowledged by all lcores.
    committed: VecDeque<Batch>,
    /// Backends, by frontend, that were quarantined before a restart.
    quarantined: HashMap<Address, Vec<Endpoint>>,
    /// Reason why no batch can be begun.
    blocked: Option<Refusal>,
    /// Number of updates left that get a batch of their own, after a batch was rejected as a whole.
    alone: usize,
    /// Whether the status of a row changed since the last [`Reconciler::take_status_changed`].
    status_changed: bool,
}

/// Address after which a pass continues; `None` at its start.
type From = Option<Address>;

/// Batch that is being written to the plane.
struct Telling<'a> {
    now: Now,
    tables: &'a Tables,
    appliance: &'a Appliance,
    plane: &'a mut dyn Plane,
    told: Vec<Told>,
}

/// Updates of one committed generation.
#[derive(Debug)]
struct Batch {
    generation: Generation,
    /// Oldest revision that the batch completes.
    oldest: u64,
    told: Vec<Told>,
}

/// Frontend that the plane accepted.
#[derive(Debug)]
struct Told {
    address: Address,
    /// Oldest revision that queued the address.
    revision: u64,
    /// Row that was written; `None` for a deleted frontend.
    row: Option<Arc<Frontend>>,
    note: Option<&'static str>,
}

impl Reconciler {
    /// Creates a reconciler that has written nothing yet.
    pub fn new(settings: Settings) -> Reconciler {
        Reconciler {
            settings: Settings {
                at_once: settings.at_once.max(1),
                prune_at_once: settings.prune_at_once.max(1),
                ..settings
            },
            started: None,
            running: false,
            seen: 0,
            jobs: Jobs::default(),
            pass: None,
            next_pass: None,
            prune: Prune::default(),
            gap: None,
            committed: VecDeque::new(),
            quarantined: HashMap::default(),
            blocked: None,
            alone: 0,
            status_changed: false,
        }
    }

    /// Returns whether steps changed the status of a row since the last call.
    pub fn take_status_changed(&mut self) -> bool {
        std::mem::take(&mut self.status_changed)
    }

    /// Returns the revision since which the next step needs changes.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Does the work that is due, as one batch at most.
    pub fn step(&mut self, now: Now, news: &News, appliance: &Appliance, plane: &mut dyn Plane) {
        self.hear(news);
        self.acknowledge(plane, now);
        if !self.may_run(now.steady, &news.tables, plane) {
            return;
        }
        self.look_at_timers(now.steady, &news.tables);
        if !self.has_work(now.steady) {
            return;
        }
        self.blocked = plane.begin().err();
        if self.blocked.is_some() {
            return;
        }
        let mut batch = Telling { now, tables: &news.tables, appliance, plane, told: Vec::new() };
        self.tell(&mut batch);
        let made_up = self.prune(&mut batch) && self.pass.is_none();
        self.commit(batch);
        if made_up {
            self.gap = None;
        }
        self.acknowledge(plane, now);
    }

    /// Starts a full pass, a part in each step; for example after the appliance's addresses
    /// changed.
    pub fn say_again(&mut self) {
        self.pass = Some(None);
    }

    /// Sets the number of frontends written in one step ([`Settings::at_once`]).
    pub fn set_at_once(&mut self, frontends: usize) {
        self.settings.at_once = frontends.max(1);
        self.alone = 0;
    }

    /// Returns the revision up to which everything is in the plane and acknowledged by all lcores.
    pub fn reconciled(&self) -> u64 {
        let outstanding = [
            self.jobs.oldest(),
            self.gap,
            self.committed.iter().map(|batch| batch.oldest).min(),
            // Nothing has been written yet.
            (!self.running).then_some(1),
        ];
        let oldest = outstanding.into_iter().flatten().min();
        oldest.map_or(self.seen, |oldest| self.seen.min(oldest.saturating_sub(1)))
    }

    /// Returns whether a batch is committed that not all lcores have acknowledged.
    pub fn awaits_lcores(&self) -> bool {
        !self.committed.is_empty()
    }

    /// Returns whether a step at that time would write to the plane even without new changes.
    pub fn has_work(&self, now: Instant) -> bool {
        self.running && (self.pass.is_some() || self.jobs.has_due(now) || self.must_prune(now))
    }

    fn hear(&mut self, news: &News) {
        match &news.touched {
            Some(touched) => {
                for touched in touched.iter().filter(|touched| touched.revision > self.seen) {
                    for address in &touched.frontends {
                        self.jobs.add(*address, touched.revision);
                    }
                }
            }
            None => {
                self.gap = self.gap.or(Some(self.seen + 1));
                self.pass = Some(None);
            }
        }
        self.seen = self.seen.max(news.tables.revision());
    }

    /// Marks the frontends of batches that all lcores have acknowledged as done.
    fn acknowledge(&mut self, plane: &dyn Plane, now: Now) {
        let Some(acknowledged) = plane.acknowledged() else { return };
        let is_done =
            |batch: &Batch| acknowledged.wrapping_sub(batch.generation) <= Generation::MAX / 2;
        while self.committed.front().is_some_and(is_done)
            && let Some(batch) = self.committed.pop_front()
        {
            for told in batch.told {
                if let Some(row) = told.row {
                    row.set_status(Progress::Done, told.note, now.wall);
                    self.status_changed = true;
                }
            }
        }
    }

    /// Returns whether the plane may be written. At the start this waits until sources have
    /// completed their initial lists, so that a restart does not scale services down to the
    /// backends that happen to be known first.
    fn may_run(&mut self, now: Instant, tables: &Tables, plane: &dyn Plane) -> bool {
        let started = *self.started.get_or_insert(now);
        if self.running {
            return true;
        }
        if !tables.initialized() && now < started + self.settings.patience {
            return false;
        }
        self.running = true;
        self.next_pass = Some(now + self.settings.pass);
        for (address, endpoint) in plane.quarantined() {
            self.quarantined.entry(address).or_default().push(endpoint);
        }
        true
    }

    fn look_at_timers(&mut self, now: Instant, tables: &Tables) {
        if self.prune.due.is_none() && tables.initialized() {
            self.prune.due = Some(now);
        }
        if self.next_pass.is_some_and(|at| at <= now) {
            self.next_pass = Some(now + self.settings.pass);
            self.pass = self.pass.or(Some(None));
        }
    }

    /// Writes as many frontends as one step may.
    fn tell(&mut self, batch: &mut Telling<'_>) {
        let mut room = if self.alone > 0 { 1 } else { self.settings.at_once };
        let tables = batch.tables;
        self.alone = self.alone.saturating_sub(1);
        while room > 0
            && let Some((address, revision)) = self.jobs.next(batch.now.steady)
        {
            room -= 1;
            self.tell_one(batch, address, revision, tables.frontend(&address));
        }
        let Some(from) = self.pass else { return };
        let mut rows = tables.frontends_after(from.as_ref());
        while room > 0 {
            room -= 1;
            let Some(row) = rows.next() else {
                self.pass = None;
                return;
            };
            let address = *row.address();
            self.pass = Some(Some(address));
            // Rejected frontends wait for their retry.
            if !self.jobs.has(&address) {
                self.tell_one(batch, address, row.revision, Some(row));
            }
        }
    }

    fn tell_one(
        &mut self,
        batch: &mut Telling<'_>,
        address: Address,
        revision: u64,
        row: Option<&Arc<Frontend>>,
    ) {
        let (result, note) = match row {
            None => {
                self.quarantined.remove(&address);
                (batch.plane.delete(&address), None)
            }
            Some(row) => {
                let wanted = select::choose(batch.tables, row, batch.appliance);
                let wanted = self.honour(wanted, batch.tables);
                (batch.plane.update(&wanted), wanted.note)
            }
        };
        let told = Told { address, revision, row: row.cloned(), note };
        match result {
            Ok(()) => batch.told.push(told),
            Err(refusal) => self.refused(batch.now, told, &refusal),
        }
    }

    /// Keeps backends that were quarantined before a restart quarantined until their first health
    /// check, or until they are removed.
    fn honour(&mut self, wanted: Wanted, tables: &Tables) -> Wanted {
        let address = *wanted.frontend.address();
        let Some(endpoints) = self.quarantined.get_mut(&address) else { return wanted };
        endpoints.retain(|endpoint| {
            let found = wanted.backends.iter().find(|instance| instance.endpoint == *endpoint);
            // If a source rather than a health check had quarantined it, the source's new state
            // replaces that.
            found.map_or(!tables.initialized(), |instance| {
                instance.health.since.is_none() && instance.state != State::Quarantined
            })
        });
        if endpoints.is_empty() {
            self.quarantined.remove(&address);
            return wanted;
        }
        wanted.with_quarantined(endpoints)
    }

    fn refused(&mut self, now: Now, told: Told, refusal: &Refusal) {
        let Settings { retry_min, retry_max, .. } = self.settings;
        let failures = self.jobs.failures(&told.address);
        self.refused_until(now.steady + delay(retry_min, retry_max, failures), now, told, refusal);
    }

    fn refused_until(&mut self, again: Instant, now: Now, told: Told, refusal: &Refusal) {
        self.jobs.failed(told.address, told.revision, again, &refusal.0);
        if let Some(row) = told.row {
            row.set_status(Progress::Error(refusal.0.as_str().into()), told.note, now.wall);
            self.status_changed = true;
        }
    }

    fn commit(&mut self, batch: Telling<'_>) {
        let Telling { now, plane, told, .. } = batch;
        let generation = match plane.commit() {
            Ok(generation) => generation,
            Err(refusal) => {
                if let [_] = told.as_slice() {
                    told.into_iter().for_each(|told| self.refused(now, told, &refusal));
                    return;
                }
                // One of them may be the cause; written one by one, the others are not affected.
                self.alone = told.len();
                for told in told {
                    self.refused_until(now.steady, now, told, &refusal);
                }
                return;
            }
        };
        for told in &told {
            // It was shown as rejected and is now accepted.
            if let (Some(row), 1..) = (&told.row, self.jobs.failures(&told.address)) {
                row.set_status(Progress::Pending, told.note, now.wall);
                self.status_changed = true;
            }
            self.jobs.done(&told.address);
        }
        let revisions = told.iter().map(|told| told.revision);
        if let Some(oldest) = revisions.chain(self.gap).min() {
            self.committed.push_back(Batch { generation, oldest, told });
        }
    }
}
