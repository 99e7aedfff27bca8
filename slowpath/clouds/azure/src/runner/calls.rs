//! Performs the lifecycle's calls with requests to Resource Manager and to the metadata service.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use clouds::report::{Finding, Peer};
use clouds::retry::Policy;
use config::checked::MembershipMode;
use serde_json::Value;

use super::cloud::Cloud;
use crate::advice::{ApplianceSettings, advise};
use crate::arm::Arm;
use crate::balancer::{self, Entry, entries};
use crate::location::Location;
use crate::membership::{AdminState, Answer, Call};
use crate::pool_entries::{
    CONFLICT_POLICY, DRAIN_POLICY, PoolEntries, display_name, find_pool, pool_states,
};
use crate::requests;
use crate::types::{CallError, Failure};

/// Maximum number of IP configurations of a pool whose addresses are read in one membership query;
/// the next query reads further ones.
const MAX_ADDRESS_READS: usize = 20;

/// A call with its arguments.
pub(super) struct CallRequest {
    pub(super) call: Call,
    pub(super) cloud: Cloud,
    pub(super) location: Arc<Location>,
    pub(super) mode: MembershipMode,
    pub(super) appliance_settings: ApplianceSettings,
    /// The machine is leaving: only one attempt is made, because the lifecycle repeats the call and
    /// time is short.
    pub(super) leaving: bool,
    /// Id of the scheduled event to acknowledge.
    pub(super) event: Option<String>,
}

/// What a membership query returns for the report, besides this machine's entries.
#[derive(Clone, Debug, Default)]
pub struct PoolDetails {
    pub(super) peers: Vec<Peer>,
    pub(super) findings: Vec<Finding>,
    /// Idle timeout of TCP flows, the shortest of all rules.
    pub(super) idle: Option<Duration>,
}

/// An answer, and the additional results of a membership query.
pub(super) type CallOutput = (Answer, Option<PoolDetails>);

/// Performs a call.
pub(super) async fn perform(request: CallRequest) -> CallOutput {
    let CallRequest { call, cloud, location, event, .. } = &request;
    let answer = match call {
        Call::ReadTunnels => Answer::Tunnels(cloud.metadata().tunnels().await),
        Call::ReadEvents => Answer::Events(cloud.metadata().events(&location.identity.name).await),
        Call::Acknowledge => Answer::Acknowledged(acknowledge(cloud, event.as_deref()).await),
        Call::ReadPools | Call::Join | Call::Down | Call::Up | Call::Leave => {
            return perform_pool_call(&request).await;
        }
    };
    (answer, None)
}

/// Acknowledges an event. An error that means that the event no longer exists counts as success.
async fn acknowledge(cloud: &Cloud, event: Option<&str>) -> Result<(), CallError> {
    let Some(event) = event else { return Ok(()) };
    match cloud.metadata().acknowledge(event).await {
        Err(error) if matches!(error.kind, Failure::Absent | Failure::Invalid) => Ok(()),
        result => result,
    }
}

async fn perform_pool_call(request: &CallRequest) -> CallOutput {
    let CallRequest { call, cloud, location, mode, leaving, .. } = request;
    let arm = match cloud.arm(&location.identity.environment) {
        Ok(arm) if *leaving => arm.with_policy(Policy::ONCE),
        Ok(arm) => arm.clone(),
        Err(error) => return (Answer::failed(*call, error), None),
    };
    let pause = cloud.pause(*leaving);
    let pool_entries = PoolEntries {
        arm: &arm,
        location,
        mode: *mode,
        pause: pause.as_ref(),
        policy: if *leaving { DRAIN_POLICY } else { CONFLICT_POLICY },
        seed: cloud.seed(),
    };
    let answer = match call {
        Call::Join => Answer::Joined(pool_entries.join().await),
        Call::Down => Answer::Down(pool_entries.set_down(true).await),
        Call::Up => Answer::Up(pool_entries.set_down(false).await),
        Call::Leave => Answer::Left(pool_entries.leave().await),
        _ => match pool_entries.read_balancer().await {
            Ok(balancer) => {
                let details = pool_details(request, &arm, &balancer).await;
                return (Answer::Pools(Ok(pool_states(location, &balancer))), Some(details));
            }
            Err(error) => Answer::Pools(Err(error)),
        },
    };
    (answer, None)
}

/// Collects findings, peers and idle timeout from the load balancer's body. Addresses that are not
/// in the body are taken from the cache; those that are not cached are read.
async fn pool_details(request: &CallRequest, arm: &dyn Arm, balancer: &Value) -> PoolDetails {
    let CallRequest { cloud, location, appliance_settings, .. } = request;
    let mut details = PoolDetails {
        findings: advise(location, balancer, appliance_settings),
        ..PoolDetails::default()
    };
    let mut members = HashSet::new();
    for pool in &location.pools {
        let rules = balancer::rules(balancer, &pool.id);
        details.idle = rules.iter().map(|rule| rule.idle).chain(details.idle).min();
        let Ok(document) = find_pool(balancer, pool) else { continue };
        let entries = entries(document);
        members.extend(entries.iter().filter_map(|entry| entry.configuration.clone()));
        read_addresses(cloud, arm, &entries).await;
        details.peers.extend(entries.iter().map(|entry| Peer {
            id: display_name(entry),
            address: entry.address.or_else(|| cloud.cached_address(entry.configuration.as_ref()?)),
            state: state(entry.admin).to_owned(),
            zone: String::new(),
        }));
    }
    cloud.retain_addresses(&members);
    details
}

/// Reads the addresses of IP configurations that are not cached yet. The first temporary error ends
/// the reading; an address that cannot be read is cached as `None`, so that it is not read again.
async fn read_addresses(cloud: &Cloud, arm: &dyn Arm, entries: &[Entry]) {
    let unknown = entries.iter().filter(|entry| entry.address.is_none());
    let unknown = unknown.filter_map(|entry| entry.configuration.as_ref());
    let unknown: Vec<_> =
        unknown.filter(|id| !cloud.is_address_cached(id)).take(MAX_ADDRESS_READS).collect();
    for configuration in unknown {
        let Some(nic) = configuration.parent() else { continue };
        let response = arm.get(&requests::interface(&nic)).await;
        if response.as_ref().is_err_and(|failed| failed.error.kind.is_temporary()) {
            return;
        }
        let body = response.map(|resource| resource.body).unwrap_or_default();
        for part in balancer::list(&body, "/properties/ipConfigurations") {
            if let Some(id) = balancer::id(part, "/id") {
                let text = balancer::text(part, "/properties/privateIPAddress");
                let address = text.split('/').next().unwrap_or_default();
                cloud.cache_address(id, address.parse().ok());
            }
        }
        // The interface has no such IP configuration, or the role does not permit the read.
        if !cloud.is_address_cached(configuration) {
            cloud.cache_address(configuration.clone(), None);
        }
    }
}

fn state(admin: AdminState) -> &'static str {
    match admin {
        AdminState::None => "member",
        AdminState::Up => "up",
        AdminState::Down => "down",
    }
}
