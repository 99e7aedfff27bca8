//! Names and tags of Azure resources, by which they are recognized later.

use std::collections::BTreeMap;

use azure::id::ResourceId;
use serde_json::{Map, Value, json};

pub use config::private_link::names::{LONGEST, TAG_PREFIX, allowed};

use crate::object::{Spec, Wrong, Zone};

/// Tag with the name of the fleet that created a resource.
pub const FLEET: &str = "weir-fleet";
/// Tag with the name of the object for which a resource was created.
pub const OBJECT: &str = "weir-object";
/// The object whose service is `pls-CLUSTER`, without the object's name.
const ROUTER: &str = "private-router";

/// Returns the name of the service: `pls-CLUSTER` for the private router, `pls-NAME-CLUSTER` for
/// others; without a cluster `pls-NAMESPACE-NAME`. A configured name takes precedence.
///
/// # Errors
/// Fails if the name is not valid at Azure.
pub fn service(object: &str, spec: &Spec) -> Result<String, Wrong> {
    if let Some(name) = &spec.service_name {
        return Ok(name.clone());
    }
    let short = object.rsplit('/').next().unwrap_or_default();
    let name = match spec.cluster.as_str() {
        "" => format!("pls-{}", dashed(object)),
        cluster if short == ROUTER => format!("pls-{cluster}"),
        cluster => format!("pls-{}-{cluster}", dashed(short)),
    };
    allowed("spec.service_name", &name).map(|()| name)
}

/// Returns the name of the endpoint.
///
/// # Errors
/// Fails if the name is not valid at Azure.
pub fn endpoint(object: &str) -> Result<String, Wrong> {
    let name = format!("{}-pe", dashed(object));
    allowed("name", &name).map(|()| name)
}

/// Returns the name of the NAT subnet, which all objects of a cluster share.
pub fn nat_subnet(spec: &Spec) -> String {
    let cluster = if spec.cluster.is_empty() { "weir" } else { &spec.cluster };
    format!("{cluster}-pls-nat")
}

/// Returns the name of a zone's link to the endpoint's network.
pub fn link(object: &str, zone: &Zone) -> String {
    let long = || format!("{}-{}-vnet-link", dashed(object), zone.name.replace('.', "-"));
    let mut name = zone.link.clone().unwrap_or_else(long);
    // Truncated names can collide only within a zone, where the tags of the existing link show it.
    name.truncate(LONGEST);
    name.trim_end_matches('-').to_owned()
}

fn dashed(name: &str) -> String {
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
    let given = spec.tags.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    given.chain([(FLEET.to_owned(), fleet.into())]).collect()
}

/// Returns true if the tags belong to a resource created for this object.
pub fn made_for(tags: &Value, fleet: &str, object: &str) -> bool {
    made_by(tags, fleet) && tags[OBJECT] == json!(object)
}

/// Returns true if the tags belong to a resource created by this fleet.
pub fn made_by(tags: &Value, fleet: &str) -> bool {
    tags[FLEET] == json!(fleet)
}

/// Returns true if all of the wanted tags are present.
pub fn has_all(tags: &Value, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, value)| tags[key] == *value)
}

/// Returns the existing tags with the wanted ones added.
pub fn with(tags: &Value, wanted: &Map<String, Value>) -> Value {
    let there = tags.as_object().cloned().unwrap_or_default();
    let all: BTreeMap<String, Value> = there.into_iter().chain(wanted.clone()).collect();
    json!(all)
}

pub(crate) fn id_of(body: &Value) -> Option<ResourceId> {
    ResourceId::parse(body["id"].as_str()?).ok()
}
