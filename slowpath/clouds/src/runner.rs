//! The runner performs the effects of a cloud's lifecycle: it makes the calls, forwards their
//! answers to the state machine, and applies to the appliance what that decides.
//!
//! ```text
//!   metadata, cloud --> place: what the appliance is registered as, and where --> journal
//!                                   |
//!   ticks, ability, SIGTERM, answers --> Machine --> calls, probe, tunnels, findings, exit
//! ```
//! Nothing waits here for the cloud: each call is a task, and its answer an event. Where the cloud
//! can't tell the place after a restart, the one in the journal will do: an outage of its API must
//! not take a machine out that works.

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

/// From step to step.
const TICK: Duration = Duration::from_secs(1);
/// After a search for the place that failed: for what may pass by itself, and for what somebody has
/// to mend.
const SOON: Policy = Policy { first: Duration::from_secs(1), longest: LATER, whole: Duration::MAX };
const LATER: Duration = Duration::from_secs(15);
/// How long the cloud may take to tell the place when one is in the journal: less than a gateway
/// takes to give the appliance up, see each cloud's `life.rs`.
const PATIENCE: Duration = Duration::from_secs(5);

type Call<L> = <<L as Lifecycle>::Machine as Machine>::Call;
type Answer<L> = <<L as Lifecycle>::Machine as Machine>::Answer;
type Tunnels<L> = <<L as Lifecycle>::Machine as Machine>::Tunnels;
type Kept<L> = <<L as Lifecycle>::Machine as Machine>::Kept;
type Told<L> = (Answer<L>, Option<<L as Lifecycle>::Seen>);

/// A search on its way. It is boxed: the SDKs' futures are too deep to be laid out in another.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What differs from cloud to cloud.
pub trait Lifecycle: Send + Sync + Sized + 'static {
    /// The cloud's name in reports and in the log.
    const CLOUD: &'static str;
    /// The reason of the probe's 503 before the first search for the place has ended.
    const SEARCHES: &'static str;
    /// Where the appliance belongs, and as what.
    type Place: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Why no place was found.
    type Error: SearchError;
    /// The state machine.
    type Machine: Machine<Kept: Serialize + DeserializeOwned>;
    /// What a call reports beside its answer.
    type Seen: Send + 'static;

    /// The appliance.
    fn appliance(&self) -> &dyn Appliance;
    /// The seed of jitter.
    fn seed(&self) -> u64;
    /// The calls so far, for the report.
    fn asked(&self) -> Counts;
    /// Searches the place, once.
    fn find(&self) -> Pending<'_, Result<Self::Place, Self::Error>>;
    /// What the place is searched by; a place that was found by something else says nothing.
    fn searches_by(&self) -> String;
    /// Whether the place is another machine's, as far as is known: an image that was made of a
    /// running appliance has its journal, and not its identity.
    fn is_others<'a>(&'a self, place: &'a Self::Place) -> Pending<'a, bool>;
    /// Logs a place that the appliance takes.
    fn log(&self, place: &Self::Place);
    /// The place's name in the log.
    fn name(place: &Self::Place) -> &dyn Display;
    /// The state machine at a place, and what is kept of it from the start. `before` is what the
    /// journal has.
    fn start(
        &self,
        place: &Self::Place,
        before: Option<Journal<Self::Place, Kept<Self>>>,
        now: Instant,
    ) -> (Self::Machine, Option<Kept<Self>>);
    /// The call as a task of its own.
    fn ask(
        &self,
        call: Call<Self>,
        place: &Arc<Self::Place>,
        machine: &Self::Machine,
    ) -> impl Future<Output = Told<Self>> + Send + 'static;
    /// Takes into the report what a call showed, and returns what people should know of it.
    fn observe(
        &self,
        place: &Self::Place,
        told: (&Answer<Self>, Option<Self::Seen>),
        report: &mut Report,
    ) -> Vec<Finding>;
    /// Describes the state machine and its place in the report: `state` is empty or `none` outside.
    fn describe(&self, machine: &Self::Machine, place: &Self::Place, report: &mut Report);

    /// Whether probes pass before there is a place.
    fn passes_early(&self) -> bool {
        false
    }
    /// Whether probes pass although the appliance is not able.
    fn preboot(&self, _pass: bool) {}
    /// Events that come before all others.
    fn sense(
        &self,
        _place: &Self::Place,
        _now: Instant,
    ) -> Vec<Event<Answer<Self>, Tunnels<Self>>> {
        Vec::new()
    }
    /// Has the data plane follow tunnels.
    fn follow(&self, _place: &Self::Place, _tunnels: Tunnels<Self>) {}
    /// The answer that tells the state machine that the place came from the journal.
    fn silent(error: CallError) -> Answer<Self>;
}

/// Why no place was found.
pub trait SearchError: Display + From<CallError> + Send {
    /// What the cloud didn't tell, where it says nothing about the place: it can't or won't.
    fn silence(&self) -> Option<&CallError>;
    /// Whether it may pass soon, and by itself.
    fn passes(&self) -> bool;
}

/// What is kept on disk: the place, and what the next process has to know of the lifecycle.
#[derive(Serialize, Deserialize)]
pub struct Journal<P, K> {
    /// What the place was searched by.
    by: String,
    /// The place.
    pub place: P,
    /// Of the lifecycle at that place, whatever it was searched by.
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
    /// A runner that is ready to begin. `journal` is the file that outlives the process.
    pub fn new(lifecycle: L, journal: Option<PathBuf>) -> Runner<L> {
        let report =
            Report { cloud: L::CLOUD.into(), phase: "looking".into(), ..Report::default() };
        let (begun, pause) = (Instant::now(), Arc::new(Clock::default()));
        let calls = Asking::default();
        Runner { lifecycle, begun, pause, journal, report, flows: 0, calls }
    }

    /// The same with time that passes otherwise.
    pub fn with_pause(self, pause: Arc<dyn Pause>) -> Runner<L> {
        Runner { pause, ..self }
    }

    fn now(&self) -> Instant {
        self.begun + self.pause.now()
    }

    /// Runs until the appliance may end. Each message of `terminate` is a SIGTERM; a closed channel
    /// means nothing.
    pub async fn run(mut self, mut terminate: mpsc::Receiver<()>) -> Exit {
        self.hold_back(L::SEARCHES.to_owned());
        self.publish();
        let (place, silence) = tokio::select! {
            found = self.find_place() => found,
            // Nothing was written yet, and no traffic comes on the appliance's word.
            Some(()) = terminate.recv() => return Exit::Drained,
        };
        self.lifecycle.log(&place);
        self.stay(Arc::new(place), silence, &mut terminate).await
    }

    /// Before there is a place the cloud does not know the appliance.
    fn hold_back(&self, why: String) {
        let pass = self.lifecycle.passes_early();
        self.lifecycle.preboot(pass);
        self.lifecycle.appliance().hold_back(if pass { Vec::new() } else { vec![why] });
    }

    /// The place, however long that takes, and why the cloud could not tell it where it is one of
    /// the journal. What is in the way is reported meanwhile.
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

    /// One search, with little time where the journal has a place.
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
        // The cloud was asked just now: to ask once more would only hold the probe back for longer.
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

    /// Performs an effect; how the lifecycle ends, if it does.
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
                // Not able, and 200 all the same: that is until it was able for the first time.
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

    /// The answer of a call that ended.
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
