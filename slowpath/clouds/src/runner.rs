//! The runner performs the effects of a cloud's lifecycle: it makes the calls, passes their answers
//! to the state machine, and applies its decisions to the appliance. The *journal* is the state
//! file of the lifecycle.
//!
//! ```text
//!   metadata, cloud --> location: what the appliance is registered as, and where --> journal
//!                                   |
//!   ticks, ability, SIGTERM, answers --> Machine --> calls, probe, tunnels, findings, exit
//! ```
//! The runner never blocks on the cloud: each call is a task, and its answer is an event. If the
//! cloud's API does not answer after a restart, the runner uses the location in the journal: an
//! outage of the API must not take a working machine out of service.

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
use crate::calls::{self, CompletedCall, PendingCalls};
use crate::failure::{CallError, Failure, Operation};
use crate::lifecycle::{Effect, Event, Exit, Machine};
use crate::report::{DrainProgress, Finding, Report};
use crate::requests::Counts;
use crate::retry::{Clock, Pause, Policy, Retry, Step};
use crate::state_file;

/// Interval of the state machine's ticks.
const TICK: Duration = Duration::from_secs(1);
/// Pauses after a failed search for the location: `SEARCH_RETRY` for temporary errors,
/// `MAX_SEARCH_PAUSE` for those that the operator has to fix.
const SEARCH_RETRY: Policy = Policy {
    first_pause: Duration::from_secs(1),
    max_pause: MAX_SEARCH_PAUSE,
    max_elapsed: Duration::MAX,
};
const MAX_SEARCH_PAUSE: Duration = Duration::from_secs(15);
/// Time limit of a search if there is a state file, whose location can be used instead. It must be
/// shorter than the time in which a gateway marks the appliance unhealthy; see each cloud's state
/// machine.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

type Call<L> = <<L as Lifecycle>::Machine as Machine>::Call;
type Answer<L> = <<L as Lifecycle>::Machine as Machine>::Answer;
type Tunnels<L> = <<L as Lifecycle>::Machine as Machine>::Tunnels;
type Persisted<L> = <<L as Lifecycle>::Machine as Machine>::Persisted;
type CallOutput<L> = (Answer<L>, Option<<L as Lifecycle>::Details>);

/// A boxed future of the cloud's client. Unboxed, the SDKs' futures would nest too deeply for the
/// compiler to compute their layout.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The parts of the runner that differ from cloud to cloud.
pub trait Lifecycle: Send + Sync + Sized + 'static {
    /// Name of the cloud in reports and logs.
    const CLOUD: &'static str;
    /// Reason of the probe's 503 until the first search for the location ends.
    const SEARCHING: &'static str;
    /// The appliance's registration: what it is registered as, and where.
    type Location: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Error of a search for the location.
    type Error: SearchError;
    /// The lifecycle state machine.
    type Machine: Machine<Persisted: Serialize + DeserializeOwned>;
    /// Data that a call returns in addition to its answer, for the report.
    type Details: Send + 'static;

    /// Returns the appliance.
    fn appliance(&self) -> &dyn Appliance;
    /// Returns the seed of the retry jitter.
    fn seed(&self) -> u64;
    /// Returns the number of attempts so far, for the report.
    fn call_counts(&self) -> Counts;
    /// Searches the location once.
    fn find(&self) -> Pending<'_, Result<Self::Location, Self::Error>>;
    /// Returns the search criteria: configuration values and the ingress port as text. It contains
    /// no names of Rust types, so that a rename in the source does not change it. A location in the
    /// journal that was found by other criteria is not used.
    fn search_criteria(&self) -> String;
    /// Returns true if the location is known to belong to another machine: an image made of a
    /// running appliance contains its journal.
    fn belongs_to_other_machine<'a>(&'a self, location: &'a Self::Location) -> Pending<'a, bool>;
    /// Logs the location that the appliance uses.
    fn log(&self, location: &Self::Location);
    /// Returns the name of the location for the log.
    fn name(location: &Self::Location) -> &dyn Display;
    /// Returns the state machine for a location, and the state to write to the journal at start.
    /// `before` is the content of the journal.
    fn start(
        &self,
        location: &Self::Location,
        before: Option<Journal<Self::Location, Persisted<Self>>>,
        now: Instant,
    ) -> (Self::Machine, Option<Persisted<Self>>);
    /// Makes the call; the returned future runs as its own task.
    fn call(
        &self,
        call: Call<Self>,
        location: &Arc<Self::Location>,
        machine: &Self::Machine,
    ) -> impl Future<Output = CallOutput<Self>> + Send + 'static;
    /// Updates the report with the result of a call, and returns findings for the operator.
    fn observe(
        &self,
        location: &Self::Location,
        result: (&Answer<Self>, Option<Self::Details>),
        report: &mut Report,
    ) -> Vec<Finding>;
    /// Describes the state machine and its location in the report. `state` is empty or `none` if
    /// the appliance is not registered.
    fn describe(&self, machine: &Self::Machine, location: &Self::Location, report: &mut Report);

    /// Returns true if health probes pass before the location is found.
    fn passes_early(&self) -> bool {
        false
    }
    /// Sets whether health probes pass although the appliance is not able (`preboot_health` of
    /// Azure).
    fn set_preboot_pass(&self, _pass: bool) {}
    /// Returns events that the state machine gets before each other event.
    fn poll_events(
        &self,
        _location: &Self::Location,
        _now: Instant,
    ) -> Vec<Event<Answer<Self>, Tunnels<Self>>> {
        Vec::new()
    }
    /// Sets the tunnels of the data plane.
    fn set_tunnels(&self, _location: &Self::Location, _tunnels: Tunnels<Self>) {}
    /// Returns the answer to the state machine's first query. That query is not made, because the
    /// search for the location has just failed with `error`.
    fn unanswered(error: CallError) -> Answer<Self>;
}

/// Error of a search for the location.
pub trait SearchError: Display + From<CallError> + Send {
    /// Returns the error of the call if the cloud gave no information about the location, so that
    /// the journal's location may be used.
    fn no_answer(&self) -> Option<&CallError>;
    /// Returns true if a retry may soon succeed without intervention.
    fn is_temporary(&self) -> bool;
}

/// Content of the state file: the location, and the lifecycle state for the next process.
#[derive(Serialize, Deserialize)]
pub struct Journal<P, K> {
    /// Search criteria by which the location was found.
    #[serde(rename = "by")]
    criteria: String,
    /// The location.
    #[serde(rename = "place")]
    pub location: P,
    /// Lifecycle state at that location, independent of the search criteria.
    #[serde(rename = "life", default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub state: Option<K>,
}

/// The task that runs a lifecycle.
pub struct Runner<L: Lifecycle> {
    lifecycle: L,
    started: Instant,
    pause: Arc<dyn Pause>,
    journal: Option<PathBuf>,
    report: Report,
    flows: u64,
    calls: PendingCalls<Call<L>, CallOutput<L>>,
}

impl<L: Lifecycle> Runner<L> {
    /// Returns a runner that is ready to start. `journal` is the state file kept across restarts.
    pub fn new(lifecycle: L, journal: Option<PathBuf>) -> Runner<L> {
        let report =
            Report { cloud: L::CLOUD.into(), phase: "looking".into(), ..Report::default() };
        let (started, pause) = (Instant::now(), Arc::new(Clock::default()));
        let calls = PendingCalls::default();
        Runner { lifecycle, started, pause, journal, report, flows: 0, calls }
    }

    /// Replaces the clock, for tests.
    pub fn with_pause(self, pause: Arc<dyn Pause>) -> Runner<L> {
        Runner { pause, ..self }
    }

    fn now(&self) -> Instant {
        self.started + self.pause.now()
    }

    /// Runs until the process may exit, and returns how the lifecycle ended. Each message on
    /// `terminate` stands for a SIGTERM; a closed channel has no effect.
    pub async fn run(mut self, mut terminate: mpsc::Receiver<()>) -> Exit {
        self.fail_probes(L::SEARCHING.to_owned());
        self.publish();
        let (location, no_answer) = tokio::select! {
            found = self.find_location() => found,
            // The appliance has not registered yet, so there is nothing to drain.
            Some(()) = terminate.recv() => return Exit::Drained,
        };
        self.lifecycle.log(&location);
        self.run_machine(Arc::new(location), no_answer, &mut terminate).await
    }

    /// Sets the probe's answer for the time before the location is found: a failure with `reason`,
    /// unless probes pass early.
    fn fail_probes(&self, reason: String) {
        let pass = self.lifecycle.passes_early();
        self.lifecycle.set_preboot_pass(pass);
        self.lifecycle.appliance().set_probe_failures(if pass { Vec::new() } else { vec![reason] });
    }

    /// Searches until a location is found, and reports errors in the meantime. Returns the
    /// location; if it is the journal's, also the error that the search ended with.
    async fn find_location(&mut self) -> (L::Location, Option<CallError>) {
        let mut retry = Retry::new(SEARCH_RETRY, self.lifecycle.seed());
        loop {
            let error = match self.search().await {
                Ok(location) => {
                    self.report.error.clear();
                    return (location, None);
                }
                Err(error) => error,
            };
            if let Some(no_answer) = error.no_answer()
                && let Some(location) = self.journaled_location().await
            {
                tracing::warn!(
                    event = "cloud_location_from_file",
                    cloud = L::CLOUD,
                    location = %L::name(&location),
                    %error,
                    "no response from the cloud: using the location in the state file"
                );
                self.report.error.clear();
                return (location, Some(no_answer.clone()));
            }
            let text = error.to_string();
            self.report.set_error(text.clone());
            self.fail_probes(format!("{}: {text}", L::CLOUD));
            self.publish();
            let pause = match retry.step(Duration::ZERO, Failure::Transient, None) {
                Step::Wait(pause) if error.is_temporary() => pause,
                _ => MAX_SEARCH_PAUSE,
            };
            self.pause.idle(pause, 0).await;
        }
    }

    fn read_journal(&self) -> Option<Journal<L::Location, Persisted<L>>> {
        state_file::read(self.journal.as_deref())
    }

    fn write_journal(&self, location: &L::Location, state: Option<&Persisted<L>>) {
        let criteria = self.lifecycle.search_criteria();
        state_file::write(self.journal.as_deref(), &Journal { criteria, location, state });
    }

    async fn journaled_location(&self) -> Option<L::Location> {
        let Journal { criteria, location, .. } = self.read_journal()?;
        let foreign = self.lifecycle.belongs_to_other_machine(&location).await;
        (!foreign && criteria == self.lifecycle.search_criteria()).then_some(location)
    }

    /// Searches the location once, limited to [`SEARCH_TIMEOUT`] if the state file exists.
    async fn search(&self) -> Result<L::Location, L::Error> {
        let found = self.lifecycle.find();
        if !self.journal.as_ref().is_some_and(|file| file.exists()) {
            return found.await;
        }
        tokio::select! {
            found = found => found,
            () = self.pause.idle(SEARCH_TIMEOUT, 1) => {
                Err(Operation::new("", "Search").timed_out(SEARCH_TIMEOUT).error.into())
            }
        }
    }

    async fn run_machine(
        &mut self,
        location: Arc<L::Location>,
        no_answer: Option<CallError>,
        terminate: &mut mpsc::Receiver<()>,
    ) -> Exit {
        let before = self.read_journal();
        let (mut machine, state) = self.lifecycle.start(&location, before, self.now());
        if no_answer.is_none() {
            self.write_journal(&location, state.as_ref());
        }
        // If the location is the journal's, the search has just failed: the state machine gets that
        // error as the first answer, because another call would only delay the probe.
        let mut event =
            no_answer.map_or(Event::Tick, |error| Event::Answered(L::unanswered(error)));
        let mut next = self.now();
        loop {
            let polled = self.lifecycle.poll_events(&location, self.now());
            for event in polled.into_iter().chain([self.ability(), event]) {
                for effect in machine.step(self.now(), event) {
                    if let Some(exit) = self.perform(effect, &location, &machine) {
                        self.report.phase = "over".into();
                        self.publish();
                        return exit;
                    }
                }
            }
            self.describe(&machine, &location);
            let rest = next.saturating_duration_since(self.now());
            event = tokio::select! {
                () = self.pause.idle(rest, self.calls.in_progress()) => {
                    next = self.now() + TICK;
                    let appliance = self.lifecycle.appliance();
                    let (flows, packets) = appliance.activity();
                    self.flows = flows;
                    Event::Activity { flows, packets, unknown_tunnel: appliance.unknown_tunnel() }
                }
                Some(()) = terminate.recv() => Event::Terminate,
                Some(ended) = self.calls.next() => Event::Answered(self.answer(ended, &location)),
            };
        }
    }

    /// Performs an effect. Returns how the lifecycle ended if the effect is its end.
    fn perform(
        &mut self,
        effect: Effect<Call<L>, Tunnels<L>, Persisted<L>>,
        location: &Arc<L::Location>,
        machine: &L::Machine,
    ) -> Option<Exit> {
        let appliance = self.lifecycle.appliance();
        match effect {
            Effect::Call(call) => {
                self.calls.start(call, self.lifecycle.call(call, location, machine));
            }
            Effect::Probe { pass, reasons } => {
                // The state machine lets the probe pass for an appliance that is not able only
                // before that appliance has been able for the first time.
                self.lifecycle.set_preboot_pass(pass && appliance.able().is_err());
                appliance.set_probe_failures(if pass { Vec::new() } else { reasons });
            }
            Effect::FlowTimeout(idle) => appliance.set_tcp_idle(idle),
            Effect::Tunnels(tunnels) => self.lifecycle.set_tunnels(location, tunnels),
            Effect::Persist(state) => self.write_journal(location, Some(&state)),
            Effect::Finding(finding) => self.report.add_finding(finding),
            Effect::Exit(exit) => return Some(exit),
        }
        None
    }

    /// Returns the answer of a call that ended, and updates the report.
    fn answer(
        &mut self,
        ended: CompletedCall<Call<L>, CallOutput<L>>,
        location: &L::Location,
    ) -> Answer<L> {
        let (answer, details) = match ended {
            CompletedCall::Answered(output) => output,
            CompletedCall::Panicked(call, error) => {
                (L::Machine::failed(call, calls::panic_error(&error)), None)
            }
        };
        for finding in self.lifecycle.observe(location, (&answer, details), &mut self.report) {
            self.report.add_finding(finding);
        }
        answer
    }

    fn ability(&self) -> Event<Answer<L>, Tunnels<L>> {
        let able = self.lifecycle.appliance().able();
        Event::Able { able: able.is_ok(), reasons: able.err().unwrap_or_default() }
    }

    fn describe(&mut self, machine: &L::Machine, location: &L::Location) {
        self.lifecycle.describe(machine, location, &mut self.report);
        let drain = machine.leaving().map(|(reason, deadline)| DrainProgress {
            reason: reason.to_owned(),
            flows: self.flows,
            at_most_s: deadline.saturating_duration_since(self.now()).as_secs(),
        });
        let phase = match (&drain, machine.ready(), self.report.state.as_str()) {
            (Some(_), ..) => "leaving",
            (_, true, _) => "ready",
            (.., "" | "none") => "outside",
            _ => "registered",
        };
        phase.clone_into(&mut self.report.phase);
        (self.report.ready, self.report.differs) = (machine.ready(), machine.differs());
        self.report.drain = drain;
        self.publish();
    }

    fn publish(&mut self) {
        self.report.set_calls(self.lifecycle.call_counts());
        self.lifecycle.appliance().publish(self.report.clone());
    }
}
