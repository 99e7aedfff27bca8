//! Connects the AWS lifecycle to the runner: the location, the calls and the report.

mod calls;
mod cloud;
mod location;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clouds::appliance::Appliance;
use clouds::failure::CallError;
use clouds::lifecycle::{Machine, Never};
use clouds::report::{Finding, Peer, Report};
use clouds::requests::Counts;
use clouds::runner::{Journal, Lifecycle, Pending};
use config::checked::{Aws as Settings, AwsMode, Config, GroupBy};

pub use cloud::Cloud;
pub use location::{Location, LocationError, find_group};

use super::advice::{LocalSettings, advise};
use super::registration::{Answer, Call, Entry, Registration};
use super::types::{Attributes, Target, state_text};

/// The lifecycle of a target in an AWS target group.
pub struct AwsLifecycle {
    settings: Settings,
    local: LocalSettings,
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
        let local = LocalSettings::of(config, settings.lifecycle);
        AwsLifecycle { settings, local, cloud, appliance }
    }
}

impl Lifecycle for AwsLifecycle {
    const CLOUD: &'static str = "aws";
    const SEARCHING: &'static str = "searching for the target group at AWS";
    type Location = Location;
    type Error = LocationError;
    type Machine = Registration;
    type Details = Vec<Peer>;

    fn appliance(&self) -> &dyn Appliance {
        &*self.appliance
    }

    fn seed(&self) -> u64 {
        self.cloud.seed()
    }

    fn call_counts(&self) -> Counts {
        self.cloud.calls()
    }

    fn find(&self) -> Pending<'_, Result<Location, LocationError>> {
        Box::pin(Location::find(&self.settings, &self.cloud, &*self.appliance))
    }

    fn search_criteria(&self) -> String {
        let ingress = self.appliance.ingress().map_or_else(|| "-".to_owned(), |i| i.to_string());
        let group = match &self.settings.mode {
            AwsMode::Gateway(GroupBy::Arn(arn)) => format!("target_group={arn:?}"),
            AwsMode::Gateway(GroupBy::Cluster(cluster)) => format!("cluster={cluster:?}"),
            AwsMode::Routes { cluster } => format!("routes={cluster:?}"),
        };
        format!("{group} tag_prefix={:?} ingress={ingress}", self.settings.tag_prefix)
    }

    fn belongs_to_other_machine<'a>(&'a self, location: &'a Location) -> Pending<'a, bool> {
        Box::pin(async {
            let identity = self.cloud.identity().await;
            identity.is_ok_and(|identity| identity.instance_id != location.identity.instance_id)
        })
    }

    fn log(&self, location: &Location) {
        tracing::info!(
            event = "aws_target_group_found",
            group = location.group.arn,
            target = location.target,
            "target group found"
        );
    }

    fn name(location: &Location) -> &dyn Display {
        &location.group.arn
    }

    fn start(
        &self,
        _: &Location,
        _: Option<Journal<Location, Never>>,
        now: Instant,
    ) -> (Registration, Option<Never>) {
        (Registration::new(self.settings.lifecycle, now), None)
    }

    fn call(
        &self,
        call: Call,
        location: &Arc<Location>,
        registration: &Registration,
    ) -> impl Future<Output = calls::CallOutput> + Send + 'static {
        let leaving = registration.leaving().is_some();
        if leaving {
            self.cloud.cut_retries();
        }
        calls::perform(call, self.cloud.clone(), Arc::clone(location), leaving)
    }

    /// Updates the peers after a health query, and checks the settings at AWS after the attributes
    /// were read.
    fn observe(
        &self,
        location: &Location,
        (answer, peers): (&Answer, Option<Vec<Peer>>),
        report: &mut Report,
    ) -> Vec<Finding> {
        report.peers = peers.unwrap_or(std::mem::take(&mut report.peers));
        match answer {
            Answer::Attributes(Ok(attributes)) => advise(&location.group, attributes, &self.local),
            _ => Vec::new(),
        }
    }

    fn describe(&self, registration: &Registration, location: &Location, report: &mut Report) {
        report.instance.clone_from(&location.identity.instance_id);
        report.region.clone_from(&location.identity.region);
        report.zone.clone_from(&location.identity.zone);
        report.group.clone_from(&location.group.arn);
        report.target.clone_from(&location.target);
        let target = match registration.entry() {
            Entry::Reported(target) => Some(target),
            _ => None,
        };
        let seconds = |of: fn(&Attributes) -> Duration| {
            registration.attributes().map(|attributes| of(attributes).as_secs())
        };
        report.state = target.map(|t| state_text(t.state).to_owned()).unwrap_or_default();
        report.reason = target.map(reason).unwrap_or_default();
        report.deregistration_delay_s = seconds(|a| a.deregistration_delay);
        report.tcp_idle_s = seconds(|a| a.tcp_idle);
    }

    fn unanswered(error: CallError) -> Answer {
        Answer::Health(Err(error))
    }
}

fn reason(target: &Target) -> String {
    let parts = [&target.reason, &target.description];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ")
}
