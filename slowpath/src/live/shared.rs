//! State that the control loop publishes, and requests that other threads leave for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use announce::controller::Signal;
use api::Wait;
use clouds::report::Report;
use listeners::ReservedNetworks;
use parking_lot::{Mutex, RwLock};
use state::appliance::Appliance;
use state::sources::Settings;
use state::tables::Tables;
use tokio::sync::watch;

use super::desired::DesiredState;
use crate::cloud::followed::{Ends, Followed};
use crate::control::report::{Status, StoreStatus};
use crate::control::trace::TraceRequest;
use crate::health::Able;
use crate::health::checks::Checks;
use crate::health::heartbeat::Heartbeat;
use crate::measurements::Measurements;
use crate::plane::published::PublishedTables;

/// State of the single trace. Only one can run because all lcores apply the same filter.
#[derive(Default)]
pub(super) enum TraceSlot {
    #[default]
    Free,
    Requested(TraceRequest),
    Running,
}

/// State shared between the control loop and all other threads.
pub struct Shared {
    status: Mutex<Status>,
    /// Heartbeat of the control loop; what the loop published is valid only while the loop runs.
    heartbeat: Heartbeat,
    /// Whether the loop had stalled at the last check.
    stalled: AtomicBool,
    /// Whether the appliance could take traffic regardless of the cloud's lifecycle, as last
    /// published by the control loop.
    local_able: watch::Sender<Able>,
    /// Whether the plane forwards traffic, which a drain does not change. `None` before the first
    /// check.
    forwarding: RwLock<Option<bool>>,
    /// Notifies BGP of changes.
    changes: Signal,
    /// Reasons of the cloud's lifecycle for which probes fail; empty if it has none.
    cloud_reasons: Mutex<Vec<String>>,
    /// Whether probes are answered positively regardless of `local_able`.
    preboot_pass: AtomicBool,
    /// The combination of `local_able`, `preboot_pass`, `cloud_reasons` and the heartbeat, which
    /// determines the answers to health probes.
    pub(super) able: watch::Sender<Able>,
    /// Settings reported by the cloud that override the configuration file.
    followed: Mutex<Followed>,
    published: RwLock<Arc<PublishedTables>>,
    desired: RwLock<DesiredState>,
    pub(super) trace: Mutex<TraceSlot>,
    waits: Mutex<Vec<Wait>>,
    sources: Mutex<Settings>,
    store: Mutex<StoreStatus>,
    reload: AtomicBool,
    pub(super) checks: Checks,
    pub(super) cloud: RwLock<Report>,
    /// Measurements of slowpath's own work.
    pub measurements: Measurements,
    /// Networks with reserved slots on listeners: those of the configured health probes.
    pub(crate) reserved: ReservedNetworks,
    /// Thread of the control loop, set by its first call of `rest`.
    control_thread: OnceLock<Thread>,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared::new(Duration::MAX)
    }
}

impl Shared {
    /// Creates the state. The control loop counts as stalled when its heartbeat is older than
    /// `stall_timeout`.
    pub fn new(stall_timeout: Duration) -> Shared {
        let starting = Able { able: false, reasons: vec!["slowpath is starting".to_owned()] };
        Shared {
            status: Mutex::new(Status { reasons: starting.reasons.clone(), ..Status::default() }),
            heartbeat: Heartbeat::new(stall_timeout, Instant::now()),
            stalled: AtomicBool::new(false),
            local_able: watch::Sender::new(starting.clone()),
            forwarding: RwLock::default(),
            changes: Signal::default(),
            cloud_reasons: Mutex::default(),
            preboot_pass: AtomicBool::new(false),
            able: watch::Sender::new(starting),
            followed: Mutex::default(),
            published: RwLock::default(),
            desired: RwLock::default(),
            trace: Mutex::default(),
            waits: Mutex::default(),
            sources: Mutex::default(),
            store: Mutex::default(),
            reload: AtomicBool::new(false),
            checks: Checks::default(),
            cloud: RwLock::default(),
            measurements: Measurements::default(),
            reserved: ReservedNetworks::default(),
            control_thread: OnceLock::new(),
        }
    }

    /// Records an iteration of the control loop.
    pub fn beat(&self) {
        self.heartbeat.beat(Instant::now());
    }

    /// Compares the heartbeat with the clock, and notifies probes, BGP and the cloud's lifecycle
    /// when the loop stalls or recovers.
    pub fn check_heartbeat(&self) {
        let reason = self.heartbeat.stalled(Instant::now());
        let stalled = reason.is_some();
        if self.stalled.swap(stalled, Ordering::Relaxed) != stalled {
            match reason {
                Some(reason) => {
                    tracing::error!(event = "control_loop_stalled", reason, "control loop stalled");
                }
                None => {
                    tracing::info!(event = "control_loop_recovered", "control loop runs again");
                }
            }
            self.update_probe_status();
            self.changes.event();
        }
    }

    /// Returns whether the appliance is able to take traffic, regardless of the cloud's lifecycle,
    /// in one line for the service manager.
    pub fn status_line(&self) -> String {
        let Able { able, reasons } = self.local_able_now();
        match able {
            true => format!("able, generation {}", self.status.lock().generation),
            false => format!("not able: {}", reasons.join("; ")),
        }
    }

    /// Publishes the result of a check. Probes and BGP are notified only if `able` or `forwarding`
    /// changed. `forwarding` is whether the plane forwards traffic, which a drain does not change.
    pub fn publish_status(&self, status: Status, able: Able, forwarding: bool) {
        *self.status.lock() = status;
        let able_changed = self.local_able.send_if_modified(|before| {
            let changed = *before != able;
            before.clone_from(&able);
            changed
        });
        if self.forwarding.write().replace(forwarding) != Some(forwarding) || able_changed {
            self.changes.event();
        }
        self.update_probe_status();
    }

    /// Returns whether the plane forwards traffic, which a drain does not change; `None` before the
    /// first check, false if the control loop has stalled.
    pub fn forwarding(&self) -> Option<bool> {
        let stalled = self.heartbeat.stalled(Instant::now()).is_some();
        self.forwarding.read().map(|forwarding| forwarding && !stalled)
    }

    /// Returns the signal that notifies BGP of changes.
    pub fn changes(&self) -> &Signal {
        &self.changes
    }

    /// Sets the reasons of the cloud's lifecycle for which probes fail; none if `reasons` is empty.
    /// Probes see the change when this returns.
    pub fn set_cloud_reasons(&self, reasons: Vec<String>) {
        *self.cloud_reasons.lock() = reasons;
        self.update_probe_status();
    }

    /// Sets whether probes are answered positively although the appliance could not take traffic
    /// yet (`azure.preboot_health = "pass"`). Reasons of the cloud's lifecycle still apply.
    pub fn set_preboot_pass(&self, preboot_pass: bool) {
        self.preboot_pass.store(preboot_pass, Ordering::Relaxed);
        self.update_probe_status();
    }

    fn update_probe_status(&self) {
        // Held until `able` is sent, so that concurrent changes are published in order.
        let cloud_reasons = self.cloud_reasons.lock();
        let mut able = match self.preboot_pass.load(Ordering::Relaxed) {
            true => self.with_stall(Able { able: true, reasons: Vec::new() }),
            false => self.local_able_now(),
        };
        let others = cloud_reasons.iter().filter(|reason| !able.reasons.contains(reason));
        let others: Vec<String> = others.cloned().collect();
        able.able &= cloud_reasons.is_empty();
        able.reasons.extend(others);
        let changed = self.able.send_if_modified(|before| {
            let changed = *before != able;
            before.clone_from(&able);
            changed
        });
        // Writing to the log may block, so release the lock that probe responses need.
        drop(cloud_reasons);
        if changed && able.able {
            tracing::info!(event = "able", "able");
        } else if changed {
            tracing::warn!(event = "not_able", reasons = %able.reasons.join("; "), "not able");
        }
    }

    /// Publishes the status of the store.
    pub fn publish_store(&self, store: StoreStatus) {
        *self.store.lock() = store;
    }

    /// Returns the status of the store.
    pub fn store_now(&self) -> StoreStatus {
        self.store.lock().clone()
    }

    /// Returns the status that was published last.
    pub fn status_now(&self) -> Status {
        self.status.lock().clone()
    }

    /// Returns whether the appliance can take traffic: as published, unless the control loop has
    /// stalled.
    pub fn able_now(&self) -> Able {
        self.with_stall(self.able.borrow().clone())
    }

    /// Returns whether the appliance could take traffic, regardless of the cloud's lifecycle.
    pub fn local_able_now(&self) -> Able {
        self.with_stall(self.local_able.borrow().clone())
    }

    /// Returns `able`, or not able if the control loop has stalled.
    fn with_stall(&self, mut able: Able) -> Able {
        if let Some(reason) = self.heartbeat.stalled(Instant::now()) {
            able.able = false;
            if !able.reasons.contains(&reason) {
                able.reasons.insert(0, reason);
            }
        }
        able
    }

    /// Makes the control loop set the idle timeout of TCP flows to that of the gateway.
    pub fn follow_tcp_idle(&self, idle: Duration) {
        self.followed.lock().tcp_idle = Some(idle);
        self.wake();
    }

    /// Makes the control loop set ports and VNIs of tunnels, by name of the gateway. They override
    /// the configuration file.
    pub fn follow_tunnels(&self, tunnels: BTreeMap<String, Ends>) {
        self.followed.lock().tunnels = tunnels;
        self.wake();
    }

    /// Returns the settings reported by the cloud that override the configuration file.
    pub fn followed(&self) -> Followed {
        self.followed.lock().clone()
    }

    /// Requests that the configuration and the services are read again, changed or not.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Blocks the calling thread, which must be the control loop's, for at most this time or until
    /// [`Shared::wake`].
    pub fn rest(&self, at_most: Duration) {
        self.control_thread.get_or_init(std::thread::current);
        std::thread::park_timeout(at_most);
    }

    /// Makes the control loop run another iteration immediately, or after the current one. To be
    /// called after every request to the loop.
    pub fn wake(&self) {
        if let Some(thread) = self.control_thread.get() {
            thread.unpark();
        }
    }

    /// Returns whether a reload has been requested since the last call.
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Publishes the state after a commit.
    pub fn publish_tables(&self, published: PublishedTables) {
        *self.published.write() = Arc::new(published);
    }

    /// Returns the state published by the last commit.
    pub fn published(&self) -> Arc<PublishedTables> {
        Arc::clone(&self.published.read())
    }

    /// Publishes the desired state.
    pub fn publish_desired(&self, desired: DesiredState) {
        *self.desired.write() = desired;
        self.changes.event();
    }

    /// Publishes the settings of sources.
    pub fn publish_sources(&self, settings: Settings) {
        *self.sources.lock() = settings;
    }

    /// Takes the requests to wait for a write that came since the last call.
    pub fn take_waits(&self) -> Vec<Wait> {
        std::mem::take(&mut *self.waits.lock())
    }

    /// Returns the desired state that was published last.
    pub fn desired_now(&self) -> DesiredState {
        self.desired.read().clone()
    }

    /// Takes the requested trace, if there is one, and marks it as running.
    pub fn take_trace(&self) -> Option<TraceRequest> {
        let mut slot = self.trace.lock();
        if !matches!(*slot, TraceSlot::Requested(_)) {
            return None;
        }
        match std::mem::replace(&mut *slot, TraceSlot::Running) {
            TraceSlot::Requested(request) => Some(request),
            _ => None,
        }
    }

    /// Marks the trace as ended.
    pub fn free_trace(&self) {
        *self.trace.lock() = TraceSlot::Free;
    }
}

impl api::Control for Shared {
    fn tables(&self) -> (Tables, Arc<Appliance>) {
        let desired = self.desired.read();
        (desired.tables.clone(), Arc::clone(&desired.appliance))
    }

    fn wait(&self, wait: Wait) {
        self.waits.lock().push(wait);
        self.wake();
    }

    fn sources(&self) -> Settings {
        self.sources.lock().clone()
    }

    fn request_done(&self, method: &str, route: Option<&str>, status: u16, began: Instant) {
        self.measurements.record_request(method, route, status, began);
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
    fn probe_status_combines_own_health_and_the_clouds_reasons() {
        let shared = Shared::default();
        let set_cloud_reasons = |reasons: &[&str]| shared.set_cloud_reasons(able(reasons).reasons);
        let probe_status = || shared.able_now();
        set_cloud_reasons(&["not registered"]);
        assert_eq!(probe_status(), able(&["slowpath is starting", "not registered"]));
        assert_eq!(shared.forwarding(), None, "unknown before the first status");
        shared.publish_status(Status::default(), able(&[]), true);
        assert_eq!(probe_status(), able(&["not registered"]));
        assert_eq!(shared.forwarding(), Some(true));
        set_cloud_reasons(&[]);
        assert_eq!(probe_status(), able(&[]));
        shared.publish_status(Status::default(), able(&["no lcore polls"]), false);
        // A reason that the cloud's lifecycle has too is listed once.
        set_cloud_reasons(&["no lcore polls", "leaving"]);
        assert_eq!(probe_status(), able(&["no lcore polls", "leaving"]));
        assert_eq!(shared.local_able_now(), able(&["no lcore polls"]));
        // Before the appliance is able for the first time, probes may be answered positively.
        shared.set_preboot_pass(true);
        assert_eq!(probe_status(), able(&["no lcore polls", "leaving"]));
        set_cloud_reasons(&[]);
        assert_eq!(probe_status(), able(&[]));
        shared.set_preboot_pass(false);
        assert_eq!(probe_status(), able(&["no lcore polls"]));
    }

    #[test]
    fn a_stalled_loop_fails_all_published_health() {
        let shared = Shared::new(Duration::MAX);
        shared.publish_status(Status::default(), able(&[]), true);
        assert_eq!((shared.able_now(), shared.forwarding()), (able(&[]), Some(true)));
        let mut receiver = shared.able.subscribe();
        // With a timeout of 0, any beat is too old. Readers see that before `check_heartbeat` runs.
        shared.heartbeat.set_timeout(Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        let stalled = |able: &Able| !able.able && able.reasons[0].contains("is stalled");
        assert!(stalled(&shared.able_now()) && stalled(&shared.local_able_now()));
        assert_eq!(shared.forwarding(), Some(false), "routes are withdrawn");
        // `check_heartbeat` notifies receivers, also while probes are answered positively.
        shared.check_heartbeat();
        assert!(receiver.has_changed().unwrap() && stalled(&receiver.borrow_and_update()));
        shared.set_preboot_pass(true);
        assert!(stalled(&shared.able_now()));
        shared.set_preboot_pass(false);
        shared.heartbeat.set_timeout(Duration::MAX);
        shared.check_heartbeat();
        assert_eq!((shared.able_now(), shared.forwarding()), (able(&[]), Some(true)));
        assert!(receiver.has_changed().unwrap() && receiver.borrow_and_update().able);
    }
}
