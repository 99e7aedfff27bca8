//! How planes come to be what the tables say. Open this first: it is the order in which the
//! reconciler does everything.
//!
//! ```text
//!   news of the tables --> addresses to tell, each once, the longest untold first
//!     begin --> due retries, news, a part of the full pass: update or delete --> prune --> commit
//!     generation acknowledged by all lcores --> Done; refused --> Error, again after a while
//! ```
//! An address is looked up when it is told: what counts is what the tables say then, and not what
//! made it worth telling. So nothing depends on which news were heard, a full pass repairs
//! everything, and it changes nothing where nothing differs.
//!
//! No clock and no thread: whoever has them calls [`Reconciler::step`] with the news and the time.

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
/// Brings a plane to what the tables say.
#[derive(Debug)]
pub struct Reconciler {
    settings: Settings,
    /// Time of the first step.
    started: Option<Instant>,
    /// Sources said all, or had their time.
    running: bool,
    /// Revision up to which news were heard.
    seen: u64,
    jobs: Jobs,
    /// The full pass that is under way: where it goes on.
    pass: Option<From>,
    next_pass: Option<Instant>,
    prune: Prune,
    /// From this revision on, news were not heard one by one; a pass and a prune make up for it.
    gap: Option<u64>,
    /// Committed, and not yet acknowledged by all.
    committed: VecDeque<Batch>,
    /// Backends that were quarantined before a restart, by frontend.
    quarantined: HashMap<Address, Vec<Endpoint>>,
    /// Why no batch can be begun.
    blocked: Option<Refusal>,
    /// So many are told one by one: they were in a batch that was refused whole.
    alone: usize,
}

/// Behind which address a pass goes on; none for its start.
type From = Option<Address>;

/// A batch that is being told.
struct Telling<'a> {
    now: Now,
    tables: &'a Tables,
    appliance: &'a Appliance,
    plane: &'a mut dyn Plane,
    told: Vec<Told>,
}

/// What was told in one generation.
#[derive(Debug)]
struct Batch {
    generation: Generation,
    /// The oldest revision that is done with it.
    oldest: u64,
    told: Vec<Told>,
}

/// A frontend that a plane took.
#[derive(Debug)]
struct Told {
    address: Address,
    /// The oldest revision that asked for it.
    revision: u64,
    /// The row; none for a deleted one.
    row: Option<Arc<Frontend>>,
    note: Option<&'static str>,
}

impl Reconciler {
    /// One that has told nothing yet.
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
        }
    }

    /// The revision since which the next step wants to hear the news.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Does what is due, as one batch at most, and returns.
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

    /// Tells everything again, a part in each step: the appliance or its addresses are others, say.
    pub fn say_again(&mut self) {
        self.pass = Some(None);
    }

    /// How many frontends are told in one step from now on ([`Settings::at_once`]).
    pub fn set_at_once(&mut self, frontends: usize) {
        self.settings.at_once = frontends.max(1);
        self.alone = 0;
    }

    /// The revision up to which everything is in the plane and acknowledged by all lcores.
    pub fn reconciled(&self) -> u64 {
        let outstanding = [
            self.jobs.oldest(),
            self.gap,
            self.committed.iter().map(|batch| batch.oldest).min(),
            // Nothing is told yet.
            (!self.running).then_some(1),
        ];
        let oldest = outstanding.into_iter().flatten().min();
        oldest.map_or(self.seen, |oldest| self.seen.min(oldest.saturating_sub(1)))
    }

    /// Whether something is committed that not all lcores are known to have acknowledged.
    pub fn awaits_lcores(&self) -> bool {
        !self.committed.is_empty()
    }

    /// Whether a step would tell the plane something at that time, even without news.
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

    /// What all lcores have acknowledged is done.
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
                }
            }
        }
    }

    /// At the start, waits until sources have said all that they know, so that a restart doesn't
    /// scale services down to backends that happen to be known first.
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

    /// Tells as many frontends as one step may.
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
            // What was refused waits for its time.
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

    /// A backend that was quarantined before a restart stays so until a health checker has looked,
    /// or the backend is gone.
    fn honour(&mut self, wanted: Wanted, tables: &Tables) -> Wanted {
        let address = *wanted.frontend.address();
        let Some(endpoints) = self.quarantined.get_mut(&address) else { return wanted };
        endpoints.retain(|endpoint| {
            let found = wanted.backends.iter().find(|instance| instance.endpoint == *endpoint);
            // A source's own word, not a health checker's, is over when it says otherwise.
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
                // One of them may be why, and holds up nobody else when each is told alone.
                self.alone = told.len();
                for told in told {
                    self.refused_until(now.steady, now, told, &refusal);
                }
                return;
            }
        };
        for told in &told {
            // It was shown as refused, and is so no more.
            if let (Some(row), 1..) = (&told.row, self.jobs.failures(&told.address)) {
                row.set_status(Progress::Pending, told.note, now.wall);
            }
            self.jobs.done(&told.address);
        }
        let revisions = told.iter().map(|told| told.revision);
        if let Some(oldest) = revisions.chain(self.gap).min() {
            self.committed.push_back(Batch { generation, oldest, told });
        }
    }
}
