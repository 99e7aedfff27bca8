//! An appliance for tests of cloud lifecycles, which records what the lifecycle sets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clouds::appliance::{Appliance, Ingress};
use clouds::report::Report;
use tokio::sync::watch;

use crate::lifecycle_task::TEST_TIMEOUT;

/// The emulated cloud's view of an appliance's health probes.
pub trait Probes: Send + Sync + 'static {
    /// The state of the cloud that is recorded with each change.
    type State: Clone + Send + Sync;

    /// Sets whether probes pass, and returns the state to record.
    fn set_passing(&self, pass: bool) -> Self::State;
}

/// An appliance whose state is set by tests, and which records what the lifecycle sets.
pub struct Recorder<P: Probes> {
    /// The probes, and the state that is specific to a cloud.
    pub probes: P,
    /// Whether the appliance can take traffic; otherwise the reasons.
    pub able: Mutex<Result<(), Vec<String>>>,
    /// The ingress port, if there is one.
    pub ingress: Mutex<Option<Ingress>>,
    /// The number of packets in unknown tunnels.
    pub unknown_tunnel: AtomicU64,
    flows: AtomicU64,
    idle: Mutex<Option<Duration>>,
    answers: watch::Sender<Vec<(P::State, String)>>,
    report: watch::Sender<Report>,
}

impl<P: Probes> Recorder<P> {
    /// Returns an appliance that is able.
    pub fn new(probes: P, ingress: Ingress) -> Recorder<P> {
        Recorder {
            probes,
            able: Mutex::new(Ok(())),
            ingress: Mutex::new(Some(ingress)),
            unknown_tunnel: AtomicU64::new(0),
            flows: AtomicU64::new(0),
            idle: Mutex::default(),
            answers: watch::Sender::new(Vec::new()),
            report: watch::Sender::default(),
        }
    }

    /// Returns all probe answers so far, each with the recorded state. An answer is empty for
    /// status 200, and the reasons otherwise.
    pub fn probe_answers(&self) -> Vec<(P::State, String)> {
        self.answers.borrow().clone()
    }

    /// Returns the current probe answer.
    pub fn probe(&self) -> String {
        self.answers.borrow().last().map(|(_, answer)| answer.clone()).unwrap_or_default()
    }

    /// Waits until the latest probe answer satisfies `fits`.
    #[expect(clippy::panic, reason = "the test reports what it waited for")]
    pub async fn until_probe(&self, what: &str, fits: impl Fn(&str) -> bool) {
        let mut answers = self.answers.subscribe();
        let fits =
            |all: &Vec<(P::State, String)>| all.last().is_some_and(|(_, answer)| fits(answer));
        let result = tokio::time::timeout(TEST_TIMEOUT, answers.wait_for(fits)).await;
        if result.is_err() {
            let answers: Vec<String> =
                self.probe_answers().into_iter().map(|(_, answer)| answer).collect();
            panic!("no probe answer {what:?}: {answers:?}");
        }
    }

    /// Returns the idle timeout of TCP flows, as last set.
    #[expect(clippy::unwrap_used, reason = "a test ends at the first panic")]
    pub fn last_tcp_idle(&self) -> Option<Duration> {
        *self.idle.lock().unwrap()
    }

    /// Sets the number of flows that [`Appliance::activity`] reports.
    pub fn set_flows(&self, flows: u64) {
        self.flows.store(flows, Ordering::Relaxed);
    }

    /// Returns the channel of published reports.
    pub fn reports(&self) -> &watch::Sender<Report> {
        &self.report
    }
}

#[expect(clippy::unwrap_used, reason = "a test ends at the first panic")]
impl<P: Probes> Appliance for Recorder<P> {
    fn able(&self) -> Result<(), Vec<String>> {
        self.able.lock().unwrap().clone()
    }

    fn activity(&self) -> (u64, u64) {
        (self.flows.load(Ordering::Relaxed), 1)
    }

    fn unknown_tunnel(&self) -> u64 {
        self.unknown_tunnel.load(Ordering::Relaxed)
    }

    fn ingress(&self) -> Option<Ingress> {
        self.ingress.lock().unwrap().clone()
    }

    fn set_probe_failures(&self, reasons: Vec<String>) {
        let state = self.probes.set_passing(reasons.is_empty());
        self.answers.send_modify(|all| all.push((state, reasons.join("; "))));
    }

    fn set_tcp_idle(&self, idle: Duration) {
        *self.idle.lock().unwrap() = Some(idle);
    }

    fn publish(&self, report: Report) {
        self.report.send_replace(report);
    }
}
