//! The control loop: whoever has news gives a signal, and a round looks at everything there is.
//!
//! A signal is one slot: a burst of them is one round. Rounds are one after the other. A round that
//! fails is tried again, ever later and a few times; then the next signal has to come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use state::labels::Pairs;
use tokio::sync::Notify;

use crate::leave::{Leaving, Step};
use crate::routers::{Leave, PolicyDefect, Routers};
use crate::select::{MultiplePolicies, Policy, select};
use crate::snapshot::{self, BadAnnotation, ControlPlaneState, RouterAnnotation};

/// The first wait after a round that failed.
const RETRY: Duration = Duration::from_millis(500);
/// How often one is tried again; each wait is twice the former.
const RETRIES: u32 = 5;
/// How often a stop looks whether peers were told.
const LOOK: Duration = Duration::from_millis(20);

/// Says that there is news. Cheap to copy and to give.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Notify>);

impl Signal {
    /// Something changed: a round comes. Given before the round began, any number is one.
    pub fn event(&self) {
        self.0.notify_one();
    }

    /// Until one was given since the last wait.
    pub async fn wait(&self) {
        self.0.notified().await;
    }
}

/// What becomes of routes while several policies apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnConflict {
    /// All are withdrawn, and everybody disconnected.
    #[default]
    Withdraw,
    /// They stay as they were.
    Keep,
}

/// Everything that there is, at one moment.
#[derive(Clone, Debug)]
pub struct Look {
    /// All policies ([`crate::select::heard`]).
    pub policies: Vec<Policy>,
    /// The appliance's annotations; what they say of routers is read here.
    pub annotations: Pairs,
    /// The appliance.
    pub state: ControlPlaneState,
}

/// Whoever can be asked for that.
pub trait World {
    /// Looks.
    fn look(&mut self) -> Look;

    /// Hears what became of what was looked at last.
    fn told(&mut self, _result: &Result<(), ReconcileError>) {}
}

/// Why a round failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Several policies apply.
    #[error(transparent)]
    MultiplePolicies(#[from] MultiplePolicies),
    /// The state can't be read.
    #[error(transparent)]
    State(#[from] BadAnnotation),
    /// The policy is wrong for this appliance.
    #[error(transparent)]
    Policy(#[from] PolicyDefect),
}

/// What is counted of rounds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Counts {
    /// Rounds.
    pub runs: u64,
    /// Seconds that they took, together.
    pub seconds: f64,
    /// Seconds that the last one took.
    pub last_seconds: f64,
    /// Errors by router; of none in particular under 0.
    pub errors: BTreeMap<u32, u64>,
    /// Why the last round failed; empty where it did not.
    pub error: String,
}

impl Counts {
    fn note(&mut self, took: Duration, result: &Result<(), ReconcileError>) {
        self.runs += 1;
        self.last_seconds = took.as_secs_f64();
        self.seconds += self.last_seconds;
        let error = result.as_ref().err();
        self.error = error.map(ToString::to_string).unwrap_or_default();
        match error {
            None => {}
            Some(ReconcileError::Policy(PolicyDefect(defects))) => {
                let mut asns: Vec<u32> = defects.iter().map(|defect| defect.local_asn).collect();
                asns.dedup();
                asns.into_iter().for_each(|asn| *self.errors.entry(asn).or_default() += 1);
            }
            Some(_) => *self.errors.entry(0).or_default() += 1,
        }
    }
}

/// The control loop's state.
pub struct Controller<W, R> {
    world: W,
    routers: R,
    on_conflict: OnConflict,
    /// The policy that was carried out last, to be withdrawn when none applies.
    active: Option<Policy>,
    /// What annotations said when they last meant something.
    annotations: BTreeMap<u32, RouterAnnotation>,
    retries: Retries,
    counts: Arc<Mutex<Counts>>,
}

impl<W: World, R: Routers> Controller<W, R> {
    /// Has done nothing yet. `seed` spreads retries.
    pub fn new(world: W, routers: R, on_conflict: OnConflict, seed: u64) -> Controller<W, R> {
        let (retries, counts) = (Retries::new(seed), Arc::default());
        let (active, annotations) = (None, BTreeMap::new());
        Controller { world, routers, on_conflict, active, annotations, retries, counts }
    }

    /// What is counted, for whoever wants to look.
    pub fn counts(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.counts)
    }

    /// One round: everything is looked at, and carried out.
    ///
    /// # Errors
    /// What was wrong; what could be carried out is.
    pub fn reconcile(&mut self) -> Result<(), ReconcileError> {
        let began = Instant::now();
        let result = self.round();
        self.counts.lock().note(began.elapsed(), &result);
        self.world.told(&result);
        result
    }

    fn round(&mut self) -> Result<(), ReconcileError> {
        let Look { policies, annotations, mut state } = self.world.look();
        let bad = match snapshot::annotations(&annotations) {
            Ok(said) => {
                self.annotations = said;
                None
            }
            // Before there is a router, who it is has to be known.
            Err(bad) if self.active.is_none() => return Err(bad.into()),
            // A router stays who it was: its routes have to follow the data plane in any case.
            Err(bad) => Some(bad),
        };
        state.annotations.clone_from(&self.annotations);
        match select(&policies, &state.labels) {
            Ok(Some(policy)) => self.carry_out(policy.clone(), &state)?,
            Ok(None) => self.withdraw(&state)?,
            Err(several) => {
                match (self.on_conflict, self.active.clone()) {
                    // What stays is the policy; an appliance that can't serve withdraws all the
                    // same. The conflict is what is told.
                    (OnConflict::Keep, Some(policy)) => {
                        let _ = self.carry_out(policy, &state);
                    }
                    _ => self.withdraw(&state)?,
                }
                return Err(several.into());
            }
        }
        bad.map_or(Ok(()), |bad| Err(bad.into()))
    }

    fn carry_out(&mut self, policy: Policy, state: &ControlPlaneState) -> Result<(), PolicyDefect> {
        let policy = self.active.insert(policy);
        self.routers.configure_peers(Some(policy), state)
    }

    /// Withdraws all, once.
    fn withdraw(&mut self, state: &ControlPlaneState) -> Result<(), PolicyDefect> {
        match self.active.take() {
            Some(_) => self.routers.configure_peers(None, state),
            None => Ok(()),
        }
    }

    /// Runs until `leave` says how to go, and goes.
    pub async fn run(mut self, signal: Signal, leave: impl Future<Output = Leave>) {
        let mut leave = std::pin::pin!(leave);
        signal.event();
        let mut earliest = Instant::now();
        let how = loop {
            let due = self.routers.next_due().map(|due| due.max(earliest));
            let due = self.retries.due.into_iter().chain(due).min();
            let retried = tokio::select! {
                biased;
                how = &mut leave => break how,
                () = signal.wait() => false,
                () = until(due) => true,
            };
            let result = self.reconcile();
            if let Err(error) = &result {
                tracing::warn!("bgp: {error}");
            }
            // What a round that failed left due doesn't make the next one begin at once.
            earliest = Instant::now() + if result.is_ok() { Duration::ZERO } else { RETRY };
            self.retries.note(Instant::now(), result.is_ok(), retried);
        };
        let mut leaving = Leaving::new(how);
        while let Step::Wait(deadline) = leaving.step(Instant::now(), &mut self.routers) {
            let look = deadline.min(Instant::now() + LOOK);
            tokio::select! {
                () = signal.wait() => {}
                () = until(Some(look)) => {}
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

/// When a round that failed is tried again.
#[derive(Debug)]
pub struct Retries {
    /// At this moment; none for not before the next signal.
    pub due: Option<Instant>,
    tried: u32,
    rng: Rng,
}

impl Retries {
    /// None is due.
    pub fn new(seed: u64) -> Retries {
        Retries { due: None, tried: 0, rng: Rng::with_seed(seed) }
    }

    /// A round is over; `retried` says that no signal asked for it.
    pub fn note(&mut self, now: Instant, well: bool, retried: bool) {
        if well || !retried {
            self.tried = 0;
        }
        self.due = (!well && self.tried < RETRIES).then(|| {
            let wait = RETRY * 2_u32.pow(self.tried);
            self.tried += 1;
            // Appliances do not retry in step.
            now + wait + wait.mul_f64(self.rng.f64() / 2.0)
        });
    }
}

#[cfg(test)]
mod tests;
