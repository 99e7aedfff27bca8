//! Names and tags at Azure: by them what is ours is found again.

use std::collections::BTreeMap;

use azure::id::ResourceId;
use serde_json::{Map, Value, json};

pub use config::private_link::names::{LONGEST, TAG_PREFIX, allowed};

use crate::object::{Spec, Wrong, Zone};

/// The tag that names the fleet of appliances that made a thing.
pub const FLEET: &str = "weir-fleet";
/// The tag that names the object for which it was made.
pub const OBJECT: &str = "weir-object";
/// The object whose service is `pls-CLUSTER`, without a name of its own.
const ROUTER: &str = "private-router";

/// The service's name: `pls-CLUSTER` for the private router, `pls-NAME-CLUSTER` for others; without
/// a cluster `pls-NAMESPACE-NAME`.
///
/// # Errors
/// Azure doesn't take it.
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

/// The endpoint's name.
///
/// # Errors
/// Azure doesn't take it.
pub fn endpoint(object: &str) -> Result<String, Wrong> {
    let name = format!("{}-pe", dashed(object));
    allowed("name", &name).map(|()| name)
}

/// The name of the subnet that is made for translated addresses: one for all of a cluster.
pub fn nat_subnet(spec: &Spec) -> String {
    let cluster = if spec.cluster.is_empty() { "weir" } else { &spec.cluster };
    format!("{cluster}-pls-nat")
}

/// The name of a zone's link to the endpoint's network.
pub fn link(object: &str, zone: &Zone) -> String {
    let long = || format!("{}-{}-vnet-link", dashed(object), zone.name.replace('.', "-"));
    let mut name = zone.link.clone().unwrap_or_else(long);
    // Two names that are cut alike meet only in one zone, where the second finds the first's tag.
    name.truncate(LONGEST);
    name.trim_end_matches('-').to_owned()
}

fn dashed(name: &str) -> String {
    name.replace('/', "-")
}

/// All tags of a thing that is made for an object.
pub fn tags(fleet: &str, object: &str, spec: &Spec) -> Map<String, Value> {
    let mut tags = shared_tags(fleet, spec);
    tags.insert(OBJECT.to_owned(), object.into());
    tags
}

/// Those of a thing that objects share.
pub fn shared_tags(fleet: &str, spec: &Spec) -> Map<String, Value> {
    let given = spec.tags.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    given.chain([(FLEET.to_owned(), fleet.into())]).collect()
}

/// Whether a thing's tags say that it was made for this object.
pub fn made_for(tags: &Value, fleet: &str, object: &str) -> bool {
    made_by(tags, fleet) && tags[OBJECT] == json!(object)
}

/// Whether a thing's tags say that it was made by our fleet.
pub fn made_by(tags: &Value, fleet: &str) -> bool {
    tags[FLEET] == json!(fleet)
}

/// Whether all of these are there.
pub fn has_all(tags: &Value, wanted: &Map<String, Value>) -> bool {
    wanted.iter().all(|(key, value)| tags[key] == *value)
}

/// Tags as they are, with the wanted ones.
pub fn with(tags: &Value, wanted: &Map<String, Value>) -> Value {
    let there = tags.as_object().cloned().unwrap_or_default();
    let all: BTreeMap<String, Value> = there.into_iter().chain(wanted.clone()).collect();
    json!(all)
}

pub(crate) fn id_of(body: &Value) -> Option<ResourceId> {
    ResourceId::parse(body["id"].as_str()?).ok()
}
