//! A lifecycle that runs against an emulator.

use std::future::Future;
use std::time::Duration;

use clouds::lifecycle::Exit;
use clouds::report::{CallCount, Report};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::AdvanceClock;

/// The time limit of a wait, after which the test fails with what it waited for.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The task of a running lifecycle, with its published reports.
pub struct LifecycleTask<E> {
    emulator: E,
    signals: mpsc::Sender<()>,
    reports: watch::Receiver<Report>,
    task: JoinHandle<Exit>,
    /// Ends the lifecycle's calls on drop.
    _stop: watch::Sender<bool>,
}

impl<E: AdvanceClock> LifecycleTask<E> {
    /// Starts a lifecycle. `start` gets a receiver of signals and a receiver that ends calls, and
    /// returns the runner's future.
    pub fn start<F: Future<Output = Exit> + Send + 'static>(
        emulator: &E,
        reports: &watch::Sender<Report>,
        start: impl FnOnce(mpsc::Receiver<()>, watch::Receiver<bool>) -> F,
    ) -> LifecycleTask<E> {
        let (signals, received) = mpsc::channel(2);
        let (stop, cancel) = watch::channel(false);
        let task = tokio::spawn(start(received, cancel));
        let (emulator, reports) = (emulator.clone(), reports.subscribe());
        LifecycleTask { emulator, signals, reports, task, _stop: stop }
    }

    /// Returns the last published report.
    pub fn report(&self) -> Report {
        self.reports.borrow().clone()
    }

    /// Waits for a report that satisfies `fits`, and returns it.
    #[expect(clippy::panic, clippy::unwrap_used, reason = "the test reports what it waited for")]
    pub async fn until(&mut self, what: &str, fits: impl FnMut(&Report) -> bool) -> Report {
        let result = tokio::time::timeout(TEST_TIMEOUT, self.reports.wait_for(fits)).await;
        let report = result.ok().map(|report| report.unwrap().clone());
        report.unwrap_or_else(|| panic!("timeout waiting for {what:?}: {:#?}", self.report()))
    }

    /// Waits for the phase `ready`.
    pub async fn ready(&mut self) -> Report {
        self.until("ready", |report| report.phase == "ready").await
    }

    /// Returns how often an operation had this outcome.
    pub fn call_count(&self, operation: &str, outcome: &str) -> u64 {
        let report = self.report();
        let fits = |c: &&CallCount| c.operation == operation && c.outcome == outcome;
        report.calls.iter().filter(fits).map(|call| call.times).sum()
    }

    /// Waits until this many seconds have passed on the emulator's clock, checking at each report.
    pub async fn pass(&mut self, seconds: u64) {
        let emulator = self.emulator.clone();
        let then = emulator.now() + Duration::from_secs(seconds);
        self.until("the time reached", |_| emulator.now() >= then).await;
    }

    /// Tells the lifecycle that the process received SIGTERM.
    #[expect(clippy::unwrap_used, reason = "a test sends no more signals than the channel holds")]
    pub fn terminate(&self) {
        self.signals.try_send(()).unwrap();
    }

    /// Waits for the end, and returns how the lifecycle ended.
    #[expect(clippy::panic, clippy::unwrap_used, reason = "the test reports what it waited for")]
    pub async fn wait_for_exit(&mut self) -> Exit {
        let ended = tokio::time::timeout(TEST_TIMEOUT, &mut self.task).await;
        ended.unwrap_or_else(|_| panic!("no end: {:#?}", self.report())).unwrap()
    }

    /// Aborts the lifecycle's task.
    pub async fn kill(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}
