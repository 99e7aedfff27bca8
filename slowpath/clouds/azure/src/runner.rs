//! Connects the Azure lifecycle to the runner: the place, the calls and the report.

mod ask;
mod cloud;
mod describe;

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clouds::appliance::Appliance;
use clouds::failure::CallError;
use clouds::lifecycle::Machine;
use clouds::report::{Finding, Report};
use clouds::requests::Counts;
use clouds::retry::Policy;
use clouds::runner::{Journal, Lifecycle, Pending};
use config::checked::{Azure as Settings, Config, MadeBy, Preboot};

pub use cloud::Cloud;

use crate::advice::Ours;
use crate::life::{Answer, Call, Event, Kept, Life};
use crate::place::{Place, PlaceError, Pool};
use crate::told::{Family, Tunnels};
use ask::Looked;

/// The appliance, with the additional methods that the Azure lifecycle needs. No method may block.
pub trait Gateways: Appliance {
    /// Returns the tunnels in force of a gateway; `None` until there are any.
    fn tunnels(&self, gateway: &str) -> Option<Tunnels>;
    /// Sets the tunnels of the gateways.
    fn follow(&self, tunnels: &[(String, Tunnels)]);
    /// Sets whether health probes pass although the appliance is not able: with `preboot_health =
    /// "pass"`, until it is able for the first time. Reasons set by
    /// [`hold_back`](Appliance::hold_back) take precedence.
    fn preboot(&self, pass: bool);
}

/// The lifecycle of a member of Azure backend pools.
pub struct AzureLifecycle {
    settings: Settings,
    ours: Ours,
    cloud: Cloud,
    appliance: Arc<dyn Gateways>,
}

impl AzureLifecycle {
    /// Returns a lifecycle for a runner.
    pub fn new(
        config: &Config,
        settings: Settings,
        cloud: Cloud,
        appliance: Arc<dyn Gateways>,
    ) -> AzureLifecycle {
        AzureLifecycle { settings, ours: Ours::of(config), cloud, appliance }
    }
}

impl Lifecycle for AzureLifecycle {
    const CLOUD: &'static str = "azure";
    const SEARCHES: &'static str = "asking Azure for our pool";
    type Place = Place;
    type Error = PlaceError;
    type Machine = Life;
    type Seen = Looked;

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
        Box::pin(async {
            let ingress = self.appliance.ingress().ok_or(PlaceError::NoIngress)?;
            let identity = self.cloud.identity().await.map_err(PlaceError::Metadata)?;
            let arm = self.cloud.arm(&identity.environment)?.with_policy(Policy::ONCE);
            Place::find(&arm, &self.settings, identity, &ingress).await
        })
    }

    fn searches_by(&self) -> String {
        let (settings, ours) = (&self.settings, self.appliance.ingress());
        format!("{:?} {:?} {ours:?}", settings.pools, settings.balancer)
    }

    fn is_others<'a>(&'a self, place: &'a Place) -> Pending<'a, bool> {
        Box::pin(async {
            let identity = self.cloud.identity().await;
            identity.is_ok_and(|identity| identity.vm_id != place.identity.vm_id)
        })
    }

    fn log(&self, place: &Place) {
        tracing::info!(balancer = %place.balancer, interface = %place.interface, "at Azure");
    }

    fn name(place: &Place) -> &dyn Display {
        &place.balancer
    }

    fn start(
        &self,
        place: &Place,
        before: Option<Journal<Place, Kept>>,
        now: Instant,
    ) -> (Life, Option<Kept>) {
        let left = before.map(|before| still_true(before, place)).unwrap_or_default();
        // An entry by address is written in the pool, which no scale set's model owns.
        let managed = place.managed && self.settings.membership == MadeBy::Nic;
        (Life::new(self.settings.life, managed, left.clone(), now), Some(left))
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
        ask::ask(ask::Question {
            call,
            cloud: self.cloud.clone(),
            place: Arc::clone(place),
            by: self.settings.membership,
            ours: self.ours.clone(),
            leaving,
            event: life.event().map(str::to_owned),
        })
    }

    fn observe(
        &self,
        _: &Place,
        (_, looked): (&Answer, Option<Looked>),
        report: &mut Report,
    ) -> Vec<Finding> {
        let Some(looked) = looked else { return Vec::new() };
        report.peers = looked.peers;
        report.tcp_idle_s = looked.idle.map(|idle| idle.as_secs());
        looked.findings
    }

    fn describe(&self, life: &Life, place: &Place, report: &mut Report) {
        let ids: Vec<&str> = place.pools.iter().map(|pool| pool.id.as_str()).collect();
        let target = |pool: &Pool| match self.settings.membership {
            MadeBy::Nic => pool.configuration.to_string(),
            MadeBy::Ip => pool.address.to_string(),
        };
        let targets: Vec<String> = place.pools.iter().map(target).collect();
        report.instance.clone_from(&place.identity.name);
        report.region.clone_from(&place.identity.location);
        report.zone.clone_from(&place.identity.zone);
        (report.group, report.target) = (ids.join(", "), targets.join(", "));
        report.state = describe::state(life).to_owned();
        let carried = life.tunnels().into_iter();
        report.tunnels = carried.filter_map(|of| describe::carried(of, place)).collect();
    }

    fn passes_early(&self) -> bool {
        self.settings.life.preboot == Preboot::Pass
    }

    fn preboot(&self, pass: bool) {
        self.appliance.preboot(pass);
    }

    /// Returns the current time and the tunnels in force in the data plane.
    fn sense(&self, place: &Place, now: Instant) -> Vec<Event> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead = now.saturating_duration_since(Instant::now());
        let of = |pool: &Pool| Some((pool.family, self.appliance.tunnels(&pool.gateway)?));
        let carried = place.pools.iter().filter_map(of).collect();
        vec![Event::Clock((since + ahead).as_secs()), Event::Carries(carried)]
    }

    fn follow(&self, place: &Place, tunnels: Vec<(Family, Tunnels)>) {
        let of = |(family, tunnels): (Family, Tunnels)| {
            let pool = place.pools.iter().find(|pool| pool.family == family)?;
            Some((pool.gateway.clone(), tunnels))
        };
        let told: Vec<_> = tunnels.into_iter().filter_map(of).collect();
        self.appliance.follow(&told);
    }

    fn silent(error: CallError) -> Answer {
        Answer::Looked(Err(error))
    }
}

/// Returns the part of the journal that still applies at a place. A `Down` set in a pool that is
/// kept stays Weir's to lift, even if other pools changed.
fn still_true(Journal { place: before, life, .. }: Journal<Place, Kept>, now: &Place) -> Kept {
    let Some(life) = life.filter(|_| before.identity.vm_id == now.identity.vm_id) else {
        return Kept::default();
    };
    let entries = |place: &Place| {
        let of = |pool: &Pool| (pool.id.clone(), pool.configuration.clone());
        place.pools.iter().map(of).collect::<Vec<_>>()
    };
    let (before, now) = (entries(&before), entries(now));
    if before == now {
        return life;
    }
    let down = life.down && before.iter().any(|entry| now.contains(entry));
    Kept { down, ..Kept::default() }
}
