//! Carries the lifecycle out: asks AWS what it wants asked, tells it what was answered, and tells
//! the appliance what it decided.
//!
//! ```text
//!   IMDS --> who we are --.
//!   tags, ARN --> group --+--> place: group, and as what we are registered --> kept on disk
//!                                   |
//!        ticks, ability, SIGTERM --> Life --> calls, probe, idle timeout, findings, exit
//! ```
//! Nothing waits here for the cloud: calls are tasks, and their answers events. Where AWS can't
//! tell our place after a restart, the one that was kept will do: an outage of its API must not
//! take a machine out that works.

mod ask;
mod cloud;
mod place;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::checked::{Aws as Settings, Config};
use tokio::sync::mpsc;

pub use cloud::Cloud;
pub use place::{Place, PlaceError, the_group};

use super::advice::{Ours, advise};
use super::life::{Answer, Call, Effect, Entry, Event, Exit, Life};
use super::told::{CallError, Failure, Target, state_text};
use clouds::appliance::{Appliance, Clock, Steady};
use clouds::asking::{Asking, Ended};
use clouds::failure::Operation;
use clouds::report::{Finding, Leaving, Peer, Report, Told, tell};
use clouds::retry::{Policy, Retry, Step};

/// From step to step.
const TICK: Duration = Duration::from_secs(1);
/// After a search for our place that came to nothing: for what may pass by itself, and for what
/// somebody has to mend.
const SOON: Policy = Policy { first: Duration::from_secs(1), longest: LATER, whole: Duration::MAX };
const LATER: Duration = Duration::from_secs(15);
/// So long AWS may take to tell our place when one was kept: less than a gateway takes to give us
/// up, see `life.rs`.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who carries it out.
pub struct Drive {
    settings: Settings,
    ours: Ours,
    cloud: Cloud,
    appliance: Arc<dyn Appliance>,
    clock: Arc<dyn Clock>,
    kept: Option<PathBuf>,
    report: Report,
    findings: BTreeMap<&'static str, Told>,
    peers: Vec<Peer>,
    flows: u64,
    calls: Asking<Call, ask::Told>,
}

impl Drive {
    /// Ready to begin. `kept` is the file that remembers our place.
    pub fn new(
        config: &Config,
        settings: Settings,
        cloud: Cloud,
        appliance: Arc<dyn Appliance>,
        kept: Option<PathBuf>,
    ) -> Drive {
        let ours = Ours::of(config, settings.life);
        let report = Report { cloud: "aws".into(), phase: "looking".into(), ..Report::default() };
        Drive {
            settings,
            ours,
            cloud,
            appliance,
            clock: Arc::new(Steady),
            kept,
            report,
            findings: BTreeMap::new(),
            peers: Vec::new(),
            flows: 0,
            calls: Asking::default(),
        }
    }

    /// The same where time passes otherwise.
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Drive {
        Drive { clock, ..self }
    }

    /// Until the appliance may end. Each message of `terminate` is a SIGTERM; that nobody can send
    /// one any more means nothing.
    pub async fn run(mut self, mut terminate: mpsc::Receiver<()>) -> Exit {
        self.appliance.hold_back(vec!["asking AWS for our target group".to_owned()]);
        self.publish();
        let (place, silence) = tokio::select! {
            found = self.find_place() => found,
            // Nothing is registered by us, and nobody sends traffic on our word.
            Some(()) = terminate.recv() => return Exit::Drained,
        };
        tracing::info!(group = place.group.arn, target = place.target, "our place at AWS");
        self.stay(Arc::new(place), silence, &mut terminate).await
    }

    /// Our place, however long that takes, and why AWS could not tell it where it is one that was
    /// kept. What is in the way is told meanwhile.
    async fn find_place(&mut self) -> (Place, Option<CallError>) {
        let mut soon = Retry::new(SOON, self.cloud.seed());
        loop {
            let error = match self.search().await {
                Ok(place) => {
                    self.report.trouble.clear();
                    place.keep(&self.settings, self.appliance.ingress(), self.kept.as_deref());
                    return (place, None);
                }
                Err(error) => error,
            };
            if let Some(silence) = error.silence()
                && let Some(place) = self.kept_place().await
            {
                let arn = &place.group.arn;
                tracing::warn!("aws: {error}; going on with the place that was kept, {arn}");
                self.report.trouble.clear();
                return (place, Some(silence.clone()));
            }
            let trouble = error.to_string();
            if self.report.trouble != trouble {
                tracing::error!("aws: {trouble}");
            }
            self.appliance.hold_back(vec![format!("aws: {trouble}")]);
            self.report.trouble = trouble;
            self.publish();
            let pause = match soon.step(Duration::ZERO, Failure::Transient, None) {
                Step::Wait(pause) if error.passes() => pause,
                _ => LATER,
            };
            self.clock.until(self.clock.now() + pause, 0).await;
        }
    }

    async fn kept_place(&self) -> Option<Place> {
        let ingress = self.appliance.ingress();
        Place::kept(&self.settings, ingress, self.kept.as_deref(), &self.cloud).await
    }

    /// One search, with little time where there is a place that was kept.
    async fn search(&self) -> Result<Place, PlaceError> {
        let found = Place::find(&self.settings, &self.cloud, &*self.appliance);
        if !self.kept.as_ref().is_some_and(|file| file.exists()) {
            return found.await;
        }
        tokio::select! {
            found = found => found,
            () = self.clock.until(self.clock.now() + PATIENCE, 1) => {
                Err(Operation::new("", "Search").late(PATIENCE).error.into())
            }
        }
    }

    async fn stay(
        &mut self,
        place: Arc<Place>,
        silence: Option<CallError>,
        terminate: &mut mpsc::Receiver<()>,
    ) -> Exit {
        let mut life = Life::new(self.settings.life, self.clock.now());
        self.report = Report {
            phase: "outside".into(),
            instance: place.identity.instance_id.clone(),
            region: place.identity.region.clone(),
            zone: place.identity.zone.clone(),
            group: place.group.arn.clone(),
            target: place.target.clone(),
            ..std::mem::take(&mut self.report)
        };
        // AWS was asked just now: to ask once more would only hold the probe back for longer.
        let mut event = match silence {
            Some(error) => Event::Told(Answer::Health(Err(error))),
            None => Event::Tick,
        };
        let mut next = self.clock.now();
        loop {
            for event in [self.ability(), event] {
                for effect in life.step(self.clock.now(), event) {
                    if let Some(exit) = self.carry_out(effect, &place, &life) {
                        self.report.phase = "over".into();
                        self.publish();
                        return exit;
                    }
                }
            }
            self.describe(&life);
            event = tokio::select! {
                () = self.clock.until(next, self.calls.under_way()) => {
                    next = self.clock.now() + TICK;
                    let (flows, packets) = self.appliance.activity();
                    self.flows = flows;
                    Event::Activity { flows, packets }
                }
                Some(()) = terminate.recv() => Event::Terminate,
                Some(ended) = self.calls.next() => self.told(ended, &place),
            };
        }
    }

    /// Does what the lifecycle wants; how it ends, if it does.
    fn carry_out(&mut self, effect: Effect, place: &Arc<Place>, life: &Life) -> Option<Exit> {
        match effect {
            Effect::Call(call) => {
                let leaving = life.leaving().is_some();
                if leaving {
                    self.cloud.hurry();
                }
                let asking = ask::ask(call, self.cloud.clone(), Arc::clone(place), leaving);
                self.calls.begin(call, asking);
            }
            Effect::Probe { pass: true, .. } => self.appliance.hold_back(Vec::new()),
            Effect::Probe { reasons, .. } => self.appliance.hold_back(reasons),
            Effect::FlowTimeout(idle) => self.appliance.tcp_idle(idle),
            Effect::Finding(finding) => self.found(finding),
            Effect::Exit(exit) => return Some(exit),
        }
        None
    }

    /// A call ended.
    fn told(&mut self, ended: Ended<Call, ask::Told>, place: &Place) -> Event {
        let (answer, peers) = match ended {
            Ended::Answered(told) => told,
            Ended::Broken(call, error) => (Answer::failed(call, error), None),
        };
        self.peers = peers.unwrap_or(std::mem::take(&mut self.peers));
        self.advise(place, &answer);
        Event::Told(answer)
    }

    fn ability(&self) -> Event {
        let able = self.appliance.able();
        Event::Able { able: able.is_ok(), reasons: able.err().unwrap_or_default() }
    }

    /// What hurts of what is set at AWS, when that is read.
    fn advise(&mut self, place: &Place, answer: &Answer) {
        if let Answer::Attributes(Ok(attributes)) = answer {
            for finding in advise(&place.group, attributes, &self.ours) {
                self.found(finding);
            }
        }
    }

    fn found(&mut self, finding: Finding) {
        tell("aws", &mut self.findings, finding);
    }

    fn describe(&mut self, life: &Life) {
        let target = match life.entry() {
            Entry::Is(target) => Some(target),
            _ => None,
        };
        let leaving = life.leaving().map(|(why, deadline)| Leaving {
            why: why.as_str().to_owned(),
            flows: self.flows,
            at_most_s: deadline.saturating_duration_since(self.clock.now()).as_secs(),
        });
        let phase = match (&leaving, life.ready(), target) {
            (Some(_), ..) => "leaving",
            (_, true, _) => "ready",
            (.., Some(_)) => "registered",
            _ => "outside",
        };
        let seconds = |of: fn(&super::told::Attributes) -> Duration| {
            life.attributes().map(|attributes| of(attributes).as_secs())
        };
        self.report = Report {
            phase: phase.to_owned(),
            ready: life.ready(),
            state: target.map(|t| state_text(t.state).to_owned()).unwrap_or_default(),
            reason: target.map(reason).unwrap_or_default(),
            differs: life.differs(),
            leaving,
            deregistration_delay_s: seconds(|a| a.deregistration_delay),
            tcp_idle_s: seconds(|a| a.tcp_idle),
            ..std::mem::take(&mut self.report)
        };
        self.publish();
    }

    fn publish(&mut self) {
        self.report.findings = self.findings.values().cloned().collect();
        self.report.peers.clone_from(&self.peers);
        self.report.calls = self.cloud.calls();
        self.appliance.publish(self.report.clone());
    }
}

fn reason(target: &Target) -> String {
    let parts = [&target.reason, &target.description];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ")
}
