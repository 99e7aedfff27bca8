//! Finds out what doctor judges: reads, and nothing else.

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

/// Nobody waits two minutes for the first answer about scheduled events.
const EVENTS: Duration = Duration::from_secs(5);

/// What came of each permission that was tried.
pub type Tried = BTreeMap<&'static str, Result<(), CallError>>;

/// What was found out.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who this is.
    pub identity: Result<Identity, CallError>,
    /// Why nothing can be asked of Resource Manager, if it can't.
    pub arm: Option<CallError>,
    /// Permissions, and what came of them.
    pub tried: Tried,
    /// What the machine's roles at the resource groups give, where that may be read.
    pub grants: Option<Vec<Grant>>,
    /// The ingress port's interface, or why there is none.
    pub nic: Result<Nic, String>,
    /// Our place, or why there is none.
    pub place: Result<Place, String>,
    /// The load balancer.
    pub balancer: Option<Value>,
    /// Security groups of the interface and of its subnet.
    pub security: Vec<Value>,
    /// What the metadata service tells of tunnels.
    pub tunnels: Result<Vec<(Family, Tunnels)>, CallError>,
    /// How many scheduled events concern this machine.
    pub events: Option<Result<usize, CallError>>,
    /// Of the ingress port; none before it is there.
    pub mac: Option<[u8; 6]>,
    /// The ingress arm's kernel interface and its MTU, where it is there.
    pub kernel_mtu: Option<(String, u32)>,
    /// Whether the kernel wants TCP timestamps, where it says.
    pub timestamps: Option<bool>,
    /// What slowpath says, or why nothing.
    pub slowpath: Result<Report, String>,
}

impl Seen {
    /// Before anything is asked of Azure.
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

/// Asks all that there is to ask. What the machine itself says ([`Seen::mac`] and so on) is there
/// already.
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
    // Listed they are all there; that one alone may be asked for is another matter.
    if let Ok(place) = &place {
        let _ = arm.get(&crate::asks::balancer(&place.balancer)).await;
        for pool in &place.pools {
            let _ = arm.get(&crate::asks::pool(&pool.id)).await;
        }
    }
    let words = |error: PlaceError| error.to_string();
    (seen.nic, seen.place, seen.balancer) = (nic.map_err(words), place.map_err(words), told.ok());
}

/// The ingress port by its MAC, and before it is there by the address that it is to have.
fn ingress(wants: &Wants, identity: &Identity, mac: Option<[u8; 6]>) -> Ingress {
    let has = |i: &&crate::told::Interface| {
        wants.addresses.iter().any(|address| i.addresses.contains(address))
    };
    let by_address = || identity.interfaces.iter().find(has).map(|interface| interface.mac);
    let mac = mac.or_else(by_address).unwrap_or_default();
    Ingress { mac, addresses: wants.addresses.clone() }
}

/// Resource groups where we need to be allowed something.
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

/// The groups of the interface and of its subnet, where they may be read.
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

/// Remembers what came of each permission; one refusal counts more than what was permitted.
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
