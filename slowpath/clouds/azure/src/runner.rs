//! Carries the lifecycle out: asks Azure what it wants asked, tells it what was answered, and tells
//! the appliance what it decided.
//!
//! ```text
//!   IMDS --> who we are --.
//!   ARM --> interface, load balancer --+--> place: pools, and as what we are in them --> on disk
//!                                      |
//!      ticks, ability, tunnels, SIGTERM --> Life --> calls, probe, tunnels, findings, exit
//! ```
//! Nothing waits here for Azure: calls are tasks, and their answers events. Where Azure can't tell
//! our place after a restart, the one that was kept will do: an outage of its API must not take a
//! machine out that works.

mod ask;
mod cloud;
mod describe;
mod kept;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clouds::appliance::{Appliance, Clock, Steady};
use clouds::asking::{Asking, Ended};
use clouds::failure::Operation;
use clouds::report::{Finding, Report, Told, tell};
use clouds::retry::{Policy, Retry, Step};
use config::checked::{Azure as Settings, Config, MadeBy, Preboot};
use tokio::sync::mpsc;

pub use cloud::Cloud;

use crate::advice::Ours;
use crate::life::{Answer, Call, Effect, Event, Exit, Life};
use crate::place::{Place, PlaceError};
use crate::told::{CallError, Failure, Family, Tunnels};
use ask::Looked;
use kept::OnDisk;

/// From step to step.
const TICK: Duration = Duration::from_secs(1);
/// After a search for our place that came to nothing: for what may pass by itself, and for what
/// somebody has to mend.
const SOON: Policy = Policy { first: Duration::from_secs(1), longest: LATER, whole: Duration::MAX };
const LATER: Duration = Duration::from_secs(15);
/// So long Azure may take to tell our place when one was kept: less than a gateway takes to give
/// us up, see `life.rs`.
const PATIENCE: Duration = Duration::from_secs(5);

/// What Azure's lifecycle asks of the appliance beside what each cloud's does. Nothing of it may
/// block.
pub trait Gateways: Appliance {
    /// Packets dropped so far because they came in a tunnel that we don't know: by its VNI, or by
    /// its port.
    fn strange(&self) -> u64;
    /// A gateway's tunnels that are in force; none before they are.
    fn tunnels(&self, gateway: &str) -> Option<Tunnels>;
    /// The gateways' tunnels become these.
    fn follow(&self, tunnels: &[(String, Tunnels)]);
    /// True: probes are told 200 although our own ability says otherwise, as `preboot_health =
    /// "pass"` wants it until we were able for the first time. What holds us back counts more.
    fn preboot(&self, pass: bool);
}

/// Who carries it out.
pub struct Drive {
    settings: Settings,
    ours: Ours,
    cloud: Cloud,
    appliance: Arc<dyn Gateways>,
    clock: Arc<dyn Clock>,
    kept: Option<PathBuf>,
    report: Report,
    findings: BTreeMap<&'static str, Told>,
    looked: Looked,
    flows: u64,
    calls: Asking<Call, ask::Told>,
}

impl Drive {
    /// Ready to begin. `kept` is the file that remembers our place, and what the next process has
    /// to know.
    pub fn new(
        config: &Config,
        settings: Settings,
        cloud: Cloud,
        appliance: Arc<dyn Gateways>,
        kept: Option<PathBuf>,
    ) -> Drive {
        let report = Report { cloud: "azure".into(), phase: "looking".into(), ..Report::default() };
        Drive {
            settings,
            ours: Ours::of(config),
            cloud,
            appliance,
            clock: Arc::new(Steady),
            kept,
            report,
            findings: BTreeMap::new(),
            looked: Looked::default(),
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
        self.hold_back("asking Azure for our pool".to_owned());
        self.publish();
        let (place, silence) = tokio::select! {
            found = self.find_place() => found,
            // Nothing was written by us, and nobody sends traffic on our word.
            Some(()) = terminate.recv() => return Exit::Drained,
        };
        tracing::info!(balancer = %place.balancer, interface = %place.interface, "at Azure");
        self.stay(Arc::new(place), silence, &mut terminate).await
    }

    /// Before there is a place nobody knows of us, unless the probe is to pass all the same.
    fn hold_back(&self, why: String) {
        let pass = self.settings.life.preboot == Preboot::Pass;
        self.appliance.preboot(pass);
        self.appliance.hold_back(if pass { Vec::new() } else { vec![why] });
    }

    /// Our place, however long that takes, and why Azure could not tell it where it is one that was
    /// kept. What is in the way is told meanwhile.
    async fn find_place(&mut self) -> (Place, Option<CallError>) {
        let mut soon = Retry::new(SOON, self.cloud.seed());
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
                let balancer = &place.balancer;
                tracing::warn!("azure: {error}; going on with the place that was kept, {balancer}");
                self.report.trouble.clear();
                return (place, Some(silence.clone()));
            }
            let trouble = error.to_string();
            if self.report.trouble != trouble {
                tracing::error!("azure: {trouble}");
            }
            self.hold_back(format!("azure: {trouble}"));
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
        let kept = OnDisk::read(self.kept.as_deref())?;
        // An image that was made of a running appliance has its place, and not its identity.
        let other = match self.cloud.identity().await {
            Ok(identity) => identity.vm_id != kept.place.identity.vm_id,
            Err(_) => false,
        };
        let by = kept::looked_for(&self.settings, self.appliance.ingress());
        (!other && kept.by == by).then_some(kept.place)
    }

    /// One search, with little time where there is a place that was kept.
    async fn search(&self) -> Result<Place, PlaceError> {
        let found = self.find();
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

    async fn find(&self) -> Result<Place, PlaceError> {
        let ingress = self.appliance.ingress().ok_or(PlaceError::NoIngress)?;
        let identity = self.cloud.identity().await.map_err(PlaceError::Metadata)?;
        let arm = self.cloud.arm(&identity.environment)?.with_policy(Policy::ONCE);
        Place::find(&arm, &self.settings, identity, &ingress).await
    }

    async fn stay(
        &mut self,
        place: Arc<Place>,
        silence: Option<CallError>,
        terminate: &mut mpsc::Receiver<()>,
    ) -> Exit {
        let left = OnDisk::read(self.kept.as_deref()).map(|kept| kept.life_at(&place));
        let left = left.unwrap_or_default();
        self.keep(&place, &left);
        // By address the pool is written, which no scale set's model owns.
        let managed = place.managed && self.settings.membership == MadeBy::Nic;
        let mut life = Life::new(self.settings.life, managed, left, self.clock.now());
        self.found_place(&place);
        // Azure was asked just now: to ask once more would only hold the probe back for longer.
        let mut event = match silence {
            Some(error) => Event::Told(Answer::Looked(Err(error))),
            None => Event::Tick,
        };
        let mut next = self.clock.now();
        loop {
            let before = [Event::Clock(self.seconds()), self.carries(&place), self.ability()];
            for event in before.into_iter().chain([event]) {
                for effect in life.step(self.clock.now(), event) {
                    if let Some(exit) = self.carry_out(effect, &place, &life) {
                        self.report.phase = "over".into();
                        self.publish();
                        return exit;
                    }
                }
            }
            self.describe(&life, &place);
            event = tokio::select! {
                () = self.clock.until(next, self.calls.under_way()) => {
                    next = self.clock.now() + TICK;
                    let (flows, packets) = self.appliance.activity();
                    self.flows = flows;
                    Event::Activity { flows, packets, strange: self.appliance.strange() }
                }
                Some(()) = terminate.recv() => Event::Terminate,
                Some(ended) = self.calls.next() => self.told(ended),
            };
        }
    }

    /// Does what the lifecycle wants; how it ends, if it does.
    fn carry_out(&mut self, effect: Effect, place: &Arc<Place>, life: &Life) -> Option<Exit> {
        match effect {
            Effect::Call(call) => self.call(call, place, life),
            Effect::Probe { pass, reasons } => {
                // Not able, and 200 all the same: that is until we were able for the first time.
                self.appliance.preboot(pass && self.appliance.able().is_err());
                self.appliance.hold_back(if pass { Vec::new() } else { reasons });
            }
            Effect::Tunnels(tunnels) => {
                let of = |(family, tunnels): (Family, Tunnels)| {
                    let pool = place.pools.iter().find(|pool| pool.family == family)?;
                    Some((pool.gateway.clone(), tunnels))
                };
                let told: Vec<_> = tunnels.into_iter().filter_map(of).collect();
                self.appliance.follow(&told);
            }
            Effect::Keep(kept) => self.keep(place, &kept),
            Effect::Finding(finding) => self.found(finding),
            Effect::Exit(exit) => return Some(exit),
        }
        None
    }

    fn call(&mut self, call: Call, place: &Arc<Place>, life: &Life) {
        let leaving = life.leaving().is_some();
        if leaving {
            self.cloud.hurry();
        }
        let asked = ask::Question {
            call,
            cloud: self.cloud.clone(),
            place: Arc::clone(place),
            by: self.settings.membership,
            ours: self.ours.clone(),
            leaving,
            event: life.event().map(str::to_owned),
        };
        self.calls.begin(call, ask::ask(asked));
    }

    /// A call ended.
    fn told(&mut self, ended: Ended<Call, ask::Told>) -> Event {
        let (answer, looked) = match ended {
            Ended::Answered(told) => told,
            Ended::Broken(call, error) => (Answer::failed(call, error), None),
        };
        if let Some(looked) = looked {
            looked.findings.iter().cloned().for_each(|finding| self.found(finding));
            self.looked = looked;
        }
        Event::Told(answer)
    }

    fn ability(&self) -> Event {
        let able = self.appliance.able();
        Event::Able { able: able.is_ok(), reasons: able.err().unwrap_or_default() }
    }

    /// What the data plane has in force.
    fn carries(&self, place: &Place) -> Event {
        let of =
            |pool: &crate::place::Pool| Some((pool.family, self.appliance.tunnels(&pool.gateway)?));
        Event::Carries(place.pools.iter().filter_map(of).collect())
    }

    /// Seconds since 1970, where time passes as the clock says.
    fn seconds(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (since + self.clock.now().saturating_duration_since(Instant::now())).as_secs()
    }

    fn keep(&self, place: &Place, life: &crate::life::Kept) {
        let by = kept::looked_for(&self.settings, self.appliance.ingress());
        let kept = OnDisk { by, place: place.clone(), life: life.clone() };
        clouds::kept::write(self.kept.as_deref(), &kept);
    }

    fn found(&mut self, finding: Finding) {
        tell("azure", &mut self.findings, finding);
    }
}
