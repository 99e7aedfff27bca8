//! Collects the observations for [`judge`](super::judge), by reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clouds::appliance::Ingress;
use clouds::failure::{Operation, Setback};
use clouds::report::Report;
use clouds::retry::Policy;
use serde_json::Value;

use super::grant::Grant;
use super::wants::Wants;
use crate::arm::{Arm, Ask, Begun, Call, Handle, Progress, Resource};
use crate::balancer;
use crate::id::ResourceId;
use crate::names;
use crate::place::{Nic, Place, PlaceError, interfaces, own, the_balancer};
use crate::runner::Cloud;
use crate::told::{CallError, Family, Identity, Tunnels};

/// Time limit for scheduled events; enabling the service can take two minutes, which is too long
/// here.
const EVENTS: Duration = Duration::from_secs(5);

/// Result for each permission that was tried.
pub type Tried = BTreeMap<&'static str, Result<(), CallError>>;

/// Observations for the checks.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Identity of this machine.
    pub identity: Result<Identity, CallError>,
    /// Why Resource Manager cannot be used, if so.
    pub arm: Option<CallError>,
    /// Permissions that were tried, with the results.
    pub tried: Tried,
    /// Permissions that the machine's roles grant at the resource groups, if they can be read.
    pub grants: Option<Vec<Grant>>,
    /// Network interface of the ingress port, or why there is none.
    pub nic: Result<Nic, String>,
    /// The machine's place, or why there is none.
    pub place: Result<Place, String>,
    /// Body of the load balancer.
    pub balancer: Option<Value>,
    /// Security groups of the interface and of its subnet.
    pub security: Vec<Value>,
    /// Tunnels as reported by the metadata service.
    pub tunnels: Result<Vec<(Family, Tunnels)>, CallError>,
    /// Number of scheduled events that affect this machine.
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

impl Seen {
    /// Returns observations without any from Azure.
    pub fn new(slowpath: Result<Report, String>) -> Seen {
        let unasked = || Operation::new("", "Nothing").late(Duration::ZERO).error;
        let no = || Err("Azure was not asked".to_owned());
        Seen {
            identity: Err(unasked()),
            arm: None,
            tried: Tried::new(),
            grants: None,
            nic: Err("Azure was not asked".to_owned()),
            place: no(),
            balancer: None,
            security: Vec::new(),
            tunnels: Err(unasked()),
            events: None,
            mac: None,
            kernel_mtu: None,
            timestamps: None,
            slowpath,
        }
    }
}

/// Performs all queries. Local observations ([`Seen::mac`] and so on) are set by the caller.
pub async fn ask(cloud: &Cloud, patience: Policy, wants: &Wants, seen: &mut Seen) {
    let metadata = cloud.metadata().with_policy(patience);
    seen.identity = metadata.instance().await;
    let Ok(identity) = seen.identity.clone() else { return };
    seen.tunnels = metadata.tunnels().await;
    if wants.settings.life.events {
        let told = tokio::time::timeout(EVENTS, metadata.events(&identity.name)).await;
        let late = |_| Err(Operation::new("imds", "ScheduledEvents").late(EVENTS).error);
        seen.events = Some(told.unwrap_or_else(late).map(|events| events.len()));
    }
    let client = match cloud.arm(&identity.environment) {
        Ok(client) => client.with_policy(patience),
        Err(error) => {
            seen.arm = Some(error);
            return;
        }
    };
    let noting = Noting { arm: &client, tried: std::sync::Mutex::default() };
    of_place(&noting, wants, &identity, seen).await;
    seen.tried = noting.tried.into_inner().unwrap_or_default();
    let groups = groups(&identity, seen);
    seen.grants = grants(&client, &groups).await;
    security(&client, seen).await;
}

async fn of_place(arm: &dyn Arm, wants: &Wants, identity: &Identity, seen: &mut Seen) {
    let ingress = ingress(wants, identity, seen.mac);
    let all = interfaces(arm, identity).await;
    let nic = all.and_then(|all| own(&all, &ingress).cloned());
    let told = the_balancer(arm, &wants.settings, identity).await;
    let place = match (&nic, &told) {
        (Ok(nic), Ok(told)) => Place::of(&wants.settings, identity.clone(), &ingress, nic, told),
        (Err(error), _) | (_, Err(error)) => Err(error.clone()),
    };
    // The list contains them all; reading a single one needs another permission.
    if let Ok(place) = &place {
        let _ = arm.get(&crate::asks::balancer(&place.balancer)).await;
        for pool in &place.pools {
            let _ = arm.get(&crate::asks::pool(&pool.id)).await;
        }
    }
    let words = |error: PlaceError| error.to_string();
    (seen.nic, seen.place, seen.balancer) = (nic.map_err(words), place.map_err(words), told.ok());
}

/// Returns the ingress port, determined by its MAC address, or by its configured address if the
/// port does not exist yet.
fn ingress(wants: &Wants, identity: &Identity, mac: Option<[u8; 6]>) -> Ingress {
    let has = |i: &&crate::told::Interface| {
        wants.addresses.iter().any(|address| i.addresses.contains(address))
    };
    let by_address = || identity.interfaces.iter().find(has).map(|interface| interface.mac);
    let mac = mac.or_else(by_address).unwrap_or_default();
    Ingress { mac, addresses: wants.addresses.clone() }
}

/// Returns the resource groups in which permissions are needed.
fn groups(identity: &Identity, seen: &Seen) -> BTreeSet<String> {
    let own = format!(
        "/subscriptions/{}/resourceGroups/{}",
        identity.subscription, identity.resource_group
    );
    let of = |id: &ResourceId| {
        format!("/subscriptions/{}/resourceGroups/{}", id.subscription(), id.group())
    };
    let place = seen.place.as_ref().ok();
    let others = place.into_iter().flat_map(|place| [of(&place.balancer), of(&place.interface)]);
    [own].into_iter().chain(others).map(|group| group.to_ascii_lowercase()).collect()
}

async fn grants(arm: &dyn Arm, groups: &BTreeSet<String>) -> Option<Vec<Grant>> {
    let mut grants = Vec::new();
    for group in groups {
        let path = format!("{group}/providers/Microsoft.Authorization/permissions");
        let told = arm.list(&names::PERMISSIONS_LIST.at(path)).await.ok()?;
        grants.extend(told.iter().map(Grant::read));
    }
    Some(grants)
}

/// Reads the security groups of the interface and of its subnet, if permitted.
async fn security(arm: &dyn Arm, seen: &mut Seen) {
    let Ok(nic) = &seen.nic else { return };
    let mut ids: Vec<ResourceId> = Vec::new();
    ids.extend(balancer::id(&nic.body, "/properties/networkSecurityGroup/id"));
    let part = balancer::list(&nic.body, "/properties/ipConfigurations").first();
    let subnet = part.and_then(|part| balancer::id(part, "/properties/subnet/id"));
    if let Some(subnet) = subnet
        && let Ok(told) = arm.get(&names::SUBNETS_GET.at(&subnet)).await
    {
        ids.extend(balancer::id(&told.body, "/properties/networkSecurityGroup/id"));
    }
    for id in ids {
        if let Ok(told) = arm.get(&names::SECURITY_GROUPS_GET.at(&id)).await {
            seen.security.push(told.body);
        }
    }
}

/// Records the result for each permission; an error takes precedence over earlier successes.
struct Noting<'a> {
    arm: &'a dyn Arm,
    tried: std::sync::Mutex<Tried>,
}

impl Noting<'_> {
    fn note<T>(&self, ask: &Ask, told: &Result<T, Setback>) {
        let Ok(mut tried) = self.tried.lock() else { return };
        let outcome = told.as_ref().map(drop).map_err(|setback| setback.error.clone());
        let entry = tried.entry(ask.operation.service).or_insert(Ok(()));
        if entry.is_ok() {
            *entry = outcome;
        }
    }
}

impl Arm for Noting<'_> {
    fn get<'a>(&'a self, ask: &'a Ask) -> Call<'a, Resource> {
        Box::pin(async move {
            let told = self.arm.get(ask).await;
            self.note(ask, &told);
            told
        })
    }

    fn list<'a>(&'a self, ask: &'a Ask) -> Call<'a, Vec<Value>> {
        Box::pin(async move {
            let told = self.arm.list(ask).await;
            self.note(ask, &told);
            told
        })
    }

    fn put<'a>(&'a self, ask: &'a Ask, body: &'a Value, etag: Option<&'a str>) -> Call<'a, Begun> {
        self.arm.put(ask, body, etag)
    }

    fn delete<'a>(&'a self, ask: &'a Ask) -> Call<'a, Begun> {
        self.arm.delete(ask)
    }

    fn poll<'a>(&'a self, handle: &'a Handle) -> Call<'a, Progress> {
        self.arm.poll(handle)
    }
}
