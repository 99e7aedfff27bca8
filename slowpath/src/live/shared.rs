//! What the control loop publishes, and what others tell it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use announce::controller::Signal;
use api::Wait;
use clouds::report::Report;
use listeners::Reserved;
use parking_lot::{Mutex, RwLock};
use state::appliance::Appliance;
use state::sources::Settings;
use state::tables::Tables;
use tokio::sync::watch;

use super::wanted::Wanted;
use crate::cloud::followed::{Ends, Followed};
use crate::control::report::{Status, StoreStatus};
use crate::control::trace::TraceRequest;
use crate::health::Able;
use crate::health::checks::Checks;
use crate::health::heartbeat::Heartbeat;
use crate::plane::published::Published;

/// Whether a trace runs. There is one at a time: the lcores follow one filter.
#[derive(Default)]
pub(super) enum TraceSlot {
    #[default]
    Free,
    Asked(TraceRequest),
    Running,
}

/// Written by the control loop, read by all others.
pub struct Shared {
    status: Mutex<Status>,
    /// The control loop's, without which nothing of the following holds.
    heartbeat: Heartbeat,
    /// The loop stood still when that was last looked at.
    stalled: AtomicBool,
    /// Whether the appliance itself could take traffic, as the control loop saw it last.
    own: watch::Sender<Able>,
    /// The plane takes traffic: all of that but a drain. None before the first look.
    carries: RwLock<Option<bool>>,
    /// Whoever announces addresses hears of what it has to look at.
    news: Signal,
    /// Why the cloud's side of us wants none now; empty where it has no objection.
    held_back: Mutex<Vec<String>>,
    /// Probes are told yes whatever the appliance itself could.
    vouched: AtomicBool,
    /// All together, which is what probes are told.
    pub(super) able: watch::Sender<Able>,
    /// What the cloud says that the file says otherwise.
    followed: Mutex<Followed>,
    published: RwLock<Arc<Published>>,
    wanted: RwLock<Wanted>,
    pub(super) trace: Mutex<TraceSlot>,
    waits: Mutex<Vec<Wait>>,
    sources: Mutex<Settings>,
    store: Mutex<StoreStatus>,
    reload: AtomicBool,
    pub(super) checks: Checks,
    pub(super) cloud: RwLock<Report>,
    /// The networks that probe this appliance, as configured now.
    pub(crate) reserved: Reserved,
    /// The control loop's, once it has rested.
    resting: OnceLock<Thread>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared::new(Duration::MAX)
    }
}

impl Shared {
    /// Of a control loop that stands still where its heartbeat is older than `stall_timeout`.
    pub fn new(stall_timeout: Duration) -> Shared {
        let starting = Able { able: false, reasons: vec!["slowpath is starting".to_owned()] };
        Shared {
            status: Mutex::new(Status { reasons: starting.reasons.clone(), ..Status::default() }),
            heartbeat: Heartbeat::new(stall_timeout, Instant::now()),
            stalled: AtomicBool::new(false),
            own: watch::Sender::new(starting.clone()),
            carries: RwLock::default(),
            news: Signal::default(),
            held_back: Mutex::default(),
            vouched: AtomicBool::new(false),
            able: watch::Sender::new(starting),
            followed: Mutex::default(),
            published: RwLock::default(),
            wanted: RwLock::default(),
            trace: Mutex::default(),
            waits: Mutex::default(),
            sources: Mutex::default(),
            store: Mutex::default(),
            reload: AtomicBool::new(false),
            checks: Checks::default(),
            cloud: RwLock::default(),
            reserved: Reserved::default(),
            resting: OnceLock::new(),
        }
    }

    /// The control loop goes around.
    pub fn beat(&self) {
        self.heartbeat.beat(Instant::now());
    }

    /// Compares the heartbeat with the clock, and tells probes, routers and the cloud where the
    /// loop has begun to stand still, or goes on again.
    pub fn judge(&self) {
        let stalled = self.heartbeat.stalled(Instant::now()).is_some();
        if self.stalled.swap(stalled, Ordering::Relaxed) != stalled {
            self.tell_probes();
            self.news.event();
        }
    }

    /// Publishes what a look found; probes and routers hear of it only when it changed. `carries`
    /// says that the plane takes traffic: all of `able` but a drain.
    pub fn publish_status(&self, status: Status, able: Able, carries: bool) {
        *self.status.lock() = status;
        let news = self.own.send_if_modified(|before| {
            let changed = *before != able;
            before.clone_from(&able);
            changed
        });
        if self.carries.write().replace(carries) != Some(carries) || news {
            self.news.event();
        }
        self.tell_probes();
    }

    /// Whether the plane takes traffic, drained or not; none before anybody has looked. A plane
    /// that is no longer looked at takes none.
    pub fn carries(&self) -> Option<bool> {
        let stalled = self.heartbeat.stalled(Instant::now()).is_some();
        self.carries.read().map(|carries| carries && !stalled)
    }

    /// Given whenever there is something new for whoever announces addresses.
    pub fn news(&self) -> &Signal {
        &self.news
    }

    /// Why probes are to be told that no new traffic is wanted, whatever the appliance itself
    /// could; empty where that alone counts. In force when this returns.
    pub fn hold_back(&self, reasons: Vec<String>) {
        *self.held_back.lock() = reasons;
        self.tell_probes();
    }

    /// Probes are told that traffic may come, though the appliance itself could not take it yet
    /// (`azure.preboot_health = "pass"`). What holds it back counts all the same.
    pub fn vouch(&self, vouched: bool) {
        self.vouched.store(vouched, Ordering::Relaxed);
        self.tell_probes();
    }

    fn tell_probes(&self) {
        // Held until they are told, so that the last one to change something is the last to tell.
        let held_back = self.held_back.lock();
        let mut able = match self.vouched.load(Ordering::Relaxed) {
            true => self.but_stalled(Able { able: true, reasons: Vec::new() }),
            false => self.own_now(),
        };
        let others = held_back.iter().filter(|reason| !able.reasons.contains(reason));
        let others: Vec<String> = others.cloned().collect();
        able.able &= held_back.is_empty();
        able.reasons.extend(others);
        let changed = self.able.send_if_modified(|before| {
            let changed = *before != able;
            before.clone_from(&able);
            changed
        });
        // Writing to the log may block: not under a lock that answers to probes need.
        drop(held_back);
        if changed && able.able {
            tracing::info!("able");
        } else if changed {
            tracing::warn!("not able: {}", able.reasons.join("; "));
        }
    }

    /// Publishes how the store was opened.
    pub fn publish_store(&self, store: StoreStatus) {
        *self.store.lock() = store;
    }

    /// How the store was opened.
    pub fn store_now(&self) -> StoreStatus {
        self.store.lock().clone()
    }

    /// The status as published last.
    pub fn status_now(&self) -> Status {
        self.status.lock().clone()
    }

    /// Whether traffic may come: as published last, while the control loop goes on.
    pub fn able_now(&self) -> Able {
        self.but_stalled(self.able.borrow().clone())
    }

    /// Whether the appliance itself could take traffic, whatever the cloud's side says.
    pub fn own_now(&self) -> Able {
        self.but_stalled(self.own.borrow().clone())
    }

    /// The same, or not able where the control loop stands still.
    fn but_stalled(&self, mut able: Able) -> Able {
        if let Some(reason) = self.heartbeat.stalled(Instant::now()) {
            able.able = false;
            if !able.reasons.contains(&reason) {
                able.reasons.insert(0, reason);
            }
        }
        able
    }

    /// The gateway forgets idle TCP flows after so long: so do we from now on.
    pub fn follow_tcp_idle(&self, idle: Duration) {
        self.followed.lock().tcp_idle = Some(idle);
        self.wake();
    }

    /// From now on the tunnels of these gateways have other ports and VNIs than the file says.
    pub fn follow_tunnels(&self, tunnels: BTreeMap<String, Ends>) {
        self.followed.lock().tunnels = tunnels;
        self.wake();
    }

    /// What the cloud says that the file says otherwise.
    pub fn followed(&self) -> Followed {
        self.followed.lock().clone()
    }

    /// Has both files read again, changed or not.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// The control loop rests for so long, or until somebody wakes it. For one thread alone.
    pub fn rest(&self, at_most: Duration) {
        self.resting.get_or_init(std::thread::current);
        std::thread::park_timeout(at_most);
    }

    /// There is something for the control loop: it goes around at once, or once more if it is on
    /// its way. Whoever has news for it says so.
    pub fn wake(&self) {
        if let Some(thread) = self.resting.get() {
            thread.unpark();
        }
    }

    /// Whether that was asked for since this was last asked.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Publishes what a commit changed.
    pub fn publish_tables(&self, published: Published) {
        *self.published.write() = Arc::new(published);
    }

    /// What the last commit published.
    pub fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published.read())
    }

    /// Publishes what there shall be from now on.
    pub fn publish_wanted(&self, wanted: Wanted) {
        *self.wanted.write() = wanted;
        self.news.event();
    }

    /// Publishes what is to be done with sources from now on.
    pub fn publish_sources(&self, settings: Settings) {
        *self.sources.lock() = settings;
    }

    /// Who has begun to wait for a change since this was last asked.
    pub fn take_waits(&self) -> Vec<Wait> {
        std::mem::take(&mut *self.waits.lock())
    }

    /// What there shall be, as published last.
    pub fn wanted_now(&self) -> Wanted {
        self.wanted.read().clone()
    }

    /// The trace that somebody wants, once; from then on one runs.
    pub fn take_trace(&self) -> Option<TraceRequest> {
        let mut slot = self.trace.lock();
        if !matches!(*slot, TraceSlot::Asked(_)) {
            return None;
        }
        match std::mem::replace(&mut *slot, TraceSlot::Running) {
            TraceSlot::Asked(request) => Some(request),
            _ => None,
        }
    }

    /// The trace that ran is over.
    pub fn free_trace(&self) {
        *self.trace.lock() = TraceSlot::Free;
    }
}

impl api::Control for Shared {
    fn tables(&self) -> (Tables, Arc<Appliance>) {
        let wanted = self.wanted.read();
        (wanted.tables.clone(), Arc::clone(&wanted.appliance))
    }

    fn wait(&self, wait: Wait) {
        self.waits.lock().push(wait);
        self.wake();
    }

    fn sources(&self) -> Settings {
        self.sources.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able(reasons: &[&str]) -> Able {
        let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        Able { able: reasons.is_empty(), reasons }
    }

    #[test]
    fn probes_are_told_both_what_we_could_and_what_the_cloud_wants() {
        let shared = Shared::default();
        let hold = |reasons: &[&str]| shared.hold_back(able(reasons).reasons);
        let told = || shared.able_now();
        hold(&["not registered"]);
        assert_eq!(told(), able(&["slowpath is starting", "not registered"]));
        assert_eq!(shared.carries(), None, "nobody has looked");
        shared.publish_status(Status::default(), able(&[]), true);
        assert_eq!(told(), able(&["not registered"]));
        assert_eq!(shared.carries(), Some(true));
        hold(&[]);
        assert_eq!(told(), able(&[]));
        shared.publish_status(Status::default(), able(&["no lcore polls"]), false);
        // The cloud's side may repeat it.
        hold(&["no lcore polls", "leaving"]);
        assert_eq!(told(), able(&["no lcore polls", "leaving"]));
        assert_eq!(shared.own_now(), able(&["no lcore polls"]));
        // Before it was able for the first time somebody may vouch for it.
        shared.vouch(true);
        assert_eq!(told(), able(&["no lcore polls", "leaving"]));
        hold(&[]);
        assert_eq!(told(), able(&[]));
        shared.vouch(false);
        assert_eq!(told(), able(&["no lcore polls"]));
    }
    #[test]
    fn a_loop_that_stands_still_fails_all_that_it_has_published() {
        let shared = Shared::new(Duration::MAX);
        shared.publish_status(Status::default(), able(&[]), true);
        assert_eq!((shared.able_now(), shared.carries()), (able(&[]), Some(true)));
        let mut told = shared.able.subscribe();
        // Any beat is too old. Those that ask are told at once, before anybody has judged.
        shared.heartbeat.set_timeout(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        let stalled = |able: &Able| !able.able && able.reasons[0].contains("stands still");
        assert!(stalled(&shared.able_now()) && stalled(&shared.own_now()));
        assert_eq!(shared.carries(), Some(false), "routes are withdrawn");
        // Those that wait for news hear of it from the judge; also where somebody vouched.
        shared.judge();
        assert!(told.has_changed().unwrap() && stalled(&told.borrow_and_update()));
        shared.vouch(true);
        assert!(stalled(&shared.able_now()));
        shared.vouch(false);
        shared.heartbeat.set_timeout(Duration::MAX);
        shared.judge();
        assert_eq!((shared.able_now(), shared.carries()), (able(&[]), Some(true)));
        assert!(told.has_changed().unwrap() && told.borrow_and_update().able);
    }
}
