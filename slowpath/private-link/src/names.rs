//! Names and tags of Azure resources, by which they are recognized later.

use std::collections::BTreeMap;

use azure::id::ResourceId;
use serde_json::{Map, Value, json};

pub use config::private_link::names::{MAX_LENGTH, TAG_PREFIX, check};

use crate::object::{Spec, ValidationError, Zone};

/// Tag with the name of the fleet that created a resource.
pub const FLEET: &str = "weir-fleet";
/// Tag with the name of the object for which a resource was created.
pub const OBJECT: &str = "weir-object";
/// Last part of the name of HyperShift's object for its private router. The name of the service
/// leaves this part out: `pls-CLUSTER`.
const ROUTER: &str = "private-router";

/// Returns the name of the service: `pls-CLUSTER` for the private router, `pls-NAME-CLUSTER` for
/// others; without a cluster `pls-NAMESPACE-NAME`. A configured name takes precedence.
///
/// # Errors
/// Fails if the name is not valid at Azure.
pub fn service(object: &str, spec: &Spec) -> Result<String, ValidationError> {
    if let Some(name) = &spec.service_name {
        return Ok(name.clone());
    }
    let short = object.rsplit('/').next().unwrap_or_default();
    let name = match spec.cluster.as_str() {
        "" => format!("pls-{}", with_dashes(object)),
        cluster if short == ROUTER => format!("pls-{cluster}"),
        cluster => format!("pls-{}-{cluster}", with_dashes(short)),
    };
    check("spec.service_name", &name).map(|()| name)
}

/// Returns the name of the endpoint.
///
/// # Errors
/// Fails if the name is not valid at Azure.
pub fn endpoint(object: &str) -> Result<String, ValidationError> {
    let name = format!("{}-pe", with_dashes(object));
    check("name", &name).map(|()| name)
}

/// Returns the name of the NAT subnet, which all objects of a cluster share.
pub fn nat_subnet(spec: &Spec) -> String {
    let cluster = if spec.cluster.is_empty() { "weir" } else { &spec.cluster };
    format!("{cluster}-pls-nat")
}

/// Returns the name of a zone's link to the endpoint's network.
pub fn link(object: &str, zone: &Zone) -> String {
    let long = || format!("{}-{}-vnet-link", with_dashes(object), zone.name.replace('.', "-"));
    let mut name = zone.link.clone().unwrap_or_else(long);
    // Truncated names can collide only within a zone. The tags of the existing link then show that
    // it belongs to another object.
    name.truncate(name.floor_char_boundary(MAX_LENGTH));
    name.trim_end_matches('-').to_owned()
}

fn with_dashes(name: &str) -> String {
    name.replace('/', "-")
}

/// Returns all tags of a resource created for an object.
pub fn tags(fleet: &str, object: &str, spec: &Spec) -> Map<String, Value> {
    let mut tags = shared_tags(fleet, spec);
    tags.insert(OBJECT.to_owned(), object.into());
    tags
}

/// Returns the tags of a resource that objects share.
pub fn shared_tags(fleet: &str, spec: &Spec) -> Map<String, Value> {
    let configured =
        spec.tags.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    configured.chain([(FLEET.to_owned(), fleet.into())]).collect()
}

/// Returns true if the tags belong to a resource created for this object.
pub fn belongs_to_object(tags: &Value, fleet: &str, object: &str) -> bool {
    belongs_to_fleet(tags, fleet) && tags[OBJECT] == json!(object)
}

/// Returns true if the tags belong to a resource created by this fleet.
pub fn belongs_to_fleet(tags: &Value, fleet: &str) -> bool {
    tags[FLEET] == json!(fleet)
}

/// Returns true if all desired tags are present.
pub fn has_all(tags: &Value, desired: &Map<String, Value>) -> bool {
    desired.iter().all(|(key, value)| tags[key] == *value)
}

/// Returns the existing tags with the desired ones added or replaced.
pub fn merged(tags: &Value, desired: &Map<String, Value>) -> Value {
    let existing = tags.as_object().cloned().unwrap_or_default();
    let all: BTreeMap<String, Value> = existing.into_iter().chain(desired.clone()).collect();
    json!(all)
}

/// Returns the id of a resource; `None` if it is missing or not an id.
pub(crate) fn id_of(body: &Value) -> Option<ResourceId> {
    ResourceId::parse(body["id"].as_str()?).ok()
}
