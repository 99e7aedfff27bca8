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
use crate::way::{self, Control, Rig, Served};

/// Objects in one record of the store during the initial fill.
const AT_ONCE: usize = 1_000;
/// Backends of the large service.
const MANY: u32 = 10_000;
/// Slots of its Maglev table: the default of a service that does not set it.
const TABLE: u32 = 16_381;

/// The duration of one change, by phase.
#[derive(Clone, Copy)]
pub struct Step {
    /// Until the change is on disk.
    pub disk: Duration,
    /// From there until the generation is committed and the lcores are notified.
    pub told: Duration,
    /// CPU time of the control loop for that; less sensitive to a busy machine.
    pub cpu: Duration,
    /// From there until the lcore has acknowledged and the frontends are done.
    pub done: Duration,
}

/// The measured changes of one set of tables.
pub struct Changes {
    pub load: Load,
    pub steps: Vec<Step>,
}

/// A change for the control loop, and the time at which it was on disk.
type Order = (Change, Instant);

/// The loop's result: when the lcores were notified, when all was done, and the CPU time until
/// the notification.
type Answer = Result<(Instant, Instant, Duration), String>;

/// Measures changes, each of another backend: among `services` services, and in one large
/// service.
pub fn measure(services: u32, changes: u32) -> Result<[Changes; 2], String> {
    let many = Load { services, backends: 1, table: TABLE, tunnel: true };
    let big = Load { services: 1, backends: MANY.min(services), ..many };
    Ok([among(many, changes)?, among(big, changes)?])
}

/// A temporary directory for the store, removed on drop.
pub struct Kept(pub PathBuf);

impl Kept {
    /// Names a directory below the system's temporary directory.
    pub fn new(name: &str) -> Kept {
        let name = format!("weir-control-{}-{name}", std::process::id());
        Kept(std::env::temp_dir().join(name))
    }

    /// Opens a store and fills it with all objects of a load.
    pub fn filled(&self, puts: &[Change]) -> Result<Store<Folder>, String> {
        let folder = Folder::open(&self.0).map_err(|e| e.to_string())?;
        let mut store = Store::open(folder);
        for batch in puts.chunks(AT_ONCE) {
            give(&mut store, batch.to_vec())?;
        }
        Ok(store)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // If removal fails, the files remain in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn give(store: &mut Store<Folder>, batch: Vec<Change>) -> Result<(), String> {
    let answers = store.commit(&[batch], SystemTime::now());
    answers.into_iter().try_for_each(|answer| answer.map(drop)).map_err(|e| e.to_string())
}

fn among(load: Load, changes: u32) -> Result<Changes, String> {
    let region = Region::anonymous(&way::sizes(&load)).map_err(|e| e.to_string())?;
    let (puts, _) = load.changes()?;
    let kept = Kept::new(&format!("change-{}", load.services));
    let mut store = kept.filled(&puts)?;
    let (shared, stop) = (&Shared::default(), &AtomicBool::new(false));
    let (region, puts) = (&region, &puts);
    let steps = std::thread::scope(|scope| {
        let lcore = scope.spawn(|| poll(region, stop));
        let (orders, ordered) = channel();
        let (answers, answered) = channel();
        let control = scope.spawn(move || {
            let mut control = Control::new(Rig::Region(Box::new(Served::attach(region, None)?)));
            control.run(puts, 500)?;
            let ready = Instant::now();
            // The requesting thread starts after this message.
            let _ = answers.send(Ok((ready, ready, Duration::ZERO)));
            turn(&mut control, shared, &ordered, &answers)
        });
        let steps = ask(&load, changes, &mut store, shared, (&orders, &answered));
        drop(orders);
        shared.wake();
        let ended = control.join().unwrap_or_else(|_| Err("the control loop broke".to_owned()));
        stop.store(true, Ordering::Relaxed);
        let polled = lcore.join().unwrap_or_else(|_| Err("the lcore broke".to_owned()));
        ended.and(polled).and(steps)
    })?;
    Ok(Changes { load, steps })
}

/// Runs the lcore: its poll loop without packets.
fn poll(region: &Region, stop: &AtomicBool) -> Result<(), String> {
    let mut polled = way::lcore(region)?;
    while !stop.load(Ordering::Relaxed) {
        polled.lcore.turn();
        std::hint::spin_loop();
    }
    Ok(())
}

fn thread_time() -> Result<Duration, String> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(|e| e.to_string())?;
    Ok(Duration::from(time))
}

/// Runs the control loop: applies changes as they arrive, and sleeps as slowpath's loop does.
fn turn(
    control: &mut Control<'_>,
    shared: &Shared,
    orders: &Receiver<Order>,
    answers: &Sender<Answer>,
) -> Result<(), String> {
    use std::sync::mpsc::TryRecvError;
    let mut under_way: Option<(u64, Instant, Duration)> = None;
    loop {
        match orders.try_recv() {
            Ok((change, _)) => {
                let begun = thread_time()?;
                let revision = control.take(&[change])?;
                control.step();
                let cpu = thread_time()?.saturating_sub(begun);
                under_way = Some((revision, Instant::now(), cpu));
            }
            Err(TryRecvError::Empty) => control.step(),
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
        let reconciled = control.reconciler.reconciled();
        if let Some((_, told, cpu)) = under_way.take_if(|(revision, ..)| *revision <= reconciled) {
            // The receiver may have ended with an error of its own.
            let _ = answers.send(Ok((told, Instant::now(), cpu)));
        }
        shared.rest(rest(under_way.map(|(_, told, _)| told), Instant::now()));
    }
}

/// Requests one change after the other and waits for each.
fn ask(
    load: &Load,
    changes: u32,
    store: &mut Store<Folder>,
    shared: &Shared,
    (orders, answers): (&Sender<Order>, &Receiver<Answer>),
) -> Result<Vec<Step>, String> {
    let over = |_| "the control loop has ended".to_owned();
    let mut steps = Vec::new();
    answers.recv().map_err(|_| over(()))??;
    for n in 0..changes {
        // Spread over the whole range; each backend goes into maintenance once and comes back
        // later.
        let (service, backend) = match load.services {
            1 => (0, (n / 2).wrapping_mul(7_919) % load.backends),
            services => ((n / 2).wrapping_mul(7_919) % services, 0),
        };
        let change = load.one_backend(service, backend, n % 2 == 0)?;
        let begun = Instant::now();
        give(store, vec![change.clone()])?;
        let kept = Instant::now();
        orders.send((change, kept)).map_err(|_| over(()))?;
        shared.wake();
        let (told, done, cpu) = answers.recv().map_err(|_| over(()))??;
        steps.push(Step { disk: kept - begun, told: told - kept, cpu, done: done - kept });
        // The next change reaches a loop that sleeps.
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(steps)
}
