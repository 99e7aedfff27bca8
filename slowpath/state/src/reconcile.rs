//! Reconciler: brings a plane in line with the tables. [`Reconciler::step`] does all of the work.
//!
//! ```text
//!   changes of the tables --> queue of addresses, each once, oldest first
//!     begin --> due retries, queue, a part of the full pass: update or delete --> prune --> commit
//!     generation acknowledged by all lcores --> Done; rejected --> Error, retried later
//! ```
//! A queued address is looked up in the current tables when the plane is updated, whatever change
//! queued it. Correctness therefore does not depend on which changes were observed: a full pass,
//! which writes every frontend of the tables, repairs the plane, and changes nothing in a plane
//! that is in line with the tables. Pruning deletes what the tables do not have.
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
use crate::plane::{DesiredFrontend, Generation, Plane, PlaneError};
use crate::select;
use crate::tables::Tables;
use crate::watch::TableChanges;

mod health;
mod prune;
mod queue;
mod schedule;
mod settings;

pub use health::Health;
use queue::WriteQueue;
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
    observed: u64,
    /// Addresses to write.
    queue: WriteQueue,
    /// Position of the full pass that is in progress; `None` between passes.
    pass: Option<PassPosition>,
    /// Time at which the next full pass begins; `None` until the plane may be written.
    next_pass: Option<Instant>,
    prune: Prune,
    /// First revision whose changes were not observed one by one, until a full pass and a prune
    /// have made up for them; `None` if there is none.
    gap: Option<u64>,
    /// Batches that are committed and not yet acknowledged by all lcores.
    committed: VecDeque<Batch>,
    /// Backends, by frontend, whose quarantine is inherited from an earlier process
    /// ([`Plane::quarantined`]).
    quarantined: HashMap<Address, Vec<Endpoint>>,
    /// Reason why the last batch could not begin; `None` if it could.
    blocked: Option<PlaneError>,
    /// Number of coming batches that have a single write, because the commit of a batch failed.
    single_writes: usize,
    /// Whether the status of a row changed since the last [`Reconciler::take_status_changed`].
    status_changed: bool,
}

/// Address after which a pass continues; `None` at its start.
type PassPosition = Option<Address>;

/// Batch that is being written to the plane.
struct OpenBatch<'a> {
    now: Now,
    tables: &'a Tables,
    appliance: &'a Appliance,
    plane: &'a mut dyn Plane,
    writes: Vec<FrontendWrite>,
}

/// Committed batch: the writes of one generation.
#[derive(Debug)]
struct Batch {
    generation: Generation,
    /// Oldest revision of the batch's writes, or of the gap (`Reconciler::gap`) if that is older.
    oldest: u64,
    writes: Vec<FrontendWrite>,
}

/// Update or deletion of one frontend.
#[derive(Debug)]
struct FrontendWrite {
    address: Address,
    /// Oldest revision that queued the address, or in a full pass the row's revision.
    revision: u64,
    /// Row to write; `None` for a deletion.
    row: Option<Arc<Frontend>>,
    /// Note for the row's status.
    note: Option<&'static str>,
}

impl Reconciler {
    /// Creates a reconciler that has written nothing yet.
    pub fn new(settings: Settings) -> Reconciler {
        Reconciler {
            settings: Settings {
                frontends_per_step: settings.frontends_per_step.max(1),
                prunes_per_step: settings.prunes_per_step.max(1),
                ..settings
            },
            started: None,
            running: false,
            observed: 0,
            queue: WriteQueue::default(),
            pass: None,
            next_pass: None,
            prune: Prune::default(),
            gap: None,
            committed: VecDeque::new(),
            quarantined: HashMap::default(),
            blocked: None,
            single_writes: 0,
            status_changed: false,
        }
    }

    /// Returns whether steps changed the status of a row since the last call.
    pub fn take_status_changed(&mut self) -> bool {
        std::mem::take(&mut self.status_changed)
    }

    /// Returns the revision up to which changes were observed. The next step needs the changes
    /// after it.
    pub fn observed(&self) -> u64 {
        self.observed
    }

    /// Observes changes and acknowledgements, and does the work that is due, in at most one batch.
    pub fn step(
        &mut self,
        now: Now,
        changes: &TableChanges,
        appliance: &Appliance,
        plane: &mut dyn Plane,
    ) {
        self.observe(changes);
        self.acknowledge(plane, now);
        if !self.may_run(now.steady, &changes.tables, plane) {
            return;
        }
        self.check_timers(now.steady, &changes.tables);
        if !self.has_work(now.steady) {
            return;
        }
        self.blocked = plane.begin().err();
        if self.blocked.is_some() {
            return;
        }
        let mut batch =
            OpenBatch { now, tables: &changes.tables, appliance, plane, writes: Vec::new() };
        // A single write shows whether it makes the commit fail, so nothing is pruned with it.
        let may_prune = self.single_writes == 0;
        self.write_due(&mut batch);
        let pruned = if may_prune { self.prune(&mut batch) } else { None };
        let only_prunes = batch.writes.is_empty();
        match (self.commit(batch), pruned) {
            (Ok(()), Some(complete)) => {
                self.prune_committed(now.steady, &changes.tables, complete);
                if complete && self.pass.is_none() {
                    self.gap = None;
                }
            }
            (Err(error), Some(_)) if only_prunes => self.prune_failed(now.steady, error),
            // A write may be the cause, so the prune is repeated without backoff.
            (Err(_), Some(_)) => self.prune.due = Some(now.steady),
            (_, None) => {}
        }
        self.acknowledge(plane, now);
    }

    /// Starts a full pass, of which each step writes a part. Needed after a change outside the
    /// tables on which writes depend, such as a change of the appliance's addresses.
    pub fn start_full_pass(&mut self) {
        self.pass = Some(None);
    }

    /// Sets the maximum number of frontends written in one step ([`Settings::frontends_per_step`]),
    /// and ends the single writes that follow a rejected batch.
    pub fn set_frontends_per_step(&mut self, frontends: usize) {
        self.settings.frontends_per_step = frontends.max(1);
        self.single_writes = 0;
    }

    /// Returns the revision up to which all changes are in the plane and acknowledged by all
    /// lcores.
    pub fn reconciled(&self) -> u64 {
        let outstanding = [
            self.queue.oldest(),
            self.gap,
            self.committed.iter().map(|batch| batch.oldest).min(),
            // Before it runs, the reconciler has written nothing.
            (!self.running).then_some(1),
        ];
        let oldest = outstanding.into_iter().flatten().min();
        oldest.map_or(self.observed, |oldest| self.observed.min(oldest.saturating_sub(1)))
    }

    /// Returns whether a batch is committed that not all lcores have acknowledged.
    pub fn awaits_lcores(&self) -> bool {
        !self.committed.is_empty()
    }

    /// Returns whether a step at the time `now` would begin a batch even without new changes.
    pub fn has_work(&self, now: Instant) -> bool {
        self.running && (self.pass.is_some() || self.queue.has_due(now) || self.is_prune_due(now))
    }

    fn observe(&mut self, changes: &TableChanges) {
        match &changes.touched {
            Some(touched) => {
                for touched in touched.iter().filter(|touched| touched.revision > self.observed) {
                    for address in &touched.frontends {
                        self.queue.add(*address, touched.revision);
                    }
                }
            }
            None => {
                self.gap = self.gap.or(Some(self.observed + 1));
                self.pass = Some(None);
            }
        }
        self.observed = self.observed.max(changes.tables.revision());
    }

    /// Marks the frontends of batches that all lcores have acknowledged as done.
    fn acknowledge(&mut self, plane: &dyn Plane, now: Now) {
        let Some(acknowledged) = plane.acknowledged() else { return };
        let is_done =
            |batch: &Batch| acknowledged.wrapping_sub(batch.generation) <= Generation::MAX / 2;
        while self.committed.front().is_some_and(is_done)
            && let Some(batch) = self.committed.pop_front()
        {
            for write in batch.writes {
                if let Some(row) = write.row {
                    row.set_status(Progress::Done, write.note, now.wall);
                    self.status_changed = true;
                }
            }
        }
    }

    /// Returns whether the plane may be written: once the sources have completed their initial
    /// lists, or [`Settings::initial_list_timeout`] has passed since the first step. Without this
    /// wait, a restart would reduce services to the backends that their sources write first.
    fn may_run(&mut self, now: Instant, tables: &Tables, plane: &dyn Plane) -> bool {
        let started = *self.started.get_or_insert(now);
        if self.running {
            return true;
        }
        if !tables.initialized() && now < started + self.settings.initial_list_timeout {
            return false;
        }
        self.running = true;
        self.next_pass = Some(now + self.settings.pass);
        for (address, endpoint) in plane.quarantined() {
            self.quarantined.entry(address).or_default().push(endpoint);
        }
        true
    }

    /// Schedules the first prune once the initial lists are complete, and starts a full pass if one
    /// is due.
    fn check_timers(&mut self, now: Instant, tables: &Tables) {
        if self.prune.due.is_none() && tables.initialized() {
            self.prune.due = Some(now);
        }
        if self.next_pass.is_some_and(|at| at <= now) {
            self.next_pass = Some(now + self.settings.pass);
            self.pass = self.pass.or(Some(None));
        }
    }

    /// Writes due frontends: those of the queue, then those of the full pass, up to the maximum of
    /// one step.
    fn write_due(&mut self, batch: &mut OpenBatch<'_>) {
        let mut remaining =
            if self.single_writes > 0 { 1 } else { self.settings.frontends_per_step };
        let tables = batch.tables;
        self.single_writes = self.single_writes.saturating_sub(1);
        while remaining > 0
            && let Some((address, revision)) = self.queue.next(batch.now.steady)
        {
            remaining -= 1;
            self.write_frontend(batch, address, revision, tables.frontend(&address));
        }
        let Some(from) = self.pass else { return };
        let mut rows = tables.frontends_after(from.as_ref());
        while remaining > 0 {
            remaining -= 1;
            let Some(row) = rows.next() else {
                self.pass = None;
                return;
            };
            let address = *row.address();
            self.pass = Some(Some(address));
            // Rejected frontends wait for their retry, and queued ones for their turn.
            if !self.queue.has(&address) {
                self.write_frontend(batch, address, row.revision, Some(row));
            }
        }
    }

    fn write_frontend(
        &mut self,
        batch: &mut OpenBatch<'_>,
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
                let desired = select::select_backends(batch.tables, row, batch.appliance);
                let desired = self.keep_quarantined(desired, batch.tables);
                (batch.plane.update(&desired), desired.note)
            }
        };
        let write = FrontendWrite { address, revision, row: row.cloned(), note };
        match result {
            Ok(()) => batch.writes.push(write),
            Err(error) => self.reject(batch.now, write, &error),
        }
    }

    /// Applies the inherited quarantine to a frontend. The quarantine of a backend lasts until its
    /// first health check, until it is removed, until its source quarantines it, or until a prune
    /// ends it.
    fn keep_quarantined(&mut self, desired: DesiredFrontend, tables: &Tables) -> DesiredFrontend {
        let address = *desired.frontend.address();
        let Some(endpoints) = self.quarantined.get_mut(&address) else { return desired };
        endpoints.retain(|endpoint| {
            let found = desired.backends.iter().find(|instance| instance.endpoint == *endpoint);
            // The source's own quarantine of a backend replaces the inherited one, because the
            // source also ends it.
            found.map_or(!tables.initialized(), |instance| {
                instance.health.since.is_none() && instance.state != State::Quarantined
            })
        });
        if endpoints.is_empty() {
            self.quarantined.remove(&address);
            return desired;
        }
        desired.with_quarantined(endpoints)
    }

    /// Records a rejected write, to be retried after a delay that doubles with each rejection.
    fn reject(&mut self, now: Now, write: FrontendWrite, error: &PlaneError) {
        let Settings { retry_min, retry_max, .. } = self.settings;
        let failures = self.queue.failures(&write.address);
        self.reject_until(now.steady + delay(retry_min, retry_max, failures), now, write, error);
    }

    /// Records a rejected write, to be retried at `retry_at`.
    fn reject_until(
        &mut self,
        retry_at: Instant,
        now: Now,
        write: FrontendWrite,
        error: &PlaneError,
    ) {
        self.queue.failed(write.address, write.revision, retry_at, &error.0);
        if let Some(row) = write.row {
            row.set_status(Progress::Error(error.0.as_str().into()), write.note, now.wall);
            self.status_changed = true;
        }
    }

    /// Commits a batch. If that fails, its writes are rejected, to be retried.
    fn commit(&mut self, batch: OpenBatch<'_>) -> Result<(), PlaneError> {
        let OpenBatch { now, plane, writes, .. } = batch;
        let generation = match plane.commit() {
            Ok(generation) => generation,
            Err(error) => {
                if let [_] = writes.as_slice() {
                    writes.into_iter().for_each(|write| self.reject(now, write, &error));
                    return Err(error);
                }
                // One of the writes may be the cause. Each is retried in the next steps in a
                // batch of its own, in which the others succeed.
                self.single_writes = writes.len();
                for write in writes {
                    self.reject_until(now.steady, now, write, &error);
                }
                return Err(error);
            }
        };
        for write in &writes {
            // The row's status shows an earlier rejection, but the plane has now accepted the row.
            if let (Some(row), 1..) = (&write.row, self.queue.failures(&write.address)) {
                row.set_status(Progress::Pending, write.note, now.wall);
                self.status_changed = true;
            }
            self.queue.done(&write.address);
        }
        let revisions = writes.iter().map(|write| write.revision);
        if let Some(oldest) = revisions.chain(self.gap).min() {
            self.committed.push_back(Batch { generation, oldest, writes });
        }
        Ok(())
    }
}
