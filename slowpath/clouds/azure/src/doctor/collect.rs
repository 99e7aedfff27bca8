//! Collects the observations for [`evaluate`](super::evaluate), by reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clouds::appliance::Ingress;
use clouds::failure::{AttemptError, Operation};
use clouds::report::Report;
use clouds::retry::Policy;
use serde_json::Value;

use super::check_config::CheckConfig;
use super::grant::Grant;
use crate::arm::{Arm, ArmFuture, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use crate::balancer;
use crate::id::ResourceId;
use crate::location::{
    Location, LocationError, Nic, find_balancer, find_ingress_nic, read_interfaces,
};
use crate::operations;
use crate::runner::Cloud;
use crate::types::{CallError, Family, Identity, Tunnels};

/// Time limit for scheduled events. The first request enables the service, which can take two
/// minutes; the operator should not have to wait for that.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Result for each permission that was tried, by the permission's name.
pub type PermissionResults = BTreeMap<&'static str, Result<(), CallError>>;

/// Observations for the checks.
#[derive(Clone, Debug)]
pub struct Observations {
    /// Identity of this machine.
    pub identity: Result<Identity, CallError>,
    /// Why Resource Manager cannot be used, if so.
    pub arm: Option<CallError>,
    /// Permissions that were tried, with the results.
    pub results: PermissionResults,
    /// Permissions that the machine's roles grant at the resource groups, if they can be read.
    pub grants: Option<Vec<Grant>>,
    /// Network interface of the ingress port, or why there is none.
    pub nic: Result<Nic, String>,
    /// The machine's location, or why there is none.
    pub location: Result<Location, String>,
    /// Body of the load balancer.
    pub balancer: Option<Value>,
    /// Security groups of the interface and of its subnet.
    pub security: Vec<Value>,
    /// Tunnels as reported by the metadata service.
    pub tunnels: Result<Vec<(Family, Tunnels)>, CallError>,
    /// Number of scheduled events that affect this machine; `None` if they were not queried.
    pub events: Option<Result<usize, CallError>>,
    /// MAC address of the ingress port; `None` until the port exists.
    pub mac: Option<[u8; 6]>,
    /// Kernel interface of the ingress port and its MTU, if it exists.
    pub kernel_mtu: Option<(String, u32)>,
    /// Whether TCP timestamps are enabled in the kernel, if known.
    pub timestamps: Option<bool>,
    /// Report of slowpath, or why it did not answer.
    pub slowpath: Result<Report, String>,
}

impl Observations {
    /// Returns observations before Azure is queried.
    pub fn new(slowpath: Result<Report, String>) -> Observations {
        let not_queried = || Operation::new("", "Request").timed_out(Duration::ZERO).error;
        let no = || Err("Azure was not queried".to_owned());
        Observations {
            identity: Err(not_queried()),
            arm: None,
            results: PermissionResults::new(),
            grants: None,
            nic: Err("Azure was not queried".to_owned()),
            location: no(),
            balancer: None,
            security: Vec::new(),
            tunnels: Err(not_queried()),
            events: None,
            mac: None,
            kernel_mtu: None,
            timestamps: None,
            slowpath,
        }
    }
}

/// Queries the metadata service and Resource Manager, and adds the results to `observed`. The
/// caller sets the local observations ([`Observations::mac`] and so on) before.
pub async fn collect(
    cloud: &Cloud,
    policy: Policy,
    check_config: &CheckConfig,
    observed: &mut Observations,
) {
    let metadata = cloud.metadata().with_policy(policy);
    observed.identity = metadata.instance().await;
    let Ok(identity) = observed.identity.clone() else { return };
    observed.tunnels = metadata.tunnels().await;
    if check_config.settings.lifecycle.events {
        let response = tokio::time::timeout(EVENTS_TIMEOUT, metadata.events(&identity.name)).await;
        let timeout =
            |_| Err(Operation::new("imds", "ScheduledEvents").timed_out(EVENTS_TIMEOUT).error);
        observed.events = Some(response.unwrap_or_else(timeout).map(|events| events.len()));
    }
    let client = match cloud.arm(&identity.environment) {
        Ok(client) => client.with_policy(policy),
        Err(error) => {
            observed.arm = Some(error);
            return;
        }
    };
    let recording = RecordingArm { arm: &client, results: std::sync::Mutex::default() };
    collect_location(&recording, check_config, &identity, observed).await;
    observed.results = recording.results.into_inner().unwrap_or_default();
    let groups = groups(&identity, observed);
    observed.grants = read_grants(&client, &groups).await;
    read_security_groups(&client, observed).await;
}

async fn collect_location(
    arm: &dyn Arm,
    check_config: &CheckConfig,
    identity: &Identity,
    observed: &mut Observations,
) {
    let ingress = ingress(check_config, identity, observed.mac);
    let all = read_interfaces(arm, identity).await;
    let nic = all.and_then(|all| find_ingress_nic(&all, &ingress).cloned());
    let balancer = find_balancer(arm, &check_config.settings, identity).await;
    let location = match (&nic, &balancer) {
        (Ok(nic), Ok(balancer)) => Location::from_resources(
            &check_config.settings,
            identity.clone(),
            &ingress,
            nic,
            balancer,
        ),
        (Err(error), _) | (_, Err(error)) => Err(error.clone()),
    };
    // Load balancer and pools are already known. They are read again only to test the permissions
    // for these reads, which slowpath needs later.
    if let Ok(location) = &location {
        let _ = arm.get(&crate::requests::balancer(&location.balancer)).await;
        for pool in &location.pools {
            let _ = arm.get(&crate::requests::pool(&pool.id)).await;
        }
    }
    let message = |error: LocationError| error.to_string();
    (observed.nic, observed.location, observed.balancer) =
        (nic.map_err(message), location.map_err(message), balancer.ok());
}

/// Returns the ingress port, determined by its MAC address, or by its configured address if the
/// port does not exist yet.
fn ingress(check_config: &CheckConfig, identity: &Identity, mac: Option<[u8; 6]>) -> Ingress {
    let has = |i: &&crate::types::Interface| {
        check_config.addresses.iter().any(|address| i.addresses.contains(address))
    };
    let by_address = || identity.interfaces.iter().find(has).map(|interface| interface.mac);
    let mac = mac.or_else(by_address).unwrap_or_default();
    Ingress { mac, addresses: check_config.addresses.clone() }
}

/// Returns the resource groups in which permissions are needed.
fn groups(identity: &Identity, observed: &Observations) -> BTreeSet<String> {
    let own = format!(
        "/subscriptions/{}/resourceGroups/{}",
        identity.subscription, identity.resource_group
    );
    let of = |id: &ResourceId| {
        format!("/subscriptions/{}/resourceGroups/{}", id.subscription(), id.group())
    };
    let location = observed.location.as_ref().ok();
    let others =
        location.into_iter().flat_map(|location| [of(&location.balancer), of(&location.interface)]);
    [own].into_iter().chain(others).map(|group| group.to_ascii_lowercase()).collect()
}

/// Reads the grants at the resource groups; `None` if those of one group cannot be read.
async fn read_grants(arm: &dyn Arm, groups: &BTreeSet<String>) -> Option<Vec<Grant>> {
    let mut grants = Vec::new();
    for group in groups {
        let path = format!("{group}/providers/Microsoft.Authorization/permissions");
        let response = arm.list(&operations::PERMISSIONS_LIST.at(path)).await.ok()?;
        grants.extend(response.iter().map(Grant::read));
    }
    Some(grants)
}

/// Reads the security groups of the interface and of its subnet, if permitted.
async fn read_security_groups(arm: &dyn Arm, observed: &mut Observations) {
    let Ok(nic) = &observed.nic else { return };
    let mut ids: Vec<ResourceId> = Vec::new();
    ids.extend(balancer::id(&nic.body, "/properties/networkSecurityGroup/id"));
    let part = balancer::list(&nic.body, "/properties/ipConfigurations").first();
    let subnet = part.and_then(|part| balancer::id(part, "/properties/subnet/id"));
    if let Some(subnet) = subnet
        && let Ok(response) = arm.get(&operations::SUBNETS_GET.at(&subnet)).await
    {
        ids.extend(balancer::id(&response.body, "/properties/networkSecurityGroup/id"));
    }
    for id in ids {
        if let Ok(response) = arm.get(&operations::SECURITY_GROUPS_GET.at(&id)).await {
            observed.security.push(response.body);
        }
    }
}

/// A client that records the results of reads by permission: the first error, or success if there
/// is none.
struct RecordingArm<'a> {
    arm: &'a dyn Arm,
    results: std::sync::Mutex<PermissionResults>,
}

impl RecordingArm<'_> {
    fn record<T>(&self, request: &ArmRequest, response: &Result<T, AttemptError>) {
        let Ok(mut results) = self.results.lock() else { return };
        let outcome = response.as_ref().map(drop).map_err(|failed| failed.error.clone());
        let entry = results.entry(request.operation.service).or_insert(Ok(()));
        if entry.is_ok() {
            *entry = outcome;
        }
    }
}

impl Arm for RecordingArm<'_> {
    fn get<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Resource> {
        Box::pin(async move {
            let response = self.arm.get(request).await;
            self.record(request, &response);
            response
        })
    }

    fn list<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let response = self.arm.list(request).await;
            self.record(request, &response);
            response
        })
    }

    fn put<'a>(
        &'a self,
        request: &'a ArmRequest,
        body: &'a Value,
        etag: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome> {
        self.arm.put(request, body, etag)
    }

    fn delete<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome> {
        self.arm.delete(request)
    }

    fn poll<'a>(&'a self, handle: &'a OperationHandle) -> ArmFuture<'a, Progress> {
        self.arm.poll(handle)
    }
}
