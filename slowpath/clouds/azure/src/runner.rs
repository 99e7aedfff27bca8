//! Connects the Azure lifecycle to the runner: location, calls and report.

mod calls;
mod cloud;
mod report;

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
use config::checked::{Azure as Settings, Balancer, Config, MembershipMode, Preboot};

pub use cloud::Cloud;

use crate::advice::ApplianceSettings;
use crate::location::{Location, LocationError, Pool};
use crate::membership::{Answer, Call, Event, Membership, PersistedState};
use crate::types::{Family, Tunnels};
use calls::PoolDetails;

/// The appliance, with the additional methods that the Azure lifecycle needs. No method may block.
pub trait AzureAppliance: Appliance {
    /// Returns the tunnels of a gateway that are in force in the data plane; `None` until there are
    /// any.
    fn tunnels(&self, gateway: &str) -> Option<Tunnels>;
    /// Sets the tunnels of these gateways, each given by its name.
    fn set_tunnels(&self, tunnels: &[(String, Tunnels)]);
    /// Sets whether health probes pass although the appliance is not able. With `preboot_health =
    /// "pass"` they do so until the appliance is able for the first time. Reasons set by
    /// [`set_probe_failures`](Appliance::set_probe_failures) take precedence.
    fn set_preboot_pass(&self, pass: bool);
}

/// The lifecycle of a member of Azure backend pools.
pub struct AzureLifecycle {
    settings: Settings,
    appliance_settings: ApplianceSettings,
    cloud: Cloud,
    appliance: Arc<dyn AzureAppliance>,
}

impl AzureLifecycle {
    /// Returns a lifecycle for a runner.
    pub fn new(
        config: &Config,
        settings: Settings,
        cloud: Cloud,
        appliance: Arc<dyn AzureAppliance>,
    ) -> AzureLifecycle {
        AzureLifecycle {
            settings,
            appliance_settings: ApplianceSettings::of(config),
            cloud,
            appliance,
        }
    }
}

impl Lifecycle for AzureLifecycle {
    const CLOUD: &'static str = "azure";
    const SEARCHING: &'static str = "searching for the backend pool at Azure";
    type Location = Location;
    type Error = LocationError;
    type Machine = Membership;
    type Details = PoolDetails;

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
        Box::pin(async {
            let ingress = self.appliance.ingress().ok_or(LocationError::NoIngress)?;
            let identity = self.cloud.identity().await.map_err(LocationError::Metadata)?;
            let arm = self.cloud.arm(&identity.environment)?.with_policy(Policy::ONCE);
            Location::discover(&arm, &self.settings, identity, &ingress).await
        })
    }

    fn search_criteria(&self) -> String {
        let ingress = self.appliance.ingress().map_or_else(|| "-".to_owned(), |i| i.to_string());
        let pools = self.settings.pools.iter().map(|pool| {
            let key = if pool.ipv6 { "pool_ipv6" } else { "pool" };
            format!("{key}={:?} gateway={:?}", pool.name, pool.gateway)
        });
        let pools = pools.collect::<Vec<_>>().join(" ");
        let quoted = |text: &Option<String>| match text {
            Some(text) => format!("{text:?}"),
            None => "-".to_owned(),
        };
        let balancer = match &self.settings.balancer {
            Balancer::Id(id) => format!("load_balancer_id={id:?}"),
            Balancer::Search { group, name } => {
                format!("resource_group={} load_balancer={}", quoted(group), quoted(name))
            }
        };
        format!("{pools} {balancer} ingress={ingress}")
    }

    fn belongs_to_other_machine<'a>(&'a self, location: &'a Location) -> Pending<'a, bool> {
        Box::pin(async {
            let identity = self.cloud.identity().await;
            identity.is_ok_and(|identity| identity.vm_id != location.identity.vm_id)
        })
    }

    fn log(&self, location: &Location) {
        let Location { balancer, interface, .. } = location;
        tracing::info!(event = "azure_pool_found", %balancer, %interface, "backend pool found");
    }

    fn name(location: &Location) -> &dyn Display {
        &location.balancer
    }

    fn start(
        &self,
        location: &Location,
        before: Option<Journal<Location, PersistedState>>,
        now: Instant,
    ) -> (Membership, Option<PersistedState>) {
        let persisted = before.map(|before| valid_state(before, location)).unwrap_or_default();
        // A scale set's model owns the interface, but not the pool in which an entry by address is
        // written.
        let managed = location.managed && self.settings.membership == MembershipMode::Nic;
        (Membership::new(self.settings.lifecycle, managed, persisted.clone(), now), Some(persisted))
    }

    fn call(
        &self,
        call: Call,
        location: &Arc<Location>,
        membership: &Membership,
    ) -> impl Future<Output = calls::CallOutput> + Send + 'static {
        let leaving = membership.leaving().is_some();
        self.cloud.set_leaving(leaving);
        calls::perform(calls::CallRequest {
            call,
            cloud: self.cloud.clone(),
            location: Arc::clone(location),
            mode: self.settings.membership,
            appliance_settings: self.appliance_settings.clone(),
            leaving,
            event: membership.event().map(str::to_owned),
        })
    }

    fn observe(
        &self,
        _: &Location,
        (_, details): (&Answer, Option<PoolDetails>),
        report: &mut Report,
    ) -> Vec<Finding> {
        let Some(details) = details else { return Vec::new() };
        report.peers = details.peers;
        report.tcp_idle_s = details.idle.map(|idle| idle.as_secs());
        details.findings
    }

    fn describe(&self, membership: &Membership, location: &Location, report: &mut Report) {
        let ids: Vec<&str> = location.pools.iter().map(|pool| pool.id.as_str()).collect();
        let target = |pool: &Pool| match self.settings.membership {
            MembershipMode::Nic => pool.configuration.to_string(),
            MembershipMode::Ip => pool.address.to_string(),
        };
        let targets: Vec<String> = location.pools.iter().map(target).collect();
        report.instance.clone_from(&location.identity.name);
        report.region.clone_from(&location.identity.location);
        report.zone.clone_from(&location.identity.zone);
        (report.group, report.target) = (ids.join(", "), targets.join(", "));
        report.state = report::state(membership).to_owned();
        let statuses = membership.tunnels().into_iter();
        report.tunnels = statuses.filter_map(|of| report::tunnels(of, location)).collect();
    }

    fn passes_early(&self) -> bool {
        self.settings.lifecycle.preboot == Preboot::Pass
    }

    fn set_preboot_pass(&self, pass: bool) {
        self.appliance.set_preboot_pass(pass);
    }

    /// Returns events with the current time and with the tunnels in force in the data plane.
    fn poll_events(&self, location: &Location, now: Instant) -> Vec<Event> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // In tests, the runner's clock may be ahead of the system's; the wall clock follows it.
        let ahead = now.saturating_duration_since(Instant::now());
        let of = |pool: &Pool| Some((pool.family, self.appliance.tunnels(&pool.gateway)?));
        let in_force = location.pools.iter().filter_map(of).collect();
        vec![Event::Clock((since + ahead).as_secs()), Event::TunnelsInForce(in_force)]
    }

    fn set_tunnels(&self, location: &Location, tunnels: Vec<(Family, Tunnels)>) {
        let of = |(family, tunnels): (Family, Tunnels)| {
            let pool = location.pools.iter().find(|pool| pool.family == family)?;
            Some((pool.gateway.clone(), tunnels))
        };
        let by_gateway: Vec<_> = tunnels.into_iter().filter_map(of).collect();
        self.appliance.set_tunnels(&by_gateway);
    }

    fn unanswered(error: CallError) -> Answer {
        Answer::Pools(Err(error))
    }
}

/// Returns the part of the journal's state that still applies at a location. If the pools have
/// changed but one of them is still configured, only `down` is kept, so that Weir resets
/// `adminState` from `Down` where it has set it.
fn valid_state(
    Journal { location: before, state, .. }: Journal<Location, PersistedState>,
    now: &Location,
) -> PersistedState {
    let Some(state) = state.filter(|_| before.identity.vm_id == now.identity.vm_id) else {
        return PersistedState::default();
    };
    let entries = |location: &Location| {
        let of = |pool: &Pool| (pool.id.clone(), pool.configuration.clone());
        location.pools.iter().map(of).collect::<Vec<_>>()
    };
    let (before, now) = (entries(&before), entries(now));
    if before == now {
        return state;
    }
    let down = state.down && before.iter().any(|entry| now.contains(entry));
    PersistedState { down, ..PersistedState::default() }
}
