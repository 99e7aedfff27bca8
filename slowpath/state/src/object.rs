//! One envelope for every kind of object that people and machines give us.
//!
//! A kind is one line in `kind.rs`, one line of [`specs!`] and a type that is [`Described`];
//! changes, the store, watches, the API and the command know no kind by name.

mod appliance;
mod backends;
pub mod bgp;
mod change;
mod checked;
mod described;
mod json;
mod kind;
mod nested;
mod objects;
mod private_link;
mod read;
mod refusal;
mod service;
mod source;
#[cfg(test)]
mod tests;
mod text;

use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;

use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

pub use appliance::ApplianceSpec;
pub use backends::BackendsSpec;
pub use bgp::BgpPeeringPolicySpec;
pub use change::Change;
pub use checked::Checked;
pub use config::private_link::Spec as PrivateLinkSpec;
pub use config::services::{
    AFFINITY_MAX_S, BackendSpec, FrontendSpec, ProxyRedirect, ServiceSpec, SourceRanges,
};
pub use described::Described;
pub use json::{API, schema};
pub use kind::{Key, Kind};
pub use objects::{Event, History, Objects, TooOld};
pub use read::{read, read_described};
pub use refusal::{Refusal, Why};
pub use source::{LEASE_MAX_S, REVISION_MAX, SourceSpec};

use crate::labels::Pairs;
use crate::name::{Name, Source};

/// The specs of all kinds: the variant, which is the kind's, and the type.
macro_rules! specs {
    ($($(#[$doc:meta])* $kind:ident($spec:ty);)*) => {
        /// What is wanted, by kind.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(untagged)]
        pub enum Spec { $($(#[$doc])* $kind($spec),)* }

        impl Spec {
            /// Whose spec it is.
            pub fn kind(&self) -> Kind {
                match self { $(Spec::$kind(_) => Kind::$kind,)* }
            }

            /// What is wrong with it, as [`Described::check`].
            pub fn check(&self) -> Result<(), Refusal> {
                match self { $(Spec::$kind(spec) => spec.check(),)* }
            }
        }

        impl Kind {
            fn spec_schema(self, generator: &mut SchemaGenerator) -> serde_json::Value {
                match self { $(Kind::$kind => <$spec>::json_schema(generator).into(),)* }
            }

            fn spec_from(self, json: &serde_json::Value) -> Result<Spec, Refusal> {
                match self {
                    $(Kind::$kind => read_described::<$spec>(json, "spec").map(Spec::$kind),)*
                }
            }
        }
    };
}

specs! {
    /// A service with its frontends.
    Service(Arc<ServiceSpec>);
    /// Backends of a service: one source's list, or a part of it.
    Backends(Arc<BackendsSpec>);
    /// This appliance as its configuration says: where it is, and what it counts as local.
    Appliance(Arc<ApplianceSpec>);
    /// A source that speaks over the API: its lease, and what it said last.
    Source(Arc<SourceSpec>);
    /// Whom an appliance speaks BGP with, and what it announces.
    BgpPeeringPolicy(Arc<BgpPeeringPolicySpec>);
    /// An Azure Private Link Service in front of an internal load balancer, and its endpoint.
    PrivateLinkService(Arc<PrivateLinkSpec>);
}

/// By either name, in capitals or not, its words with dashes between them or not:
/// `bgp-peering-policy`, `BgpPeeringPolicy` and `bgp-peering-policies` are one kind.
impl FromStr for Kind {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Kind, Refusal> {
        let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
        let is = |name: &str| plain(name) == plain(text);
        let found = Kind::ALL.iter().find(|kind| is(kind.as_str()) || is(kind.many()));
        found.copied().ok_or_else(|| {
            let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            let wrong = format!("there is no kind `{text}`");
            Refusal::new("kind", wrong, format!("allowed: {}", all.join(", ")))
        })
    }
}

/// Something that was given to us, and how far it has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its name.
    pub name: Name,
    /// Who said it.
    pub source: Source,
    /// For choosing among objects.
    pub labels: Pairs,
    /// For whoever understands them.
    pub annotations: Pairs,
    /// Revision of the last write of any of it; 0 before the first.
    pub revision: u64,
    /// Revision of the last write of what is wanted: labels, annotations and spec.
    pub generation: u64,
    /// What is wanted.
    pub spec: Spec,
    /// What happened to it; most have nothing to tell.
    life: Option<Box<Life>>,
}

/// What happened to an object beside what is wanted of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Life {
    /// What became of it.
    pub status: Option<Status>,
    /// When its deletion was asked; it goes when the last finalizer is gone.
    pub deletion: Option<SystemTime>,
    /// Who has to clean up before it may go.
    pub finalizers: Vec<Box<str>>,
    /// What whoever looks after it has to remember of it; nobody else reads it.
    pub progress: Option<Arc<serde_json::Value>>,
}

/// Of an object to which nothing has happened.
static NEW: Life = Life { status: None, deletion: None, finalizers: Vec::new(), progress: None };

impl Object {
    /// One that nobody has written yet.
    pub fn new(name: Name, source: Source, spec: Spec) -> Object {
        Object {
            name,
            source,
            labels: None,
            annotations: None,
            revision: 0,
            generation: 0,
            spec,
            life: None,
        }
    }

    /// What happened to it.
    pub fn life(&self) -> &Life {
        self.life.as_deref().unwrap_or(&NEW)
    }

    /// The same with what happened to it.
    #[must_use]
    pub fn with_life(mut self, life: Life) -> Object {
        self.life = (life != NEW).then(|| Box::new(life));
        self
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.spec.kind()
    }

    /// Which one it is.
    pub fn key(&self) -> Key {
        Key { kind: self.kind(), name: self.name.clone(), source: self.source.clone() }
    }

    /// Whether it wants the same as another.
    pub fn wants_as(&self, other: &Object) -> bool {
        self.spec == other.spec
            && self.labels == other.labels
            && self.annotations == other.annotations
    }
}

/// What became of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Status {
    /// The generation that this is about.
    pub observed: u64,
    /// One for each type.
    pub conditions: Vec<Condition>,
}

/// One aspect of an object's status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which aspect: `Accepted`, ...
    #[serde(rename = "type")]
    pub aspect: Box<str>,
    /// Whether it is so.
    pub status: Truth,
    /// One word for machines.
    #[serde(default)]
    pub reason: Box<str>,
    /// A sentence for people.
    #[serde(default)]
    pub message: Box<str>,
    /// Since when `status` is what it is.
    #[serde(with = "text::time")]
    #[schemars(with = "String")]
    pub since: SystemTime,
}

/// Whether a condition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Truth {
    /// It does.
    True,
    /// It doesn't.
    False,
    /// Nobody can tell.
    Unknown,
}
