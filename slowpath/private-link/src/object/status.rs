//! Status of an object. All of it is stored: rounds keep no other state.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use azure::arm::OperationHandle;
use azure::id::ResourceId;
use serde::{Deserialize, Serialize};

use super::immutable::ImmutableSpec;
use crate::time::Time;

/// Status of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Status {
    /// The generation that this status describes.
    pub observed: u64,
    /// Conditions, one for each aspect.
    pub conditions: Vec<Condition>,
    /// Immutable parts of the desired state; stored before any resource is created. In JSON the
    /// field is called `fixed`.
    #[serde(rename = "fixed")]
    pub immutable: Option<ImmutableSpec>,
    /// Status of the service side.
    pub service: ServiceStatus,
    /// Status of the consumer side.
    pub endpoint: EndpointStatus,
}

/// Status of the service side.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceStatus {
    /// The load balancer, and the address by which it was found.
    pub balancer: Option<(ResourceId, IpAddr)>,
    /// Id of the private link service.
    pub id: Option<ResourceId>,
    /// Globally unique alias by which consumers refer to the service.
    pub alias: Option<String>,
    /// Id of the NAT subnet, if Azure accepted its creation by Weir; `None` for one that was
    /// configured or found.
    pub made_subnet: Option<ResourceId>,
    /// Endpoint connections, as last read.
    pub connections: Vec<Connection>,
    /// Generation and time of the last update of the service that Azure accepted; `None` once the
    /// service is as desired.
    pub changed: Option<(u64, Time)>,
    /// Long operation in progress.
    pub running: Option<RunningOperation>,
    /// Delay after an error of Azure. Earlier builds stored it as `held_off`.
    #[serde(alias = "held_off")]
    pub backoff: Option<Backoff>,
}

/// Status of the consumer side.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EndpointStatus {
    /// Id of the private endpoint.
    pub id: Option<ResourceId>,
    /// Address of the endpoint; Azure assigns no IPv6 addresses to endpoints.
    pub address: Option<Ipv4Addr>,
    /// Private DNS zones by name in lower case, including those that are no longer desired and not
    /// removed yet.
    pub zones: BTreeMap<String, ZoneStatus>,
    /// Long operation in progress.
    pub running: Option<RunningOperation>,
    /// Delay after an error of Azure. Earlier builds stored it as `held_off`.
    #[serde(alias = "held_off")]
    pub backoff: Option<Backoff>,
}

/// A delay during which one side makes no calls, independently of the other. A change of the
/// desired state ends the delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// Generation for which the error occurred.
    pub generation: u64,
    /// True if the object was being deleted.
    pub deleting: bool,
    /// End of the delay.
    pub until: Time,
}

/// Status of a private DNS zone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneStatus {
    /// Id of the zone.
    pub id: ResourceId,
    /// Virtual network links managed by Weir.
    pub links: Vec<ResourceId>,
    /// Record names in the zone managed by Weir.
    pub records: Vec<String>,
    /// When the network was found to be linked to another zone of this name.
    pub elsewhere: Option<Time>,
}

/// A long operation in progress at Azure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningOperation {
    /// Handle to poll.
    pub handle: OperationHandle,
    /// Kind of the operation.
    pub step: Step,
    /// Start of the operation.
    pub since: Time,
    /// Time of the next poll.
    pub next: Time,
}

/// Kind of a long operation, which determines how a failure is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Creates the service.
    CreateService,
    /// Updates the service.
    UpdateService,
    /// Deletes the service.
    DeleteService,
    /// Creates or updates the NAT subnet.
    WriteSubnet,
    /// Creates or updates the endpoint.
    WriteEndpoint,
    /// Deletes the endpoint.
    DeleteEndpoint,
    /// Creates or deletes a zone or a link.
    WriteZone,
}

/// A connection of an endpoint to the service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Name of the connection, by which it is approved or rejected.
    pub name: String,
    /// Id of the endpoint; empty if Azure does not report it.
    pub endpoint: String,
    /// State: `Pending`, `Approved`, `Rejected` or `Disconnected`.
    pub state: String,
    /// Reason for the state, or the request message of the consumer.
    pub description: String,
}

impl Connection {
    /// Returns the subscription of the endpoint in lower case; empty if Azure does not report it.
    pub fn subscription(&self) -> String {
        let parsed = ResourceId::parse(&self.endpoint);
        parsed.map(|id| id.subscription().to_ascii_lowercase()).unwrap_or_default()
    }
}

/// A condition: the state of one aspect of the object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The aspect.
    #[serde(rename = "type")]
    pub aspect: Aspect,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// Reason in one word, for programs.
    pub reason: Reason,
    /// Message in one sentence, for the operator.
    pub message: String,
    /// Since when `status` has its value.
    pub since: Time,
}

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
}

/// Aspects of an object, serialized as condition types: those of HyperShift, and three of Weir's
/// own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Aspect {
    /// Everything that is desired works.
    #[serde(rename = "AzurePrivateLinkServiceAvailable")]
    Available,
    /// The load balancer was found.
    #[serde(rename = "AzureInternalLoadBalancerAvailable")]
    Balancer,
    /// The service is as desired.
    #[serde(rename = "AzurePLSCreated")]
    Service,
    /// The endpoint exists, is approved, and has its address.
    #[serde(rename = "AzurePrivateEndpointAvailable")]
    Endpoint,
    /// The DNS names point to the endpoint.
    #[serde(rename = "AzurePrivateDNSAvailable")]
    Names,
    /// Connections wait for a manual approval or rejection.
    ConnectionsWaiting,
    /// Reconciliation is paused: nothing is created or changed.
    Paused,
    /// Another appliance reconciles the object.
    Observed,
}

/// Reason for a condition's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Reason {
    /// The aspect is as desired.
    AzureSuccess,
    /// Azure returned an error, another party deleted or disconnected a resource, or Azure left a
    /// resource incomplete.
    AzureError,
    /// The load balancers could not be read.
    #[serde(rename = "ILBLookupFailed")]
    BalancerLookupFailed,
    /// The NAT subnet could not be found, created or updated.
    #[serde(rename = "NATSubnetCreationFailed")]
    SubnetFailed,
    /// The service could not be created.
    #[serde(rename = "PLSCreationFailed")]
    CreationFailed,
    /// The service could not be updated, or still differs after an accepted update.
    #[serde(rename = "PLSUpdateFailed")]
    UpdateFailed,
    /// The service's owner has not approved the endpoint's connection.
    #[serde(rename = "PrivateEndpointConnectionNotApproved")]
    NotApproved,
    /// The load balancer's address is not set yet.
    WaitingForAddress,
    /// No load balancer has the address yet.
    BalancerNotFound,
    /// The service points to another frontend than the one with the load balancer's address.
    FrontendDiffers,
    /// An operation at Azure is in progress. Earlier builds stored `UnderWay`.
    #[serde(alias = "UnderWay")]
    InProgress,
    /// The service has no alias yet.
    WaitingForAlias,
    /// The network is linked to another zone of that name.
    LinkedElsewhere,
    /// A subnet that Weir did not create has its network policies for private link services
    /// enabled.
    SubnetPoliciesEnabled,
    /// A resource of that name exists that Weir did not create.
    NotOurs,
    /// The desired state is invalid.
    Invalid,
    /// The object is being deleted.
    Deleting,
    /// Connections wait for a decision.
    Pending,
    /// The spec pauses reconciliation.
    Paused,
    /// Another appliance is the owner.
    OtherOwner,
}

impl Aspect {
    /// Returns the name in conditions, as Kubernetes writes it.
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
    /// Returns the name in conditions, as Kubernetes writes it.
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
            Reason::InProgress => "InProgress",
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
    /// Returns the condition of an aspect.
    pub fn condition(&self, aspect: Aspect) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.aspect == aspect)
    }

    /// Returns true if the condition of an aspect holds.
    pub fn is(&self, aspect: Aspect) -> bool {
        self.condition(aspect).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// Sets the condition of an aspect. Keeps the condition's `since` if its status stays the same.
    pub fn set_condition(
        &mut self,
        now: Time,
        aspect: Aspect,
        (holds, reason): (bool, Reason),
        why: &str,
    ) {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let before = self.condition(aspect).filter(|before| before.status == status);
        let since = before.map_or(now, |before| before.since);
        let condition = Condition { aspect, status, reason, message: why.to_owned(), since };
        match self.conditions.iter_mut().find(|condition| condition.aspect == aspect) {
            Some(existing) => *existing = condition,
            None => self.conditions.push(condition),
        }
        self.conditions.sort_by_key(|condition| condition.aspect);
    }

    /// Removes the condition of an aspect.
    pub fn clear_condition(&mut self, aspect: Aspect) {
        self.conditions.retain(|condition| condition.aspect != aspect);
    }
}
