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
mod place;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::checked::{Aws as Settings, Config};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use ask::Cloud;
pub use place::{Ingress, Place, PlaceError, the_group};

use super::advice::{Finding, Ours, advise};
use super::life::{Answer, Call, Effect, Entry, Event, Exit, Life};
use super::told::{Target, TargetState};
use crate::report::{Asked, Leaving, Peer, Report, Told};

/// From step to step.
const TICK: Duration = Duration::from_secs(1);
/// After a search for our place that failed: for what may pass by itself, and for what may not.
const SEARCH_AGAIN: Duration = Duration::from_secs(15);

/// What is asked of the appliance, and told to it. Nothing of it may block.
pub trait Appliance: Send + Sync {
    /// Whether it could take traffic, and if not, why.
    fn able(&self) -> Result<(), Vec<String>>;
    /// Flows in the table, and packets forwarded so far.
    fn activity(&self) -> (u64, u64);
    /// The ingress port; none before it is there.
    fn ingress(&self) -> Option<Ingress>;
    /// Why probes are to be told that no new traffic is wanted; nothing where its own ability
    /// counts.
    fn hold_back(&self, reasons: Vec<String>);
    /// The gateway forgets idle TCP flows after so long.
    fn tcp_idle(&self, idle: Duration);
    /// What people are told from now on.
    fn publish(&self, report: Report);
}

/// Who carries it out.
pub struct Drive {
    settings: Settings,
    ours: Ours,
    cloud: Cloud,
    appliance: Arc<dyn Appliance>,
    kept: Option<PathBuf>,
    report: Report,
    findings: BTreeMap<&'static str, Told>,
    peers: Vec<Peer>,
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
        let (findings, peers) = (BTreeMap::new(), Vec::new());
        Drive { settings, ours, cloud, appliance, kept, report, findings, peers }
    }

    /// Until the appliance may end. Each message of `terminate` is a SIGTERM; it ends when nobody
    /// can send one any more, too.
    pub async fn run(mut self, mut terminate: mpsc::Receiver<()>) -> Exit {
        self.appliance.hold_back(vec!["asking AWS for our target group".to_owned()]);
        self.publish(Vec::new());
        let place = tokio::select! {
            place = self.find_place() => place,
            // Nothing is registered by us, and nobody sends traffic on our word.
            _ = terminate.recv() => return Exit::Drained,
        };
        tracing::info!(group = place.group.arn, target = place.target, "our place at AWS");
        self.stay(Arc::new(place), &mut terminate).await
    }

    /// Our place, however long that takes. What is in the way is told meanwhile.
    async fn find_place(&mut self) -> Place {
        let mode = self.settings.mode.clone();
        loop {
            let found = Place::find(&self.settings, &self.cloud, &*self.appliance).await;
            let error = match found {
                Ok(place) => {
                    self.report.trouble.clear();
                    place.keep(&mode, self.kept.as_deref());
                    return place;
                }
                Err(error) => error,
            };
            if error.is_silence()
                && let Some(place) = Place::kept(&mode, self.kept.as_deref(), &self.cloud).await
            {
                let arn = &place.group.arn;
                tracing::warn!("aws: {error}; going on with the place that was kept, {arn}");
                return place;
            }
            let trouble = error.to_string();
            if self.report.trouble != trouble {
                tracing::error!("aws: {trouble}");
            }
            self.appliance.hold_back(vec![format!("aws: {trouble}")]);
            self.report.trouble = trouble;
            self.publish(Vec::new());
            tokio::time::sleep(SEARCH_AGAIN).await;
        }
    }

    async fn stay(&mut self, place: Arc<Place>, terminate: &mut mpsc::Receiver<()>) -> Exit {
        let mut life = Life::new(self.settings.life, Instant::now());
        let mut calls: JoinSet<(Answer, Option<Vec<Peer>>)> = JoinSet::new();
        let mut ticks = tokio::time::interval(TICK);
        let (mut terminates, mut flows) = (true, 0);
        self.report = Report {
            phase: "outside".into(),
            instance: place.identity.instance_id.clone(),
            region: place.identity.region.clone(),
            zone: place.identity.zone.clone(),
            group: place.group.arn.clone(),
            target: place.target.clone(),
            ..std::mem::take(&mut self.report)
        };
        loop {
            let event = tokio::select! {
                _ = ticks.tick() => {
                    let (now_flows, packets) = self.appliance.activity();
                    flows = now_flows;
                    Event::Activity { flows, packets }
                }
                came = terminate.recv(), if terminates => match came {
                    Some(()) => Event::Terminate,
                    None => {
                        terminates = false;
                        continue;
                    }
                },
                Some(done) = calls.join_next() => match done {
                    Ok((answer, peers)) => {
                        self.peers = peers.unwrap_or(std::mem::take(&mut self.peers));
                        self.advise(&place, &answer);
                        Event::Told(answer)
                    }
                    // A task of ours that broke: the call's own time limit is not there to tell.
                    Err(_) => continue,
                },
            };
            for event in [self.ability(), event] {
                for effect in life.step(Instant::now(), event) {
                    match effect {
                        Effect::Call(call) => {
                            let leaving = life.leaving().is_some();
                            calls.spawn(self.ask(call, Arc::clone(&place), leaving));
                        }
                        Effect::Probe { pass: true, .. } => self.appliance.hold_back(Vec::new()),
                        Effect::Probe { reasons, .. } => self.appliance.hold_back(reasons),
                        Effect::FlowTimeout(idle) => self.appliance.tcp_idle(idle),
                        Effect::Finding(finding) => self.found(finding),
                        Effect::Exit(exit) => {
                            self.report.phase = "over".into();
                            self.publish(place.connected.calls());
                            return exit;
                        }
                    }
                }
            }
            self.describe(&life, flows, place.connected.calls());
        }
    }

    fn ability(&self) -> Event {
        let able = self.appliance.able();
        Event::Able { able: able.is_ok(), reasons: able.err().unwrap_or_default() }
    }

    fn ask(
        &self,
        call: Call,
        place: Arc<Place>,
        leaving: bool,
    ) -> impl Future<Output = (Answer, Option<Vec<Peer>>)> + Send + use<> {
        async move { ask::ask(call, &place, leaving).await }
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
        tell(&mut self.findings, finding);
    }

    fn describe(&mut self, life: &Life, flows: u64, calls: Vec<Asked>) {
        let target = match life.entry() {
            Entry::Is(target) => Some(target),
            _ => None,
        };
        let leaving = life.leaving().map(|(why, deadline)| Leaving {
            why: why.as_str().to_owned(),
            flows,
            at_most_s: deadline.saturating_duration_since(Instant::now()).as_secs(),
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
        self.publish(calls);
    }

    fn publish(&mut self, calls: Vec<Asked>) {
        self.report.findings = self.findings.values().cloned().collect();
        self.report.peers.clone_from(&self.peers);
        self.report.calls = calls;
        self.appliance.publish(self.report.clone());
    }
}

/// Tells a finding: in the log when it is new or says something new.
pub(super) fn tell(findings: &mut BTreeMap<&'static str, Told>, finding: Finding) {
    let Finding { name, text, remedy } = finding;
    let told = findings.entry(name).or_default();
    if told.text != text {
        tracing::warn!("aws: {name}: {text}; {remedy}");
    }
    *told = Told { name: name.to_owned(), text, remedy, times: told.times + 1 };
}

/// A state in AWS's words.
pub fn state_text(state: TargetState) -> &'static str {
    match state {
        TargetState::Initial => "initial",
        TargetState::Healthy => "healthy",
        TargetState::Unhealthy => "unhealthy",
        TargetState::UnhealthyDraining => "unhealthy.draining",
        TargetState::Unused => "unused",
        TargetState::Draining => "draining",
        TargetState::Unavailable => "unavailable",
    }
}

fn reason(target: &Target) -> String {
    let parts = [&target.reason, &target.description];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests;
