//! Desired state of a private link service, and its validation.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::ResourceId;
use super::names;
use super::time::Time;
use crate::wrong::Wrong;

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
    pub nat_subnet: Option<Address>,
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
    pub subnet: Address,
    /// ID of the virtual network in which the DNS names are resolved.
    pub network: Address,
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

/// ID of an Azure resource.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Address(#[schemars(with = "String")] pub ResourceId);

/// Whether reconciliation is paused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Paused {
    /// Paused or not, without an end time.
    Yes(bool),
    /// Paused until this time in RFC 3339 format; an invalid time does not pause.
    Until(String),
}

impl Default for Paused {
    fn default() -> Paused {
        Paused::Yes(false)
    }
}

impl Paused {
    fn is_no(&self) -> bool {
        *self == Paused::Yes(false)
    }

    /// Returns when the pause ends, the maximum time if it has no end, or `None` if it is not
    /// paused.
    pub fn until(&self, now: Time) -> Option<Time> {
        let until = match self {
            Paused::Yes(yes) => yes.then_some(Time(u64::MAX)),
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
    pub fn check(&self) -> Result<(), Wrong> {
        // Omitted fields may be set in the configuration.
        if !self.subscription.is_empty() {
            subscription("spec.subscription", &self.subscription)?;
        }
        if !self.resource_group.is_empty() {
            group("spec.resource_group", &self.resource_group)?;
        }
        if !self.location.is_empty() {
            location("spec.location", &self.location)?;
        }
        if let Some(address) = self.load_balancer_ip
            && (address.is_unspecified() || address.is_multicast() || address.is_loopback())
        {
            let wrong = format!("no internal load balancer can have {address}");
            let allowed = "write the address of its frontend, or leave it out";
            return Err(Wrong::new("spec.load_balancer_ip", wrong, allowed));
        }
        if let Some(name) = &self.service_name {
            names::allowed("spec.service_name", name)?;
        }
        if !self.cluster.is_empty() {
            names::allowed("spec.cluster", &self.cluster)?;
        }
        if let Some(subnet) = &self.nat_subnet {
            kind_of("spec.nat_subnet", subnet, "subnets")?;
        }
        self.check_subscriptions()?;
        self.check_tags()?;
        self.endpoint.as_ref().map_or(Ok(()), EndpointSpec::check)
    }

    fn check_subscriptions(&self) -> Result<(), Wrong> {
        let at = "spec.additional_allowed_subscriptions";
        listed(at, &self.additional_allowed_subscriptions)?;
        let Some(approved) = &self.auto_approved_subscriptions else { return Ok(()) };
        let at = "spec.auto_approved_subscriptions";
        listed(at, approved)?;
        let allowed = self.allowed();
        for (i, id) in approved.iter().enumerate() {
            if !allowed.contains(&id.to_ascii_lowercase()) {
                let wrong = format!("{id} may not connect, so it can't be approved");
                let allowed = "write it in spec.additional_allowed_subscriptions as well";
                return Err(Wrong::new(&format!("{at}[{i}]"), wrong, allowed));
            }
        }
        Ok(())
    }

    fn check_tags(&self) -> Result<(), Wrong> {
        for (key, value) in &self.tags {
            let forbidden = |c: char| "<>%&\\?/".contains(c);
            if key.is_empty() || key.len() > 512 || key.contains(forbidden) || value.len() > 256 {
                let wrong = format!("`{key}` is no tag that Azure takes");
                let allowed = "names have 1 to 512 characters without <>%&\\?/, values up to 256";
                return Err(Wrong::new("spec.tags", wrong, allowed));
            }
            if key.starts_with(names::TAG_PREFIX) {
                let wrong = format!("`{key}` is a tag that Weir writes itself");
                return Err(Wrong::new("spec.tags", wrong, "take another name"));
            }
        }
        Ok(())
    }

    /// Returns the subscriptions that may connect, in lower case: that of the endpoint, and the
    /// listed ones.
    pub fn allowed(&self) -> BTreeSet<String> {
        let own = self.endpoint.iter().map(|endpoint| endpoint.subnet.0.subscription());
        let listed = self.additional_allowed_subscriptions.iter().map(String::as_str);
        own.chain(listed).map(str::to_ascii_lowercase).collect()
    }

    /// Returns the subscriptions whose connections are approved automatically.
    pub fn approved(&self) -> BTreeSet<String> {
        match &self.auto_approved_subscriptions {
            Some(listed) => listed.iter().map(|id| id.to_ascii_lowercase()).collect(),
            None => self.allowed(),
        }
    }
}

impl EndpointSpec {
    fn check(&self) -> Result<(), Wrong> {
        kind_of("spec.endpoint.subnet", &self.subnet, "subnets")?;
        kind_of("spec.endpoint.network", &self.network, "virtualNetworks")?;
        if let Some(name) = &self.resource_group {
            group("spec.endpoint.resource_group", name)?;
        }
        let mut there = BTreeSet::new();
        for (i, zone) in self.zones.iter().enumerate() {
            let at = format!("spec.endpoint.zones[{i}]");
            zone.check(&at)?;
            if !there.insert(zone.name.to_ascii_lowercase()) {
                let wrong = format!("{} is there twice", zone.name);
                return Err(Wrong::new(&at, wrong, "write all records of a zone in one of them"));
            }
        }
        Ok(())
    }
}

impl Zone {
    fn check(&self, at: &str) -> Result<(), Wrong> {
        let labels = || self.name.split('.');
        if self.name.len() > 253 || labels().count() < 2 || !labels().all(label) {
            let wrong = format!("`{}` is no private zone", self.name);
            let allowed = "write two labels or more of letters, digits and hyphens: \"shop.local\"";
            return Err(Wrong::new(&format!("{at}.name"), wrong, allowed));
        }
        if self.records.is_empty() {
            let allowed = "write the names that lead to the endpoint: [\"api\", \"*.apps\"]";
            return Err(Wrong::new(&format!("{at}.records"), "no name is wanted", allowed));
        }
        let mut there = BTreeSet::new();
        for (i, record) in self.records.iter().enumerate() {
            let at = format!("{at}.records[{i}]");
            let plain = record.strip_prefix("*.").unwrap_or(record);
            let right = record == "@" || record == "*" || plain.split('.').all(label);
            if !right || record.len() + self.name.len() > 252 {
                let wrong = format!("`{record}` is no name within {}", self.name);
                return Err(Wrong::new(&at, wrong, "write \"api\", \"*.apps\" or \"@\""));
            }
            if !there.insert(record.to_ascii_lowercase()) {
                let wrong = format!("`{record}` is there twice");
                return Err(Wrong::new(&at, wrong, "remove one of them"));
            }
        }
        self.link.as_ref().map_or(Ok(()), |link| names::allowed(&format!("{at}.link"), link))
    }
}

/// Returns whether the text is a label of a host name; underscores are allowed in records.
fn label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last())
}

/// Returns whether the text is a UUID: groups of 8, 4, 4, 4 and 12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

pub(super) fn location(field: &str, text: &str) -> Result<(), Wrong> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if (1..=50).contains(&text.len()) && text.bytes().all(plain) {
        return Ok(());
    }
    let wrong = format!("`{text}` is no location");
    let allowed = "write small letters and digits, at most 50: \"westeurope\"";
    Err(Wrong::new(field, wrong, allowed))
}

pub(super) fn subscription(field: &str, text: &str) -> Result<(), Wrong> {
    if is_uuid(text) {
        return Ok(());
    }
    let wrong = format!("`{text}` is no id of a subscription");
    let allowed = "write the UUID that az account list shows: \
                   \"550e8400-e29b-41d4-a716-446655440000\"";
    Err(Wrong::new(field, wrong, allowed))
}

fn listed(field: &str, list: &[String]) -> Result<(), Wrong> {
    if list.len() > SUBSCRIPTIONS_MAX {
        let wrong = format!("{} subscriptions are too many", list.len());
        return Err(Wrong::new(field, wrong, format!("allowed: up to {SUBSCRIPTIONS_MAX}")));
    }
    let mut there = BTreeSet::new();
    for (i, id) in list.iter().enumerate() {
        let at = format!("{field}[{i}]");
        subscription(&at, id)?;
        if !there.insert(id.to_ascii_lowercase()) {
            return Err(Wrong::new(&at, format!("{id} is there twice"), "remove one of them"));
        }
    }
    Ok(())
}

pub(super) fn group(field: &str, text: &str) -> Result<(), Wrong> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.()".contains(c);
    if (1..=90).contains(&text.len()) && text.chars().all(plain) && !text.ends_with('.') {
        return Ok(());
    }
    let wrong = format!("`{text}` is no name of a resource group");
    let allowed = "write 1 to 90 letters, digits and -_.(), no period at the end";
    Err(Wrong::new(field, wrong, allowed))
}

fn kind_of(field: &str, id: &Address, kind: &str) -> Result<(), Wrong> {
    let id = &id.0;
    let right = id.named("virtualNetworks").is_some()
        && id.named(kind) == Some(id.name())
        && (kind != "virtualNetworks" || id.named("subnets").is_none());
    if right {
        return Ok(());
    }
    let wrong = format!("`{id}` is not of type {kind}");
    let subnet = if kind == "subnets" { "/subnets/NAME" } else { "" };
    let allowed = format!(
        "write /subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Network/\
         virtualNetworks/NAME{subnet}"
    );
    Err(Wrong::new(field, wrong, allowed))
}
