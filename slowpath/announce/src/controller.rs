//! Reconciliation loop: signals and deadlines trigger rounds, and each round evaluates the whole
//! state.
//!
//! A signal stores at most one pending trigger, so that a burst of changes causes few rounds.
//! Rounds run one after another. A failed round is retried up to 5 times with exponential backoff.
//! After that, only the next signal or deadline ([`PolicyApplier::next_due`]) triggers a round.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use state::labels::Pairs;
use tokio::sync::Notify;

use crate::apply::{PolicyApplier, PolicyDefects, ShutdownMode};
use crate::select::{MultiplePolicies, Policy, select};
use crate::shutdown::{Shutdown, Step};
use crate::snapshot::{self, BadAnnotation, ControlPlaneState, RouterAnnotation};

/// Wait before the first retry of a failed round, without jitter.
const RETRY: Duration = Duration::from_millis(500);
/// Maximum number of retries of a failed round; the wait doubles with each.
const RETRIES: u32 = 5;
/// How often a shutdown checks whether withdrawals were sent.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Triggers rounds when the state has changed. Clones share one trigger.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Notify>);

impl Signal {
    /// Triggers a round. Several calls before the round begins count as one.
    pub fn event(&self) {
        self.0.notify_one();
    }

    /// Waits for a trigger; returns at once if there was one since the previous wait.
    pub async fn wait(&self) {
        self.0.notified().await;
    }
}

/// How routes are handled while several policies apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConflictPolicy {
    /// Withdraw all routes and close all sessions.
    #[default]
    Withdraw,
    /// Keep the policy that was applied last, and let its routes follow the state.
    Keep,
}

/// The whole state at one moment.
#[derive(Clone, Debug)]
pub struct ObservedState {
    /// All policies of all appliances ([`crate::select::preferred_policies`]).
    pub policies: Vec<Policy>,
    /// Annotations of the appliance; the controller parses those of virtual routers.
    pub annotations: Pairs,
    /// The appliance and its data plane.
    pub state: ControlPlaneState,
}

/// Source of the state.
pub trait StateSource {
    /// Returns the current state.
    fn observe(&mut self) -> ObservedState;

    /// Handles the result of a round.
    fn round_finished(&mut self, _result: &Result<(), ReconcileError>) {}
}

/// Why a round failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Several policies apply.
    #[error(transparent)]
    MultiplePolicies(#[from] MultiplePolicies),
    /// An annotation of the appliance is invalid.
    #[error(transparent)]
    Annotation(#[from] BadAnnotation),
    /// The policy has defects on this appliance.
    #[error(transparent)]
    Policy(#[from] PolicyDefects),
}

/// Statistics of rounds.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Number of rounds.
    pub runs: u64,
    /// Durations of rounds in seconds.
    pub durations: Histogram,
    /// Number of failed rounds by local ASN of the router with the defect; 0 for errors that
    /// concern no single router. A round with defects of several routers counts once for each.
    pub errors: BTreeMap<u32, u64>,
    /// Error of the last round; empty if it succeeded.
    pub error: String,
}

impl Default for Counts {
    fn default() -> Counts {
        // 0.1 ms to 1.6 s.
        let durations = Histogram::new(exponential_buckets(0.0001, 4.0, 8));
        Counts { runs: 0, durations, errors: BTreeMap::new(), error: String::new() }
    }
}

impl Counts {
    fn record(&mut self, took: Duration, result: &Result<(), ReconcileError>) {
        self.runs += 1;
        self.durations.observe(took.as_secs_f64());
        let error = result.as_ref().err();
        self.error = error.map(ToString::to_string).unwrap_or_default();
        match error {
            None => {}
            Some(ReconcileError::Policy(PolicyDefects(defects))) => {
                let mut asns: Vec<u32> = defects.iter().map(|defect| defect.local_asn).collect();
                asns.dedup();
                asns.into_iter().for_each(|asn| *self.errors.entry(asn).or_default() += 1);
            }
            Some(_) => *self.errors.entry(0).or_default() += 1,
        }
    }
}

/// The reconciliation loop.
pub struct Controller<S, R> {
    source: S,
    applier: R,
    conflict_policy: ConflictPolicy,
    /// The policy that was applied last, to be withdrawn when none applies.
    active: Option<Policy>,
    /// The last valid annotations.
    annotations: BTreeMap<u32, RouterAnnotation>,
    retries: Retries,
    counts: Arc<Mutex<Counts>>,
}

impl<S: StateSource, R: PolicyApplier> Controller<S, R> {
    /// Creates a controller. `seed` determines the jitter of retries.
    pub fn new(
        source: S,
        applier: R,
        conflict_policy: ConflictPolicy,
        seed: u64,
    ) -> Controller<S, R> {
        let (retries, counts) = (Retries::new(seed), Arc::default());
        let (active, annotations) = (None, BTreeMap::new());
        Controller { source, applier, conflict_policy, active, annotations, retries, counts }
    }

    /// Returns the shared statistics.
    pub fn counts(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.counts)
    }

    /// Runs one round: observes the state and applies the policy.
    ///
    /// # Errors
    /// Returns one error, even if there are several. The valid parts are applied nevertheless, with
    /// two exceptions: while several policies apply, [`ConflictPolicy`] decides, and an invalid
    /// annotation prevents the first policy, because it may set a router's identity.
    pub fn reconcile(&mut self) -> Result<(), ReconcileError> {
        let began = Instant::now();
        let result = self.round();
        self.counts.lock().record(began.elapsed(), &result);
        self.source.round_finished(&result);
        result
    }

    fn round(&mut self) -> Result<(), ReconcileError> {
        let ObservedState { policies, annotations, mut state } = self.source.observe();
        let bad = match snapshot::annotations(&annotations) {
            Ok(parsed) => {
                self.annotations = parsed;
                None
            }
            // The identity of a router must be known before the router starts.
            Err(bad) if self.active.is_none() => return Err(bad.into()),
            // A running router keeps its identity, because its routes must follow the data plane
            // even if an annotation is invalid.
            Err(bad) => Some(bad),
        };
        state.annotations.clone_from(&self.annotations);
        match select(&policies, &state.labels) {
            Ok(Some(policy)) => self.apply(policy.clone(), &state)?,
            Ok(None) => self.withdraw(&state)?,
            Err(several) => {
                match (self.conflict_policy, self.active.clone()) {
                    // The policy stays in force, but an appliance that cannot serve still
                    // withdraws. The conflict is the error to report.
                    (ConflictPolicy::Keep, Some(policy)) => {
                        let _ = self.apply(policy, &state);
                    }
                    _ => self.withdraw(&state)?,
                }
                return Err(several.into());
            }
        }
        bad.map_or(Ok(()), |bad| Err(bad.into()))
    }

    fn apply(&mut self, policy: Policy, state: &ControlPlaneState) -> Result<(), PolicyDefects> {
        let policy = self.active.insert(policy);
        self.applier.configure_peers(Some(policy), state)
    }

    /// Withdraws all routes and closes all sessions if a policy is in force.
    fn withdraw(&mut self, state: &ControlPlaneState) -> Result<(), PolicyDefects> {
        match self.active.take() {
            Some(_) => self.applier.configure_peers(None, state),
            None => Ok(()),
        }
    }

    /// Runs rounds until the future `shutdown` completes, then shuts down in the mode that it
    /// returns.
    pub async fn run(mut self, signal: Signal, shutdown: impl Future<Output = ShutdownMode>) {
        let mut shutdown = std::pin::pin!(shutdown);
        signal.event();
        let mut earliest = Instant::now();
        let mode = loop {
            let due = self.applier.next_due().map(|due| due.max(earliest));
            let due = self.retries.due.into_iter().chain(due).min();
            let trigger = tokio::select! {
                biased;
                mode = &mut shutdown => break mode,
                () = signal.wait() => Trigger::Signal,
                () = until(due) => Trigger::Timer,
            };
            let result = self.reconcile();
            if let Err(error) = &result {
                tracing::warn!(
                    event = "bgp_policy_incomplete",
                    %error,
                    "BGP policy not applied completely"
                );
            }
            // A deadline of the applier that has passed must not trigger the next round at once
            // after a failed one.
            earliest = Instant::now() + if result.is_ok() { Duration::ZERO } else { RETRY };
            self.retries.record(Instant::now(), result.is_ok(), trigger);
        };
        let mut shutdown = Shutdown::new(mode);
        while let Step::Wait(deadline) = shutdown.step(Instant::now(), &mut self.applier) {
            let next_poll = deadline.min(Instant::now() + POLL_INTERVAL);
            tokio::select! {
                () = signal.wait() => {}
                () = until(Some(next_poll)) => {}
            }
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// What triggered a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trigger {
    /// A signal.
    Signal,
    /// A retry that was due, or a deadline of the applier.
    Timer,
}

/// Retries of a failed round.
#[derive(Debug)]
pub struct Retries {
    /// Time of the next retry; `None` if none is scheduled.
    pub due: Option<Instant>,
    /// Number of retries scheduled since a round succeeded or a signal triggered one.
    tried: u32,
    rng: Rng,
}

impl Retries {
    /// Creates the state before the first round, with no retry due. `seed` determines the jitter.
    pub fn new(seed: u64) -> Retries {
        Retries { due: None, tried: 0, rng: Rng::with_seed(seed) }
    }

    /// Records the result of a round and schedules a retry if it failed.
    pub fn record(&mut self, now: Instant, succeeded: bool, trigger: Trigger) {
        if succeeded || trigger == Trigger::Signal {
            self.tried = 0;
        }
        self.due = (!succeeded && self.tried < RETRIES).then(|| {
            let wait = RETRY * 2_u32.pow(self.tried);
            self.tried += 1;
            // Up to 50 % jitter, so that appliances do not retry in step.
            now + wait + wait.mul_f64(self.rng.f64() / 2.0)
        });
    }
}

#[cfg(test)]
mod tests;
