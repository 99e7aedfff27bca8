//! Measures the change of one backend, from the write to disk to the acknowledgment by an lcore.
//!
//! Three threads as in the appliance: one passes the change to the store and waits for the disk,
//! one runs the control loop and sleeps between two steps as slowpath's does, one is a polling
//! lcore. Both control threads share the machine with the lcore; with fewer than three cores the
//! figures measure the scheduler.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use nix::time::{ClockId, clock_gettime};
use slowpath::live::Shared;
use slowpath::reconcile::rest;
use state::object::Change;
use state::store::{Folder, Store};
use tables::region::Region;

use crate::load::Load;
use crate::pipeline::{self, AttachedRegion, Control, Harness};

/// Objects in one record of the store during the initial fill.
const RECORD_OBJECTS: usize = 1_000;
/// Backends of the large service.
const LARGE_BACKENDS: u32 = 10_000;
/// Slots of each service's Maglev table: the default of `table_size`.
const TABLE: u32 = 16_381;

/// The duration of one change, by phase.
#[derive(Clone, Copy)]
pub struct Step {
    /// Until the change is on disk.
    pub disk: Duration,
    /// From the change being on disk until the generation is committed and the lcores are notified.
    pub committed: Duration,
    /// CPU time of the control loop until the commit; less sensitive to a busy machine.
    pub cpu: Duration,
    /// From the change being on disk until the lcore has acknowledged and the frontends are done.
    pub done: Duration,
}

/// The measured changes of one set of tables.
pub struct Changes {
    pub load: Load,
    pub steps: Vec<Step>,
}

/// A change for the control loop, and the time at which it was on disk.
type ChangeRequest = (Change, Instant);

/// The control loop's response to a change: when the lcores were notified, when all was done, and
/// the CPU time until the notification.
type Answer = Result<(Instant, Instant, Duration), String>;

/// Measures changes of single backends: among `services` services, and in one large service.
pub fn measure(services: u32, changes: u32) -> Result<[Changes; 2], String> {
    let many = Load { services, backends: 1, table: TABLE, tunnel: true };
    let big = Load { services: 1, backends: LARGE_BACKENDS.min(services), ..many };
    Ok([measure_load(many, changes)?, measure_load(big, changes)?])
}

/// A temporary directory for the store, removed on drop.
pub struct TempStore(pub PathBuf);

impl TempStore {
    /// Names a directory below the system's temporary directory.
    pub fn new(name: &str) -> TempStore {
        let name = format!("weir-control-{}-{name}", std::process::id());
        TempStore(std::env::temp_dir().join(name))
    }

    /// Opens a store and fills it with all objects of a load.
    pub fn filled(&self, puts: &[Change]) -> Result<Store<Folder>, String> {
        let folder = Folder::open(&self.0).map_err(|e| e.to_string())?;
        let mut store = Store::open(folder);
        for batch in puts.chunks(RECORD_OBJECTS) {
            commit_batch(&mut store, batch.to_vec())?;
        }
        Ok(store)
    }
}

impl Drop for TempStore {
    fn drop(&mut self) {
        // If removal fails, the files remain in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn commit_batch(store: &mut Store<Folder>, batch: Vec<Change>) -> Result<(), String> {
    let answers = store.commit(&[batch], SystemTime::now());
    answers.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|e| e.to_string())
}

fn measure_load(load: Load, changes: u32) -> Result<Changes, String> {
    let region = Region::anonymous(&pipeline::sizes(&load)).map_err(|e| e.to_string())?;
    let (puts, _) = load.changes()?;
    let store_dir = TempStore::new(&format!("change-{}", load.services));
    let mut store = store_dir.filled(&puts)?;
    let (shared, stop) = (&Shared::default(), &AtomicBool::new(false));
    let (region, puts) = (&region, &puts);
    let steps = std::thread::scope(|scope| {
        let lcore = scope.spawn(|| poll(region, stop));
        let (orders, ordered) = channel();
        let (answers, answered) = channel();
        let control = scope.spawn(move || {
            let mut control =
                Control::new(Harness::Region(Box::new(AttachedRegion::attach(region, None)?)));
            control.run(puts, 500)?;
            let ready = Instant::now();
            // The requesting thread starts after this message.
            let _ = answers.send(Ok((ready, ready, Duration::ZERO)));
            run_loop(&mut control, shared, &ordered, &answers)
        });
        let steps = request_changes(&load, changes, &mut store, shared, (&orders, &answered));
        drop(orders);
        shared.wake();
        let ended = control.join().unwrap_or_else(|_| Err("the control loop panicked".to_owned()));
        stop.store(true, Ordering::Relaxed);
        let polled = lcore.join().unwrap_or_else(|_| Err("the lcore panicked".to_owned()));
        ended.and(polled).and(steps)
    })?;
    Ok(Changes { load, steps })
}

/// Runs the lcore: its poll loop without packets.
fn poll(region: &Region, stop: &AtomicBool) -> Result<(), String> {
    let mut polled = pipeline::lcore(region)?;
    while !stop.load(Ordering::Relaxed) {
        polled.lcore.run_periodic();
        std::hint::spin_loop();
    }
    Ok(())
}

/// Returns the CPU time of this thread.
pub fn thread_time() -> Result<Duration, String> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|e| e.to_string())?;
    Ok(Duration::from(time))
}

/// Runs the control loop: applies changes as they arrive, and sleeps as slowpath's loop does.
fn run_loop(
    control: &mut Control<'_>,
    shared: &Shared,
    orders: &Receiver<ChangeRequest>,
    answers: &Sender<Answer>,
) -> Result<(), String> {
    use std::sync::mpsc::TryRecvError;
    let mut pending: Option<(u64, Instant, Duration)> = None;
    loop {
        match orders.try_recv() {
            Ok((change, _)) => {
                let started = thread_time()?;
                let revision = control.apply(&[change])?;
                control.step();
                let cpu = thread_time()?.saturating_sub(started);
                pending = Some((revision, Instant::now(), cpu));
            }
            Err(TryRecvError::Empty) => control.step(),
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let reconciled = control.reconciler.reconciled();
        if let Some((_, committed, cpu)) = pending.take_if(|(revision, ..)| *revision <= reconciled)
        {
            // The receiver may have ended with an error of its own.
            let _ = answers.send(Ok((committed, Instant::now(), cpu)));
        }
        shared.rest(rest(pending.map(|(_, committed, _)| committed), Instant::now()));
    }
}

/// Requests one change after the other and waits for each.
fn request_changes(
    load: &Load,
    changes: u32,
    store: &mut Store<Folder>,
    shared: &Shared,
    (orders, answers): (&Sender<ChangeRequest>, &Receiver<Answer>),
) -> Result<Vec<Step>, String> {
    let ended = |_| "the control loop has ended".to_owned();
    let mut steps = Vec::new();
    answers.recv().map_err(|_| ended(()))??;
    for n in 0..changes {
        // The changed backends are spread over all of them. Each one goes into maintenance with one
        // change, and leaves it with the next.
        let (service, backend) = match load.services {
            1 => (0, (n / 2).wrapping_mul(7_919) % load.backends),
            services => ((n / 2).wrapping_mul(7_919) % services, 0),
        };
        let change = load.one_backend(service, backend, n % 2 == 0)?;
        let started = Instant::now();
        commit_batch(store, vec![change.clone()])?;
        let persisted = Instant::now();
        orders.send((change, persisted)).map_err(|_| ended(()))?;
        shared.wake();
        let (committed, done, cpu) = answers.recv().map_err(|_| ended(()))??;
        steps.push(Step {
            disk: persisted - started,
            committed: committed - persisted,
            cpu,
            done: done - persisted,
        });
        // Lets the control loop go to sleep first, as it sleeps when a change arrives.
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(steps)
}
