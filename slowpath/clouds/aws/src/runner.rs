//! Connects the AWS lifecycle to the runner: the place, the calls and the report.

mod ask;
mod cloud;
mod place;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clouds::appliance::Appliance;
use clouds::failure::CallError;
use clouds::lifecycle::{Machine, Never};
use clouds::report::{Finding, Peer, Report};
use clouds::requests::Counts;
use clouds::runner::{Journal, Lifecycle, Pending};
use config::checked::{Aws as Settings, Config};

pub use cloud::Cloud;
pub use place::{Place, PlaceError, the_group};

use super::advice::{Ours, advise};
use super::life::{Answer, Call, Entry, Life};
use super::told::{Attributes, Target, state_text};

/// The lifecycle of a target in an AWS target group.
pub struct AwsLifecycle {
    settings: Settings,
    ours: Ours,
    cloud: Cloud,
    appliance: Arc<dyn Appliance>,
}

impl AwsLifecycle {
    /// Returns a lifecycle for a runner.
    pub fn new(
        config: &Config,
        settings: Settings,
        cloud: Cloud,
        appliance: Arc<dyn Appliance>,
    ) -> AwsLifecycle {
        let ours = Ours::of(config, settings.life);
        AwsLifecycle { settings, ours, cloud, appliance }
    }
}

impl Lifecycle for AwsLifecycle {
    const CLOUD: &'static str = "aws";
    const SEARCHES: &'static str = "asking AWS for our target group";
    type Place = Place;
    type Error = PlaceError;
    type Machine = Life;
    type Seen = Vec<Peer>;

    fn appliance(&self) -> &dyn Appliance {
        &*self.appliance
    }

    fn seed(&self) -> u64 {
        self.cloud.seed()
    }

    fn asked(&self) -> Counts {
        self.cloud.calls()
    }

    fn find(&self) -> Pending<'_, Result<Place, PlaceError>> {
        Box::pin(Place::find(&self.settings, &self.cloud, &*self.appliance))
    }

    fn searches_by(&self) -> String {
        let (settings, ours) = (&self.settings, self.appliance.ingress());
        format!("{:?} {} {ours:?}", settings.mode, settings.tag_prefix)
    }

    fn is_others<'a>(&'a self, place: &'a Place) -> Pending<'a, bool> {
        Box::pin(async {
            let identity = self.cloud.identity().await;
            identity.is_ok_and(|identity| identity.instance_id != place.identity.instance_id)
        })
    }

    fn log(&self, place: &Place) {
        tracing::info!(group = place.group.arn, target = place.target, "our place at AWS");
    }

    fn name(place: &Place) -> &dyn Display {
        &place.group.arn
    }

    fn start(
        &self,
        _: &Place,
        _: Option<Journal<Place, Never>>,
        now: Instant,
    ) -> (Life, Option<Never>) {
        (Life::new(self.settings.life, now), None)
    }

    fn ask(
        &self,
        call: Call,
        place: &Arc<Place>,
        life: &Life,
    ) -> impl Future<Output = ask::Told> + Send + 'static {
        let leaving = life.leaving().is_some();
        if leaving {
            self.cloud.hurry();
        }
        ask::ask(call, self.cloud.clone(), Arc::clone(place), leaving)
    }

    /// Settings at AWS are checked whenever the attributes were read.
    fn observe(
        &self,
        place: &Place,
        (answer, peers): (&Answer, Option<Vec<Peer>>),
        report: &mut Report,
    ) -> Vec<Finding> {
        report.peers = peers.unwrap_or(std::mem::take(&mut report.peers));
        match answer {
            Answer::Attributes(Ok(attributes)) => advise(&place.group, attributes, &self.ours),
            _ => Vec::new(),
        }
    }

    fn describe(&self, life: &Life, place: &Place, report: &mut Report) {
        report.instance.clone_from(&place.identity.instance_id);
        report.region.clone_from(&place.identity.region);
        report.zone.clone_from(&place.identity.zone);
        report.group.clone_from(&place.group.arn);
        report.target.clone_from(&place.target);
        let target = match life.entry() {
            Entry::Is(target) => Some(target),
            _ => None,
        };
        let seconds = |of: fn(&Attributes) -> Duration| {
            life.attributes().map(|attributes| of(attributes).as_secs())
        };
        report.state = target.map(|t| state_text(t.state).to_owned()).unwrap_or_default();
        report.reason = target.map(reason).unwrap_or_default();
        report.deregistration_delay_s = seconds(|a| a.deregistration_delay);
        report.tcp_idle_s = seconds(|a| a.tcp_idle);
    }

    fn silent(error: CallError) -> Answer {
        Answer::Health(Err(error))
    }
}

fn reason(target: &Target) -> String {
    let parts = [&target.reason, &target.description];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ")
}
