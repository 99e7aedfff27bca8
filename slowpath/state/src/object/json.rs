//! JSON encoding of objects, and the schema of each kind.

use std::sync::Arc;
use std::time::SystemTime;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::error::ChangeError;
use super::kind::{Key, Kind};
use super::legacy;
use super::read::read;
use super::{Lifecycle, Object, Spec, Status, text};
use crate::labels::Pairs;
use crate::name::{Name, Source};

/// Source of objects that name no source: clients of the API write them one by one, without a
/// session.
pub const API: &str = "api";

/// Object as JSON: metadata, desired state and status.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Object")]
struct Envelope<S> {
    /// Kind of the object.
    kind: Kind,
    /// Name: `[cluster/]namespace/name`, or a single word.
    #[schemars(with = "String")]
    name: Name,
    /// Source of the object. Default: `api`, or the source whose session contains the object.
    #[serde(default = "api")]
    #[schemars(with = "Option<String>")]
    source: Source,
    /// Labels, by which objects are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Pairs,
    /// Annotations, for tools that interpret them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Pairs,
    /// Revision of the last write. A write request with a revision other than 0 is rejected if the
    /// object has another revision.
    #[serde(default)]
    revision: u64,
    /// Revision of the last write of labels, annotations or spec; ignored in requests.
    #[serde(default)]
    generation: u64,
    /// Desired state.
    spec: S,
    /// Observed status; ignored in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// Time at which deletion was requested; ignored in requests.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional_time")]
    #[schemars(with = "Option<String>")]
    deletion: Option<SystemTime>,
    /// Names of the components that have to clean up before the object is removed; ignored in
    /// requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<Box<str>>,
    /// Private data of the controller that manages the object; ignored in requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    progress: Option<Arc<Value>>,
}

fn api() -> Source {
    Source::new(API)
}

impl Envelope<Value> {
    fn into_object(self) -> Result<Object, ChangeError> {
        let spec = self.kind.spec_from(&self.spec)?;
        let Envelope { status, deletion, finalizers, progress, .. } = self;
        let lifecycle = Lifecycle { status, deletion, finalizers, progress };
        Ok(Object {
            labels: self.labels,
            annotations: self.annotations,
            revision: self.revision,
            generation: self.generation,
            ..Object::new(self.name, self.source, spec)
        }
        .with_lifecycle(lifecycle))
    }
}

impl Object {
    /// Reads and validates an object. The error names the first invalid field.
    pub fn from_json(json: &Value) -> Result<Object, ChangeError> {
        let object = read::<Envelope<Value>>(json, "").and_then(Envelope::into_object);
        let object = object.and_then(|object| object.spec.check().map(|()| object));
        let named = json["name"].as_str().and_then(|name| Name::new(name).ok());
        let kind = json["kind"].as_str().and_then(|kind| kind.parse().ok());
        let source = Source::new(json["source"].as_str().unwrap_or(API));
        object.map_err(|error| match (kind, named) {
            (Some(kind), Some(name)) => error.with_object(&Key { kind, name, source }),
            _ => error,
        })
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let lifecycle = self.lifecycle().clone();
        Envelope::<&Spec> {
            kind: self.kind(),
            name: self.name.clone(),
            source: self.source.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            revision: self.revision,
            generation: self.generation,
            spec: &self.spec,
            status: lifecycle.status,
            deletion: lifecycle.deletion,
            finalizers: lifecycle.finalizers,
            progress: lifecycle.progress,
        }
        .serialize(serializer)
    }
}

/// Reads objects from the store, including those of earlier builds, without validation. Objects
/// from other origins are read with [`Object::from_json`].
impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        let mut envelope = Envelope::<Value>::deserialize(deserializer)?;
        legacy::upgrade(envelope.kind, &mut envelope.spec);
        if let Some(status) = &mut envelope.status {
            legacy::upgrade_conditions(&mut status.conditions);
        }
        envelope.into_object().map_err(D::Error::custom)
    }
}

/// Returns the JSON schema of objects of a kind. The schemas that it refers to are left in
/// `generator`.
pub fn schema(kind: Kind, generator: &mut SchemaGenerator) -> Value {
    let mut all = Value::from(Envelope::<Value>::json_schema(generator));
    all["title"] = kind.as_str().into();
    all["properties"]["spec"] = kind.spec_schema(generator);
    all["properties"]["kind"] = serde_json::json!({ "const": kind.as_str() });
    all
}
