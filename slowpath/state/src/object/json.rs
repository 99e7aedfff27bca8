//! Objects as JSON, in and out, and the schema of each kind.

use std::sync::Arc;
use std::time::SystemTime;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::kind::{Key, Kind};
use super::nested;
use super::read::read;
use super::refusal::Refusal;
use super::{Life, Object, Spec, Status, text};
use crate::labels::Pairs;
use crate::name::{Name, Source};

/// Who is meant where nobody is named: whoever speaks to the API.
pub const API: &str = "api";

/// The envelope as it is written; `S` is a spec.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Object")]
struct Envelope<S> {
    /// What sort of thing it is.
    kind: Kind,
    /// `[cluster/]namespace/name`, or a single word.
    #[schemars(with = "String")]
    name: Name,
    /// Who said it; leave it out.
    #[serde(default = "api")]
    #[schemars(with = "Option<String>")]
    source: Source,
    /// For choosing among objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Pairs,
    /// For whoever understands them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Pairs,
    /// Revision of the last write; given with a write, the write is refused where it has changed.
    #[serde(default)]
    revision: u64,
    /// Revision of the last write of labels, annotations or spec; what is given is ignored.
    #[serde(default)]
    generation: u64,
    /// What is wanted.
    spec: S,
    /// What became of it; what is given is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    /// When its deletion was asked; what is given is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional_time")]
    #[schemars(with = "Option<String>")]
    deletion: Option<SystemTime>,
    /// Who has to clean up before it may go; what is given is ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    finalizers: Vec<Box<str>>,
    /// What whoever looks after it has to remember of it; what is given is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    progress: Option<Arc<Value>>,
}

fn api() -> Source {
    Source::new(API)
}

impl Envelope<Value> {
    fn open(self) -> Result<Object, Refusal> {
        let spec = self.kind.spec_from(&self.spec)?;
        let Envelope { status, deletion, finalizers, progress, .. } = self;
        let life = Life { status, deletion, finalizers, progress };
        Ok(Object {
            labels: self.labels,
            annotations: self.annotations,
            revision: self.revision,
            generation: self.generation,
            ..Object::new(self.name, self.source, spec)
        }
        .with_life(life))
    }
}

impl Object {
    /// Reads one, and checks it: the first thing that is wrong is told by the path of its field.
    pub fn from_json(json: &Value) -> Result<Object, Refusal> {
        let object = read::<Envelope<Value>>(json, "").and_then(Envelope::open);
        let object = object.and_then(|object| object.spec.check().map(|()| object));
        let named = json["name"].as_str().and_then(|name| Name::new(name).ok());
        let kind = json["kind"].as_str().and_then(|kind| kind.parse().ok());
        let source = Source::new(json["source"].as_str().unwrap_or(API));
        object.map_err(|refusal| match (kind, named) {
            (Some(kind), Some(name)) => refusal.of(&Key { kind, name, source }),
            _ => refusal,
        })
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let life = self.life().clone();
        Envelope::<&Spec> {
            kind: self.kind(),
            name: self.name.clone(),
            source: self.source.clone(),
            labels: self.labels.clone(),
            annotations: self.annotations.clone(),
            revision: self.revision,
            generation: self.generation,
            spec: &self.spec,
            status: life.status,
            deletion: life.deletion,
            finalizers: life.finalizers,
            progress: life.progress,
        }
        .serialize(serializer)
    }
}

/// Takes what was written here, by an earlier build too; what comes from outside goes through
/// [`Object::from_json`], which checks it.
impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        let mut envelope = Envelope::<Value>::deserialize(deserializer)?;
        nested::flatten(envelope.kind, &mut envelope.spec);
        envelope.open().map_err(D::Error::custom)
    }
}

/// The JSON schema of a kind, envelope and all; what it refers to is left with the generator.
pub fn schema(kind: Kind, generator: &mut SchemaGenerator) -> Value {
    let mut all = Value::from(Envelope::<Value>::json_schema(generator));
    all["title"] = kind.as_str().into();
    all["properties"]["spec"] = kind.spec_schema(generator);
    all["properties"]["kind"] = serde_json::json!({ "const": kind.as_str() });
    all
}
