//! Between the control loop and those who answer questions: what is published, and the region.

mod counts;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use announce::controller::Signal;
use api::Wait;
use clouds::report::Report;
use config::checked::Config;
use parking_lot::{Mutex, RwLock};
use state::appliance::Appliance;
use state::name::Precedence;
use state::object::Objects;
use state::sources::Settings;
use state::tables::Tables;
use tables::flow::Flows;
use tables::region::Region;
use tokio::sync::watch;

use crate::announcing::Desk;
use crate::checks::Checks;
use crate::followed::{Ends, Followed};
use crate::health::Able;
pub use crate::published::{KnownService, Published};
use crate::report::{Status, Use};
use crate::trace::TraceRequest;

/// What there shall be, as the sources said last.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What was given to us.
    pub objects: Objects,
    /// The tables that are made of it.
    pub tables: Tables,
    /// The appliance as selection sees it.
    pub appliance: Arc<Appliance>,
    /// Which source's word counts.
    pub precedence: Precedence,
}

/// Whether a trace runs. There is one at a time: the lcores follow one filter.
#[derive(Default)]
enum TraceSlot {
    #[default]
    Free,
    Asked(TraceRequest),
    Running,
}

/// Written by the control loop, read by all others.
pub struct Shared {
    status: Mutex<Status>,
    /// Whether the appliance itself could take traffic.
    own: watch::Sender<Able>,
    /// The plane takes traffic: all of that but a drain.
    carries: AtomicBool,
    /// Whoever announces addresses hears of what it has to look at.
    news: Signal,
    /// Why the cloud's side of us wants none now; empty where it has no objection.
    held_back: Mutex<Vec<String>>,
    /// Probes are told yes whatever the appliance itself could.
    vouched: AtomicBool,
    /// All together, which is what probes are told.
    able: watch::Sender<Able>,
    /// What the cloud says that the file says otherwise.
    followed: Mutex<Followed>,
    published: RwLock<Arc<Published>>,
    wanted: RwLock<Wanted>,
    trace: Mutex<TraceSlot>,
    waits: Mutex<Vec<Wait>>,
    sources: Mutex<Settings>,
    reload: AtomicBool,
    checks: Checks,
    cloud: RwLock<Report>,
    /// The control loop's, once it has rested.
    resting: OnceLock<Thread>,
}

impl Default for Shared {
    fn default() -> Shared {
        let starting = Able { able: false, reasons: vec!["slowpath is starting".to_owned()] };
        Shared {
            status: Mutex::new(Status { reasons: starting.reasons.clone(), ..Status::default() }),
            own: watch::Sender::new(starting.clone()),
            carries: AtomicBool::new(false),
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
            reload: AtomicBool::new(false),
            checks: Checks::default(),
            cloud: RwLock::default(),
            resting: OnceLock::new(),
        }
    }
}

impl Shared {
    /// Publishes what a look found; probes and routers hear of it only when it changed. `carries`
    /// says that the plane takes traffic: all of `able` but a drain.
    pub fn publish_status(&self, status: Status, able: Able, carries: bool) {
        *self.status.lock() = status;
        let news = self.own.send_if_modified(|before| {
            let changed = *before != able;
            before.clone_from(&able);
            changed
        });
        if self.carries.swap(carries, Ordering::Relaxed) != carries || news {
            self.news.event();
        }
        self.tell_probes();
    }

    /// Whether the plane takes traffic, drained or not.
    pub fn carries(&self) -> bool {
        self.carries.load(Ordering::Relaxed)
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
            true => Able { able: true, reasons: Vec::new() },
            false => self.own.borrow().clone(),
        };
        let others = held_back.iter().filter(|reason| !able.reasons.contains(reason));
        let others: Vec<String> = others.cloned().collect();
        able.able &= held_back.is_empty();
        able.reasons.extend(others);
        self.able.send_if_modified(|before| {
            let changed = *before != able;
            if changed {
                match able.able {
                    true => tracing::info!("able"),
                    false => tracing::warn!("not able: {}", able.reasons.join("; ")),
                }
                *before = able;
            }
            changed
        });
    }

    /// The status as published last.
    pub fn status_now(&self) -> Status {
        self.status.lock().clone()
    }

    /// Whether traffic may come, as published last.
    pub fn able_now(&self) -> Able {
        self.able.borrow().clone()
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

/// What those who answer questions see.
pub struct Live {
    /// The region.
    pub region: &'static Region,
    /// The configuration.
    pub config: Arc<Config>,
    shared: Arc<Shared>,
    routers: OnceLock<Desk>,
    started: Instant,
}

impl Live {
    /// Over the region and what the control loop publishes.
    pub fn new(region: &'static Region, config: Arc<Config>, shared: Arc<Shared>) -> Live {
        Live { region, config, shared, routers: OnceLock::new(), started: Instant::now() }
    }

    /// Whether traffic may come.
    pub fn able(&self) -> Able {
        self.shared.able_now()
    }

    /// Whether the appliance itself could take traffic, whatever the cloud's side says.
    pub fn watch_own(&self) -> watch::Receiver<Able> {
        self.shared.own.subscribe()
    }

    /// What the control loop publishes, and what is told to it.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Told whenever that changes.
    pub fn watch_able(&self) -> watch::Receiver<Able> {
        self.shared.able.subscribe()
    }

    /// What the last commit published.
    pub fn published(&self) -> Arc<Published> {
        self.shared.published()
    }

    /// What there shall be.
    pub fn wanted(&self) -> Wanted {
        self.shared.wanted_now()
    }

    /// What is known of routers, once BGP has begun.
    pub fn routers(&self) -> Option<&Desk> {
        self.routers.get()
    }

    /// BGP has begun.
    pub fn set_routers(&self, desk: Desk) {
        // There is one in a process.
        let _ = self.routers.set(desk);
    }

    /// The health checker.
    pub fn checks(&self) -> &Checks {
        &self.shared.checks
    }

    /// What is known of this machine at its cloud.
    pub fn cloud(&self) -> Report {
        self.shared.cloud.read().clone()
    }

    /// From now on that is this.
    pub fn publish_cloud(&self, report: Report) {
        *self.shared.cloud.write() = report;
    }

    /// `GET /maps`: what the region holds, in the words of the map model.
    pub fn dump(&self) -> Vec<state::dump::Record> {
        self.wanted().dump(self.region)
    }

    /// `GET /status`.
    pub fn status(&self) -> Status {
        let mut status = self.shared.status_now();
        Able { able: status.able, reasons: status.reasons } = self.shared.able_now();
        let cloud = self.cloud();
        status.ready = status.able && (cloud.ready || cloud.cloud.is_empty());
        status.cloud = cloud.line();
        status.bgp = self.routers().map(Desk::line).unwrap_or_default();
        let set = self.region.tables(self.region.generation());
        status.name.clone_from(&self.config.name);
        env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
        status.uptime_s = self.started.elapsed().as_secs();
        let place = self.region.path().map(|path| path.display().to_string());
        status.region = place.unwrap_or_default();
        status.services = counts::services(&set);
        status.frontends = counts::frontends(&self.wanted().tables);
        status.backends = set.backends().count();
        status.flows = self.flows_in_use();
        status
    }

    /// Whether all sources have said what they know, and nothing of it is on its way any more.
    pub fn is_settled(&self, tables: &Tables) -> bool {
        let frontends = counts::frontends(tables);
        frontends.waited_for.is_empty() && frontends.pending == 0
    }

    /// Flow paths in use.
    pub fn flows_in_use(&self) -> Use {
        let flows = Flows::new(self.region);
        Use { used: u64::from(flows.live()), max: u64::from(flows.capacity()) }
    }

    /// Tells probes that no new traffic is wanted, or that it is again. It holds over restarts.
    pub fn drain(&self, on: bool) {
        tracing::info!("{}", if on { "draining" } else { "not draining any more" });
        self.region.set_draining(on);
        self.shared.news.event();
    }

    /// Has the control loop read both files again.
    pub fn reload(&self) {
        self.shared.reload();
    }

    /// Asks the control loop for a trace; refused while one runs.
    pub fn ask_trace(&self, request: TraceRequest) -> Result<(), String> {
        let mut slot = self.shared.trace.lock();
        match *slot {
            TraceSlot::Free => {
                *slot = TraceSlot::Asked(request);
                self.shared.wake();
                Ok(())
            }
            _ => Err("another trace runs; wait for its end or stop it".to_owned()),
        }
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
        shared.publish_status(Status::default(), able(&[]), true);
        assert_eq!(told(), able(&["not registered"]));
        hold(&[]);
        assert_eq!(told(), able(&[]));
        shared.publish_status(Status::default(), able(&["no lcore polls"]), false);
        // The cloud's side may repeat it.
        hold(&["no lcore polls", "leaving"]);
        assert_eq!(told(), able(&["no lcore polls", "leaving"]));
        assert_eq!(*shared.own.borrow(), able(&["no lcore polls"]));
        // Before it was able for the first time somebody may vouch for it.
        shared.vouch(true);
        assert_eq!(told(), able(&["no lcore polls", "leaving"]));
        hold(&[]);
        assert_eq!(told(), able(&[]));
        shared.vouch(false);
        assert_eq!(told(), able(&["no lcore polls"]));
    }
}
