//! An appliance for tests that records what it was set to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clouds::appliance::{Appliance, Ingress};
use clouds::report::Report;
use tokio::sync::watch;

use crate::running::PATIENCE;

/// The cloud's view of an appliance's health probes.
pub trait Probes: Send + Sync + 'static {
    /// State recorded with each change.
    type Seen: Clone + Send + Sync;

    /// Sets whether probes pass, and returns the state to record.
    fn answered(&self, pass: bool) -> Self::Seen;
}

/// An appliance whose state tests set, and which records what it was set to.
pub struct Recorder<P: Probes> {
    /// Probes, and methods specific to a cloud.
    pub probes: P,
    /// Whether it can take traffic.
    pub able: Mutex<Result<(), Vec<String>>>,
    /// Ingress port.
    pub ingress: Mutex<Option<Ingress>>,
    /// Number of packets in unknown tunnels.
    pub strange: AtomicU64,
    flows: AtomicU64,
    idle: Mutex<Option<Duration>>,
    told: watch::Sender<Vec<(P::Seen, String)>>,
    report: watch::Sender<Report>,
}

impl<P: Probes> Recorder<P> {
    /// Returns an appliance that is able.
    pub fn new(probes: P, ingress: Ingress) -> Recorder<P> {
        Recorder {
            probes,
            able: Mutex::new(Ok(())),
            ingress: Mutex::new(Some(ingress)),
            strange: AtomicU64::new(0),
            flows: AtomicU64::new(0),
            idle: Mutex::default(),
            told: watch::Sender::new(Vec::new()),
            report: watch::Sender::default(),
        }
    }

    /// Returns all probe answers so far; empty for 200, else the reasons.
    pub fn told(&self) -> Vec<(P::Seen, String)> {
        self.told.borrow().clone()
    }

    /// Returns the current probe answer.
    pub fn probe(&self) -> String {
        self.told.borrow().last().map(|(_, told)| told.clone()).unwrap_or_default()
    }

    /// Waits until the probe answer satisfies `fits`.
    #[expect(clippy::panic, reason = "a test says what it waited for")]
    pub async fn until_probe(&self, what: &str, fits: impl Fn(&str) -> bool) {
        let mut heard = self.told.subscribe();
        let fits = |all: &Vec<(P::Seen, String)>| all.last().is_some_and(|(_, told)| fits(told));
        let came = tokio::time::timeout(PATIENCE, heard.wait_for(fits)).await;
        if came.is_err() {
            let told: Vec<String> = self.told().into_iter().map(|(_, told)| told).collect();
            panic!("probes are not told {what:?}: {told:?}");
        }
    }

    /// Returns the idle timeout of TCP flows, as last set.
    #[expect(clippy::unwrap_used, reason = "no test goes on after a panic")]
    pub fn idle(&self) -> Option<Duration> {
        *self.idle.lock().unwrap()
    }

    /// Sets the number of flows.
    pub fn flows(&self, flows: u64) {
        self.flows.store(flows, Ordering::Relaxed);
    }

    /// Returns the channel of published reports.
    pub fn reports(&self) -> &watch::Sender<Report> {
        &self.report
    }
}

#[expect(clippy::unwrap_used, reason = "no test goes on after a panic")]
impl<P: Probes> Appliance for Recorder<P> {
    fn able(&self) -> Result<(), Vec<String>> {
        self.able.lock().unwrap().clone()
    }

    fn activity(&self) -> (u64, u64) {
        (self.flows.load(Ordering::Relaxed), 1)
    }

    fn strange(&self) -> u64 {
        self.strange.load(Ordering::Relaxed)
    }

    fn ingress(&self) -> Option<Ingress> {
        self.ingress.lock().unwrap().clone()
    }

    fn hold_back(&self, reasons: Vec<String>) {
        let seen = self.probes.answered(reasons.is_empty());
        self.told.send_modify(|all| all.push((seen, reasons.join("; "))));
    }

    fn tcp_idle(&self, idle: Duration) {
        *self.idle.lock().unwrap() = Some(idle);
    }

    fn publish(&self, report: Report) {
        self.report.send_replace(report);
    }
}
