//! The runner performs the effects of a cloud's lifecycle: it makes the calls, passes their answers
//! to the state machine, and applies its decisions to the appliance.
//!
//! ```text
//!   metadata, cloud --> place: what the appliance is registered as, and where --> journal
//!                                   |
//!   ticks, ability, SIGTERM, answers --> Machine --> calls, probe, tunnels, findings, exit
//! ```
//! The runner never blocks on the cloud: each call is a task, and its answer is an event. If the
//! cloud cannot report the place after a restart, the journal's place is used: an outage of the
//! cloud's API must not take a working machine out of service.

use std::fmt::Display;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::appliance::Appliance;
use crate::asking::{self, Asking, Ended};
use crate::failure::{CallError, Failure, Operation};
use crate::kept;
use crate::lifecycle::{Effect, Event, Exit, Machine};
use crate::report::{Finding, Leaving, Report};
use crate::requests::Counts;
use crate::retry::{Clock, Pause, Policy, Retry, Step};

/// Interval of the state machine's ticks.
const TICK: Duration = Duration::from_secs(1);
/// Pauses after a failed search for the place: `SOON` for temporary errors, `LATER` for those that
/// the operator has to fix.
const SOON: Policy = Policy { first: Duration::from_secs(1), longest: LATER, whole: Duration::MAX };
const LATER: Duration = Duration::from_secs(15);
/// Time limit of a search if the journal has a place. It must be shorter than the time in which a
/// gateway marks the appliance unhealthy; see each cloud's `life.rs`.
const PATIENCE: Duration = Duration::from_secs(5);

type Call<L> = <<L as Lifecycle>::Machine as Machine>::Call;
type Answer<L> = <<L as Lifecycle>::Machine as Machine>::Answer;
type Tunnels<L> = <<L as Lifecycle>::Machine as Machine>::Tunnels;
type Kept<L> = <<L as Lifecycle>::Machine as Machine>::Kept;
type Told<L> = (Answer<L>, Option<<L as Lifecycle>::Seen>);

/// A boxed future of the cloud's client; unboxed, the SDKs' futures would nest too deeply for the
/// compiler to lay out.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The parts of the runner that differ from cloud to cloud.
pub trait Lifecycle: Send + Sync + Sized + 'static {
    /// Name of the cloud in reports and logs.
    const CLOUD: &'static str;
    /// Reason of the probe's 503 until the first search for the place ends.
    const SEARCHES: &'static str;
    /// The appliance's registration: what it is registered as, and where.
    type Place: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Error of a search for the place.
    type Error: SearchError;
    /// The lifecycle state machine.
    type Machine: Machine<Kept: Serialize + DeserializeOwned>;
    /// Data that a call returns in addition to its answer, for the report.
    type Seen: Send + 'static;

    /// Returns the appliance.
    fn appliance(&self) -> &dyn Appliance;
    /// Returns the seed of the retry jitter.
    fn seed(&self) -> u64;
    /// Returns the number of calls so far, for the report.
    fn asked(&self) -> Counts;
    /// Searches the place once.
    fn find(&self) -> Pending<'_, Result<Self::Place, Self::Error>>;
    /// Returns the search criteria. A place in the journal that was found by other criteria is not
    /// used.
    fn searches_by(&self) -> String;
    /// Returns true if the place is known to belong to another machine: an image made of a running
    /// appliance contains its journal.
    fn is_others<'a>(&'a self, place: &'a Self::Place) -> Pending<'a, bool>;
    /// Logs the place that the appliance uses.
    fn log(&self, place: &Self::Place);
    /// Returns the name of the place for the log.
    fn name(place: &Self::Place) -> &dyn Display;
    /// Returns the state machine for a place, and the state to write to the journal at start.
    /// `before` is the content of the journal.
    fn start(
        &self,
        place: &Self::Place,
        before: Option<Journal<Self::Place, Kept<Self>>>,
        now: Instant,
    ) -> (Self::Machine, Option<Kept<Self>>);
    /// Makes the call; the returned future runs as its own task.
    fn ask(
        &self,
        call: Call<Self>,
        place: &Arc<Self::Place>,
        machine: &Self::Machine,
    ) -> impl Future<Output = Told<Self>> + Send + 'static;
    /// Updates the report with the result of a call, and returns findings for the operator.
    fn observe(
        &self,
        place: &Self::Place,
        told: (&Answer<Self>, Option<Self::Seen>),
        report: &mut Report,
    ) -> Vec<Finding>;
    /// Describes the state machine and its place in the report. `state` is empty or `none` if the
    /// appliance is not registered.
    fn describe(&self, machine: &Self::Machine, place: &Self::Place, report: &mut Report);

    /// Returns true if health probes pass before the place is found.
    fn passes_early(&self) -> bool {
        false
    }
    /// Sets whether health probes pass although the appliance is not able.
    fn preboot(&self, _pass: bool) {}
    /// Returns events to process before every other event.
    fn sense(
        &self,
        _place: &Self::Place,
        _now: Instant,
    ) -> Vec<Event<Answer<Self>, Tunnels<Self>>> {
        Vec::new()
    }
    /// Sets the tunnels of the data plane.
    fn follow(&self, _place: &Self::Place, _tunnels: Tunnels<Self>) {}
    /// Returns the answer that informs the state machine that the place came from the journal,
    /// because the cloud failed with `error`.
    fn silent(error: CallError) -> Answer<Self>;
}

/// Error of a search for the place.
pub trait SearchError: Display + From<CallError> + Send {
    /// Returns the error of the call if the cloud gave no information about the place, so that the
    /// journal's place may be used.
    fn silence(&self) -> Option<&CallError>;
    /// Returns true if a retry may soon succeed without intervention.
    fn passes(&self) -> bool;
}

/// The journal on disk: the place, and the lifecycle state for the next process.
#[derive(Serialize, Deserialize)]
pub struct Journal<P, K> {
    /// Search criteria by which the place was found.
    by: String,
    /// The place.
    pub place: P,
    /// Lifecycle state at that place, independent of the search criteria.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub life: Option<K>,
}

/// The task that runs a lifecycle.
pub struct Runner<L: Lifecycle> {
    lifecycle: L,
    begun: Instant,
    pause: Arc<dyn Pause>,
    journal: Option<PathBuf>,
    report: Report,
    flows: u64,
    calls: Asking<Call<L>, Told<L>>,
}

impl<L: Lifecycle> Runner<L> {
    /// Returns a runner that is ready to start. `journal` is the state file kept across restarts.
    pub fn new(lifecycle: L, journal: Option<PathBuf>) -> Runner<L> {
        let report =
            Report { cloud: L::CLOUD.into(), phase: "looking".into(), ..Report::default() };
        let (begun, pause) = (Instant::now(), Arc::new(Clock::default()));
        let calls = Asking::default();
        Runner { lifecycle, begun, pause, journal, report, flows: 0, calls }
    }

    /// Replaces the clock, for tests.
    pub fn with_pause(self, pause: Arc<dyn Pause>) -> Runner<L> {
        Runner { pause, ..self }
    }

    fn now(&self) -> Instant {
        self.begun + self.pause.now()
    }

    /// Runs until the process may end, and returns how the lifecycle ended. Each message on
    /// `terminate` is a SIGTERM; a closed channel has no effect.
    pub async fn run(mut self, mut terminate: mpsc::Receiver<()>) -> Exit {
        self.hold_back(L::SEARCHES.to_owned());
        self.publish();
        let (place, silence) = tokio::select! {
            found = self.find_place() => found,
            // The appliance has not registered yet, so there is nothing to drain.
            Some(()) = terminate.recv() => return Exit::Drained,
        };
        self.lifecycle.log(&place);
        self.stay(Arc::new(place), silence, &mut terminate).await
    }

    /// Sets the probe's answer for the time before the place is found.
    fn hold_back(&self, why: String) {
        let pass = self.lifecycle.passes_early();
        self.lifecycle.preboot(pass);
        self.lifecycle.appliance().hold_back(if pass { Vec::new() } else { vec![why] });
    }

    /// Searches until a place is found. Returns it, and if it is the journal's, the error that kept
    /// the cloud from reporting it. Errors are reported in the meantime.
    async fn find_place(&mut self) -> (L::Place, Option<CallError>) {
        let mut soon = Retry::new(SOON, self.lifecycle.seed());
        loop {
            let error = match self.search().await {
                Ok(place) => {
                    self.report.trouble.clear();
                    return (place, None);
                }
                Err(error) => error,
            };
            if let Some(silence) = error.silence()
                && let Some(place) = self.kept_place().await
            {
                let (cloud, name) = (L::CLOUD, L::name(&place));
                tracing::warn!("{cloud}: {error}; going on with the place that was kept, {name}");
                self.report.trouble.clear();
                return (place, Some(silence.clone()));
            }
            let trouble = error.to_string();
            self.report.trouble(trouble.clone());
            self.hold_back(format!("{}: {trouble}", L::CLOUD));
            self.publish();
            let pause = match soon.step(Duration::ZERO, Failure::Transient, None) {
                Step::Wait(pause) if error.passes() => pause,
                _ => LATER,
            };
            self.pause.idle(pause, 0).await;
        }
    }

    fn read_journal(&self) -> Option<Journal<L::Place, Kept<L>>> {
        kept::read(self.journal.as_deref())
    }

    fn write_journal(&self, place: &L::Place, life: Option<&Kept<L>>) {
        let by = self.lifecycle.searches_by();
        kept::write(self.journal.as_deref(), &Journal { by, place, life });
    }

    async fn kept_place(&self) -> Option<L::Place> {
        let Journal { by, place, .. } = self.read_journal()?;
        let others = self.lifecycle.is_others(&place).await;
        (!others && by == self.lifecycle.searches_by()).then_some(place)
    }

    /// Searches the place once, limited to [`PATIENCE`] if there is a journal.
    async fn search(&self) -> Result<L::Place, L::Error> {
        let found = self.lifecycle.find();
        if !self.journal.as_ref().is_some_and(|file| file.exists()) {
            return found.await;
        }
        tokio::select! {
            found = found => found,
            () = self.pause.idle(PATIENCE, 1) => {
                Err(Operation::new("", "Search").late(PATIENCE).error.into())
            }
        }
    }

    async fn stay(
        &mut self,
        place: Arc<L::Place>,
        silence: Option<CallError>,
        terminate: &mut mpsc::Receiver<()>,
    ) -> Exit {
        let before = self.read_journal();
        let (mut machine, life) = self.lifecycle.start(&place, before, self.now());
        if silence.is_none() {
            self.write_journal(&place, life.as_ref());
        }
        // The cloud failed a moment ago: another call before the first step would only delay the
        // probe.
        let mut event = silence.map_or(Event::Tick, |error| Event::Told(L::silent(error)));
        let mut next = self.now();
        loop {
            let before = self.lifecycle.sense(&place, self.now());
            for event in before.into_iter().chain([self.ability(), event]) {
                for effect in machine.step(self.now(), event) {
                    if let Some(exit) = self.perform(effect, &place, &machine) {
                        self.report.phase = "over".into();
                        self.publish();
                        return exit;
                    }
                }
            }
            self.describe(&machine, &place);
            let rest = next.saturating_duration_since(self.now());
            event = tokio::select! {
                () = self.pause.idle(rest, self.calls.under_way()) => {
                    next = self.now() + TICK;
                    let appliance = self.lifecycle.appliance();
                    let (flows, packets) = appliance.activity();
                    self.flows = flows;
                    Event::Activity { flows, packets, strange: appliance.strange() }
                }
                Some(()) = terminate.recv() => Event::Terminate,
                Some(ended) = self.calls.next() => Event::Told(self.answer(ended, &place)),
            };
        }
    }

    /// Performs an effect. Returns how the lifecycle ended, if it did.
    fn perform(
        &mut self,
        effect: Effect<Call<L>, Tunnels<L>, Kept<L>>,
        place: &Arc<L::Place>,
        machine: &L::Machine,
    ) -> Option<Exit> {
        let appliance = self.lifecycle.appliance();
        match effect {
            Effect::Call(call) => {
                self.calls.begin(call, self.lifecycle.ask(call, place, machine));
            }
            Effect::Probe { pass, reasons } => {
                // The probe passes although the appliance is not able: only before it is able for
                // the first time.
                self.lifecycle.preboot(pass && appliance.able().is_err());
                appliance.hold_back(if pass { Vec::new() } else { reasons });
            }
            Effect::FlowTimeout(idle) => appliance.tcp_idle(idle),
            Effect::Tunnels(tunnels) => self.lifecycle.follow(place, tunnels),
            Effect::Keep(life) => self.write_journal(place, Some(&life)),
            Effect::Finding(finding) => self.report.found(finding),
            Effect::Exit(exit) => return Some(exit),
        }
        None
    }

    /// Returns the answer of a call that ended, and updates the report.
    fn answer(&mut self, ended: Ended<Call<L>, Told<L>>, place: &L::Place) -> Answer<L> {
        let (answer, seen) = match ended {
            Ended::Answered(told) => told,
            Ended::Broken(call, error) => (L::Machine::failed(call, asking::broken(&error)), None),
        };
        for finding in self.lifecycle.observe(place, (&answer, seen), &mut self.report) {
            self.report.found(finding);
        }
        answer
    }

    fn ability(&self) -> Event<Answer<L>, Tunnels<L>> {
        let able = self.lifecycle.appliance().able();
        Event::Able { able: able.is_ok(), reasons: able.err().unwrap_or_default() }
    }

    fn describe(&mut self, machine: &L::Machine, place: &L::Place) {
        self.lifecycle.describe(machine, place, &mut self.report);
        let leaving = machine.leaving().map(|(why, deadline)| Leaving {
            why: why.to_owned(),
            flows: self.flows,
            at_most_s: deadline.saturating_duration_since(self.now()).as_secs(),
        });
        let phase = match (&leaving, machine.ready(), self.report.state.as_str()) {
            (Some(_), ..) => "leaving",
            (_, true, _) => "ready",
            (.., "" | "none") => "outside",
            _ => "registered",
        };
        phase.clone_into(&mut self.report.phase);
        (self.report.ready, self.report.differs) = (machine.ready(), machine.differs());
        self.report.leaving = leaving;
        self.publish();
    }

    fn publish(&mut self) {
        self.report.asked(self.lifecycle.asked());
        self.lifecycle.appliance().publish(self.report.clone());
    }
}
