//! An appliance that remembers what it was told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clouds::appliance::{Appliance, Ingress};
use clouds::report::Report;
use tokio::sync::watch;

use crate::running::PATIENCE;

/// The cloud's probes of an appliance.
pub trait Probes: Send + Sync + 'static {
    /// What is remembered beside each answer to them.
    type Seen: Clone + Send + Sync;

    /// They pass or fail from now on.
    fn answered(&self, pass: bool) -> Self::Seen;
}

/// An appliance that tests set, and that remembers what it was told.
pub struct Recorder<P: Probes> {
    /// The probes, and what else a cloud asks of an appliance.
    pub probes: P,
    /// Whether it can take traffic.
    pub able: Mutex<Result<(), Vec<String>>>,
    /// Its ingress port.
    pub ingress: Mutex<Option<Ingress>>,
    /// Packets in unknown tunnels so far.
    pub strange: AtomicU64,
    flows: AtomicU64,
    idle: Mutex<Option<Duration>>,
    told: watch::Sender<Vec<(P::Seen, String)>>,
    report: watch::Sender<Report>,
}

impl<P: Probes> Recorder<P> {
    /// An able one.
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

    /// All that probes were told, empty where it was 200.
    pub fn told(&self) -> Vec<(P::Seen, String)> {
        self.told.borrow().clone()
    }

    /// What they are told now.
    pub fn probe(&self) -> String {
        self.told.borrow().last().map(|(_, told)| told.clone()).unwrap_or_default()
    }

    /// Waits until probes are told what fits.
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

    /// The idle time of TCP flows as it was told last.
    #[expect(clippy::unwrap_used, reason = "no test goes on after a panic")]
    pub fn idle(&self) -> Option<Duration> {
        *self.idle.lock().unwrap()
    }

    /// It has so many flows.
    pub fn flows(&self, flows: u64) {
        self.flows.store(flows, Ordering::Relaxed);
    }

    /// The reports that it publishes.
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
