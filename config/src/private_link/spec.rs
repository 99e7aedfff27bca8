//! Desired state of a private link service, and its validation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::ResourceId;
use super::names;
use super::time::Time;
use crate::validation_error::ValidationError;

/// Maximum number of subscriptions in a list.
const SUBSCRIPTIONS_MAX: usize = 50;

/// A private link service in front of an internal load balancer, and optionally the private
/// endpoint that connects to it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// Address of the internal load balancer's frontend; may be set later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_ip: Option<IpAddr>,
    /// ID of the service's subscription; omitted for `private_link.subscription`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subscription: String,
    /// Resource group of the service and of the load balancer; omitted for
    /// `private_link.resource_group`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_group: String,
    /// Location of the load balancer, for example `westeurope`; omitted for
    /// `private_link.location`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub location: String,
    /// Name of the service on Azure; omitted for a generated name, `pls-...`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Makes names unique among clusters: a part of the service's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// ID of the subnet to whose addresses the service translates; omitted, a subnet in the load
    /// balancer's network is found or created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat_subnet: Option<ResourceRef>,
    /// Subscriptions that may connect, in addition to that of the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_allowed_subscriptions: Vec<String>,
    /// Subscriptions whose connections are approved automatically; omitted for all that may
    /// connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_approved_subscriptions: Option<Vec<String>>,
    /// Tags of all resources that are created.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// `true`, or an end time in RFC 3339 format: nothing is created or changed until then.
    #[serde(skip_serializing_if = "Paused::is_no")]
    pub paused: Paused,
    /// The private endpoint on the consumer side; omitted if it is created by other means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSpec>,
}

/// The private endpoint on the consumer side.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointSpec {
    /// ID of the endpoint's subnet.
    pub subnet: ResourceRef,
    /// ID of the virtual network in which the DNS names are resolved.
    pub network: ResourceRef,
    /// Resource group of the endpoint and its zones; omitted for that of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_group: Option<String>,
    /// Private DNS zones with the names that resolve to the endpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Zone>,
}

/// A private DNS zone, and its records that resolve to the endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Name of the zone, for example `shop.example.internal`.
    pub name: String,
    /// Record names relative to the zone: `api`, `*.apps`, `@`.
    pub records: Vec<String>,
    /// Name of the zone's link to the network; omitted for `<object>-<zone>-vnet-link`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// Reference to an Azure resource by its ID.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "Address")]
pub struct ResourceRef(#[schemars(with = "String")] pub ResourceId);

/// Whether reconciliation is paused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Paused {
    /// Paused or not, without an end time.
    Flag(bool),
    /// Paused until this time in RFC 3339 format; an invalid time does not pause. The texts `true`
    /// and `false` have the meaning of [`Paused::Flag`].
    Until(String),
}

impl Default for Paused {
    fn default() -> Paused {
        Paused::Flag(false)
    }
}

impl Paused {
    fn is_no(&self) -> bool {
        *self == Paused::Flag(false)
    }

    /// Returns the end of the pause at time `now`, or the maximum time if the pause has no end.
    /// Returns `None` if reconciliation is not paused.
    pub fn until(&self, now: Time) -> Option<Time> {
        let until = match self {
            Paused::Flag(yes) => yes.then_some(Time(u64::MAX)),
            Paused::Until(text) => match text.parse::<bool>() {
                Ok(yes) => yes.then_some(Time(u64::MAX)),
                Err(_) => Time::read(text),
            },
        };
        until.filter(|until| *until > now)
    }
}

impl Spec {
    /// Validates the desired state.
    ///
    /// # Errors
    /// Returns the first invalid field, its fault, and what is allowed.
    pub fn check(&self) -> Result<(), ValidationError> {
        // Omitted fields may be set in the configuration.
        if !self.subscription.is_empty() {
            check_subscription("spec.subscription", &self.subscription)?;
        }
        if !self.resource_group.is_empty() {
            check_group("spec.resource_group", &self.resource_group)?;
        }
        if !self.location.is_empty() {
            check_location("spec.location", &self.location)?;
        }
        if let Some(address) = self.load_balancer_ip
            && (address.is_unspecified() || address.is_multicast() || address.is_loopback())
        {
            let fault = format!("{address} cannot be the address of an internal load balancer");
            let remedy = "write the address of its frontend, or remove the field";
            return Err(ValidationError::new("spec.load_balancer_ip", fault, remedy));
        }
        if let Some(name) = &self.service_name {
            names::check("spec.service_name", name)?;
        }
        if !self.cluster.is_empty() {
            names::check("spec.cluster", &self.cluster)?;
        }
        if let Some(subnet) = &self.nat_subnet {
            check_type("spec.nat_subnet", subnet, "subnets")?;
        }
        self.check_subscriptions()?;
        self.check_tags()?;
        self.endpoint.as_ref().map_or(Ok(()), EndpointSpec::check)
    }

    fn check_subscriptions(&self) -> Result<(), ValidationError> {
        let at = "spec.additional_allowed_subscriptions";
        check_subscription_list(at, &self.additional_allowed_subscriptions)?;
        let Some(approved) = &self.auto_approved_subscriptions else { return Ok(()) };
        let at = "spec.auto_approved_subscriptions";
        check_subscription_list(at, approved)?;
        let permitted = self.permitted_subscriptions();
        for (i, id) in approved.iter().enumerate() {
            if !permitted.contains(&id.to_ascii_lowercase()) {
                let fault = format!("{id} may not connect and cannot be approved");
                let remedy = "add it to spec.additional_allowed_subscriptions";
                return Err(ValidationError::new(&format!("{at}[{i}]"), fault, remedy));
            }
        }
        Ok(())
    }

    fn check_tags(&self) -> Result<(), ValidationError> {
        for (key, value) in &self.tags {
            let forbidden = |c: char| "<>%&\\?/".contains(c);
            if key.is_empty() || key.len() > 512 || key.contains(forbidden) || value.len() > 256 {
                let fault = format!("`{key}` is not a valid tag on Azure");
                let remedy = "names have 1 to 512 characters without <>%&\\?/, values up to 256";
                return Err(ValidationError::new("spec.tags", fault, remedy));
            }
            if key.starts_with(names::TAG_PREFIX) {
                let fault = format!("`{key}` is reserved for tags of Weir");
                return Err(ValidationError::new("spec.tags", fault, "use another name"));
            }
        }
        Ok(())
    }

    /// Returns the subscriptions that may connect, in lower case: that of the endpoint, and the
    /// listed ones.
    pub fn permitted_subscriptions(&self) -> BTreeSet<String> {
        let own = self.endpoint.iter().map(|endpoint| endpoint.subnet.0.subscription());
        let listed = self.additional_allowed_subscriptions.iter().map(String::as_str);
        own.chain(listed).map(str::to_ascii_lowercase).collect()
    }

    /// Returns the subscriptions whose connections are approved automatically.
    pub fn approved_subscriptions(&self) -> BTreeSet<String> {
        match &self.auto_approved_subscriptions {
            Some(listed) => listed.iter().map(|id| id.to_ascii_lowercase()).collect(),
            None => self.permitted_subscriptions(),
        }
    }
}

impl EndpointSpec {
    fn check(&self) -> Result<(), ValidationError> {
        check_type("spec.endpoint.subnet", &self.subnet, "subnets")?;
        check_type("spec.endpoint.network", &self.network, "virtualNetworks")?;
        if let Some(name) = &self.resource_group {
            check_group("spec.endpoint.resource_group", name)?;
        }
        let mut seen = BTreeSet::new();
        for (i, zone) in self.zones.iter().enumerate() {
            let at = format!("spec.endpoint.zones[{i}]");
            zone.check(&at)?;
            if !seen.insert(zone.name.to_ascii_lowercase()) {
                let fault = format!("{} is a duplicate", zone.name);
                return Err(ValidationError::new(
                    &at,
                    fault,
                    "write all records of a zone in one entry",
                ));
            }
        }
        Ok(())
    }
}

impl Zone {
    fn check(&self, at: &str) -> Result<(), ValidationError> {
        let labels = || self.name.split('.');
        if self.name.len() > 253 || labels().count() < 2 || !labels().all(is_label) {
            let fault = format!("`{}` is not a valid zone name", self.name);
            let remedy = "write two labels or more of letters, digits and hyphens: \"shop.local\"";
            return Err(ValidationError::new(&format!("{at}.name"), fault, remedy));
        }
        if self.records.is_empty() {
            let remedy = "write the names that resolve to the endpoint: [\"api\", \"*.apps\"]";
            return Err(ValidationError::new(
                &format!("{at}.records"),
                "the list is empty",
                remedy,
            ));
        }
        let mut seen = BTreeSet::new();
        for (i, record) in self.records.iter().enumerate() {
            let at = format!("{at}.records[{i}]");
            let plain = record.strip_prefix("*.").unwrap_or(record);
            let is_valid = record == "@" || record == "*" || plain.split('.').all(is_label);
            if !is_valid || record.len() + self.name.len() > 252 {
                let fault = format!("`{record}` is not a valid name in {}", self.name);
                return Err(ValidationError::new(&at, fault, "write \"api\", \"*.apps\" or \"@\""));
            }
            if !seen.insert(record.to_ascii_lowercase()) {
                let fault = format!("`{record}` is a duplicate");
                return Err(ValidationError::new(&at, fault, "remove one of them"));
            }
        }
        self.link.as_ref().map_or(Ok(()), |link| names::check(&format!("{at}.link"), link))
    }
}

/// Returns whether the text is a label of a DNS name: 1 to 63 letters, digits, hyphens and
/// underscores, with no hyphen at either end.
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let not_hyphen = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().copied().all(inner)
        && not_hyphen(bytes.first())
        && not_hyphen(bytes.last())
}

/// Returns whether the text is a UUID: groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

pub(super) fn check_location(field: &str, text: &str) -> Result<(), ValidationError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if (1..=50).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    let fault = format!("`{text}` is not a valid location");
    let remedy = "write lower-case letters and digits, at most 50: \"westeurope\"";
    Err(ValidationError::new(field, fault, remedy))
}

pub(super) fn check_subscription(field: &str, text: &str) -> Result<(), ValidationError> {
    if is_uuid(text) {
        return Ok(());
    }
    let fault = format!("`{text}` is not a subscription ID");
    let remedy = "write the UUID that az account list shows: \
                   \"550e8400-e29b-41d4-a716-446655440000\"";
    Err(ValidationError::new(field, fault, remedy))
}

fn check_subscription_list(field: &str, list: &[String]) -> Result<(), ValidationError> {
    if list.len() > SUBSCRIPTIONS_MAX {
        let fault = format!("{} subscriptions are too many", list.len());
        return Err(ValidationError::new(
            field,
            fault,
            format!("allowed: up to {SUBSCRIPTIONS_MAX}"),
        ));
    }
    let mut seen = BTreeSet::new();
    for (i, id) in list.iter().enumerate() {
        let at = format!("{field}[{i}]");
        check_subscription(&at, id)?;
        if !seen.insert(id.to_ascii_lowercase()) {
            return Err(ValidationError::new(
                &at,
                format!("{id} is a duplicate"),
                "remove one of them",
            ));
        }
    }
    Ok(())
}

pub(super) fn check_group(field: &str, text: &str) -> Result<(), ValidationError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.()".contains(c);
    if (1..=90).contains(&text.len()) && text.chars().all(plain) && !text.ends_with('.') {
        return Ok(());
    }
    let fault = format!("`{text}` is not a valid resource group name");
    let remedy = "write 1 to 90 letters, digits and -_.(), no period at the end";
    Err(ValidationError::new(field, fault, remedy))
}

/// Validates that the ID is that of a virtual network (`kind` is `virtualNetworks`) or of a subnet
/// (`kind` is `subnets`).
fn check_type(field: &str, id: &ResourceRef, kind: &str) -> Result<(), ValidationError> {
    let id = &id.0;
    let is_valid = id.named("virtualNetworks").is_some()
        && id.named(kind) == Some(id.name())
        && (kind != "virtualNetworks" || id.named("subnets").is_none());
    if is_valid {
        return Ok(());
    }
    let fault = format!("`{id}` is not of type {kind}");
    let subnet = if kind == "subnets" { "/subnets/NAME" } else { "" };
    let remedy = format!(
        "write /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Network/\
         virtualNetworks/NAME{subnet}"
    );
    Err(ValidationError::new(field, fault, remedy))
}
