//! What became of an object. All of it lies in the store: a round knows nothing else.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use azure::arm::Handle;
use azure::id::ResourceId;
use serde::{Deserialize, Serialize};

use super::fixed::Fixed;
use crate::time::Time;

/// How far it has come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Status {
    /// The generation that this is about.
    pub observed: u64,
    /// One for each aspect.
    pub conditions: Vec<Condition>,
    /// Where things are made; none before anything is.
    pub fixed: Option<Fixed>,
    /// The service's side.
    pub service: ServiceStatus,
    /// The consumers' side.
    pub endpoint: EndpointStatus,
}

/// Of the service's side.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceStatus {
    /// The load balancer, and for which address it was found.
    pub balancer: Option<(ResourceId, IpAddr)>,
    /// The service.
    pub id: Option<ResourceId>,
    /// By what consumers name it; unique for ever.
    pub alias: Option<String>,
    /// A subnet for translated addresses that we made; nothing of one that we were given or found.
    pub made_subnet: Option<ResourceId>,
    /// Its connections, when last looked at.
    pub connections: Vec<Connection>,
    /// The generation for which it was changed last, and when, until it is seen to be so.
    pub changed: Option<(u64, Time)>,
    /// The operation that goes on.
    pub running: Option<Running>,
    /// Azure refused: nothing is asked before that.
    pub held_off: Option<HeldOff>,
}

/// Of the consumers' side.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointStatus {
    /// The endpoint.
    pub id: Option<ResourceId>,
    /// Its address; Azure gives endpoints none of IPv6.
    pub address: Option<Ipv4Addr>,
    /// Zones by their names, those as well that are not wanted any more.
    pub zones: BTreeMap<String, ZoneStatus>,
    /// The operation that goes on.
    pub running: Option<Running>,
    /// Azure refused: nothing is asked before that.
    pub held_off: Option<HeldOff>,
}

/// For how long one side asks nothing, whatever the other does. Another wish ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOff {
    /// The generation that met the refusal.
    pub generation: u64,
    /// Whether it was on the way out.
    pub deleting: bool,
    /// Until then.
    pub until: Time,
}

/// Of a zone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneStatus {
    /// The zone.
    pub id: ResourceId,
    /// Its links to the network that we keep.
    pub links: Vec<ResourceId>,
    /// Names in it that we keep.
    pub records: Vec<String>,
    /// When it was found that the network knows another zone of this name.
    pub elsewhere: Option<Time>,
}

/// An operation that goes on at Azure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Running {
    /// What is polled.
    pub handle: Handle,
    /// What it does.
    pub step: Step,
    /// Since when.
    pub since: Time,
    /// When to look next.
    pub next: Time,
}

/// What an operation does: its failure is told by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Makes the service.
    CreateService,
    /// Changes it.
    UpdateService,
    /// Deletes it.
    DeleteService,
    /// Makes or changes the subnet for translated addresses.
    WriteSubnet,
    /// Makes or changes the endpoint.
    WriteEndpoint,
    /// Deletes it.
    DeleteEndpoint,
    /// Makes or deletes a zone or a link.
    WriteZone,
}

/// A connection of an endpoint to the service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Its name, by which it is approved or rejected.
    pub name: String,
    /// The endpoint's id, where Azure tells it.
    pub endpoint: String,
    /// `Pending`, `Approved`, `Rejected`, `Disconnected`.
    pub state: String,
    /// Why it is so, or what who asks says.
    pub description: String,
}

impl Connection {
    /// The subscription of its endpoint, in small letters; empty where Azure doesn't tell it.
    pub fn subscription(&self) -> String {
        let parsed = ResourceId::parse(&self.endpoint);
        parsed.map(|id| id.subscription().to_ascii_lowercase()).unwrap_or_default()
    }
}

/// One aspect of how far it has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which.
    #[serde(rename = "type")]
    pub aspect: Aspect,
    /// Whether it is so.
    pub status: Truth,
    /// One word for machines.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
    /// Since when `status` is what it is.
    pub since: Time,
}

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Truth {
    /// It does.
    True,
    /// It doesn't.
    False,
}

/// All aspects, by the names that Kubernetes' users know and three of our own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Aspect {
    /// All that is wanted works.
    #[serde(rename = "AzurePrivateLinkServiceAvailable")]
    Available,
    /// The load balancer was found.
    #[serde(rename = "AzureInternalLoadBalancerAvailable")]
    Balancer,
    /// The service is as it is wanted.
    #[serde(rename = "AzurePLSCreated")]
    Service,
    /// The endpoint is there, approved, and has its address.
    #[serde(rename = "AzurePrivateEndpointAvailable")]
    Endpoint,
    /// Its names lead to it.
    #[serde(rename = "AzurePrivateDNSAvailable")]
    Names,
    /// Somebody has to approve or reject connections.
    ConnectionsWaiting,
    /// Nothing is made or changed for now.
    Paused,
    /// Another appliance looks after it.
    Observed,
}

/// Why a condition is as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Reason {
    /// It is as it should be.
    AzureSuccess,
    /// Azure refused, or somebody undid it.
    AzureError,
    /// The load balancers could not be read.
    #[serde(rename = "ILBLookupFailed")]
    BalancerLookupFailed,
    /// There is no subnet for translated addresses.
    #[serde(rename = "NATSubnetCreationFailed")]
    SubnetFailed,
    /// The service could not be made.
    #[serde(rename = "PLSCreationFailed")]
    CreationFailed,
    /// It could not be changed.
    #[serde(rename = "PLSUpdateFailed")]
    UpdateFailed,
    /// Its owner has not approved the endpoint's connection.
    #[serde(rename = "PrivateEndpointConnectionNotApproved")]
    NotApproved,
    /// Nobody has told the load balancer's address yet.
    WaitingForAddress,
    /// No load balancer has that address yet.
    BalancerNotFound,
    /// The service leads to another frontend than that of the load balancer's address.
    FrontendDiffers,
    /// Azure is at work.
    UnderWay,
    /// The service has no alias yet.
    WaitingForAlias,
    /// The network knows another zone of that name.
    LinkedElsewhere,
    /// A subnet that is not ours has its private-link policies on.
    SubnetPoliciesEnabled,
    /// Something of that name is there that we did not make.
    NotOurs,
    /// What is wanted can't be.
    Invalid,
    /// It is being taken back.
    Deleting,
    /// Connections wait for a decision.
    Pending,
    /// The object says so.
    Paused,
    /// Another appliance is its owner.
    OtherOwner,
}

impl Aspect {
    /// As objects and Kubernetes write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Aspect::Available => "AzurePrivateLinkServiceAvailable",
            Aspect::Balancer => "AzureInternalLoadBalancerAvailable",
            Aspect::Service => "AzurePLSCreated",
            Aspect::Endpoint => "AzurePrivateEndpointAvailable",
            Aspect::Names => "AzurePrivateDNSAvailable",
            Aspect::ConnectionsWaiting => "ConnectionsWaiting",
            Aspect::Paused => "Paused",
            Aspect::Observed => "Observed",
        }
    }
}

impl Reason {
    /// As objects and Kubernetes write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::AzureSuccess => "AzureSuccess",
            Reason::AzureError => "AzureError",
            Reason::BalancerLookupFailed => "ILBLookupFailed",
            Reason::SubnetFailed => "NATSubnetCreationFailed",
            Reason::CreationFailed => "PLSCreationFailed",
            Reason::UpdateFailed => "PLSUpdateFailed",
            Reason::NotApproved => "PrivateEndpointConnectionNotApproved",
            Reason::WaitingForAddress => "WaitingForAddress",
            Reason::BalancerNotFound => "BalancerNotFound",
            Reason::FrontendDiffers => "FrontendDiffers",
            Reason::UnderWay => "UnderWay",
            Reason::WaitingForAlias => "WaitingForAlias",
            Reason::LinkedElsewhere => "LinkedElsewhere",
            Reason::SubnetPoliciesEnabled => "SubnetPoliciesEnabled",
            Reason::NotOurs => "NotOurs",
            Reason::Invalid => "Invalid",
            Reason::Deleting => "Deleting",
            Reason::Pending => "Pending",
            Reason::Paused => "Paused",
            Reason::OtherOwner => "OtherOwner",
        }
    }
}

impl Status {
    /// The condition of an aspect.
    pub fn condition(&self, aspect: Aspect) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.aspect == aspect)
    }

    /// Whether an aspect is told to be so.
    pub fn is(&self, aspect: Aspect) -> bool {
        self.condition(aspect).is_some_and(|condition| condition.status == Truth::True)
    }

    /// Tells an aspect. `since` stays while its status does.
    pub fn tell(&mut self, now: Time, aspect: Aspect, (holds, reason): (bool, Reason), why: &str) {
        let status = if holds { Truth::True } else { Truth::False };
        let before = self.condition(aspect).filter(|before| before.status == status);
        let since = before.map_or(now, |before| before.since);
        let condition = Condition { aspect, status, reason, message: why.to_owned(), since };
        match self.conditions.iter_mut().find(|condition| condition.aspect == aspect) {
            Some(there) => *there = condition,
            None => self.conditions.push(condition),
        }
        self.conditions.sort_by_key(|condition| condition.aspect);
    }

    /// An aspect means nothing any more.
    pub fn untell(&mut self, aspect: Aspect) {
        self.conditions.retain(|condition| condition.aspect != aspect);
    }
}
