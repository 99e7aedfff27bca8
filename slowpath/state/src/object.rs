//! Objects of all kinds: common metadata and status, and a spec that depends on the kind.
//!
//! A new kind requires a line of `kinds!` and an arm of [`Kind::read_only_reason`] in `kind.rs`, a
//! line of [`specs!`], and a type that implements [`ObjectSpec`]. Changes, the store and watches
//! depend on no kind.

mod appliance;
mod backends;
pub mod bgp;
mod change;
mod checked;
mod error;
mod json;
mod kind;
mod legacy;
mod objects;
mod private_link;
mod read;
mod service;
mod source;
mod spec;
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
pub use error::{ChangeError, ErrorClass};
pub use json::{API, schema};
pub use kind::{Key, Kind};
pub use objects::{Event, History, Objects, TooOld};
pub use read::{read, read_with_schema};
pub use source::{LEASE_MAX_S, REVISION_MAX, SourceSpec};
pub use spec::ObjectSpec;

use crate::labels::Pairs;
use crate::name::{Name, Source};

/// Defines [`Spec`] and the functions that depend on the kind, from the variant (named after the
/// kind) and the spec type of each kind.
macro_rules! specs {
    ($($(#[$doc:meta])* $kind:ident($spec:ty);)*) => {
        /// Desired state of an object, by kind.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
        #[serde(untagged)]
        pub enum Spec { $($(#[$doc])* $kind($spec),)* }

        impl Spec {
            /// Returns the kind that the spec belongs to.
            pub fn kind(&self) -> Kind {
                match self { $(Spec::$kind(_) => Kind::$kind,)* }
            }

            /// Validates the spec; see [`ObjectSpec::check`].
            pub fn check(&self) -> Result<(), ChangeError> {
                match self { $(Spec::$kind(spec) => spec.check(),)* }
            }
        }

        impl Kind {
            fn spec_schema(self, generator: &mut SchemaGenerator) -> serde_json::Value {
                match self { $(Kind::$kind => <$spec>::json_schema(generator).into(),)* }
            }

            fn spec_from(self, json: &serde_json::Value) -> Result<Spec, ChangeError> {
                match self {
                    $(Kind::$kind => read_with_schema::<$spec>(json, "spec").map(Spec::$kind),)*
                }
            }
        }
    };
}

specs! {
    /// Service with its frontends.
    Service(Arc<ServiceSpec>);
    /// Backends of a service: one source's list, or a part of it.
    Backends(Arc<BackendsSpec>);
    /// This appliance as configured: its location, addresses, cluster and node ports.
    Appliance(Arc<ApplianceSpec>);
    /// Own object of a source: its lease and the revision that it last committed.
    Source(Arc<SourceSpec>);
    /// BGP neighbors of the selected appliances, and what is advertised to them.
    BgpPeeringPolicy(Arc<BgpPeeringPolicySpec>);
    /// Azure Private Link Service in front of an internal load balancer, and its endpoint.
    PrivateLinkService(Arc<PrivateLinkSpec>);
}

/// Parses the singular or plural name of a kind, ignoring case and dashes: `bgp-peering-policy`,
/// `BgpPeeringPolicy` and `bgp-peering-policies` are the same kind.
impl FromStr for Kind {
    type Err = ChangeError;

    fn from_str(text: &str) -> Result<Kind, ChangeError> {
        let plain = |name: &str| name.replace('-', "").to_ascii_lowercase();
        let is = |name: &str| plain(name) == plain(text);
        let found = Kind::ALL.iter().find(|kind| is(kind.as_str()) || is(kind.plural()));
        found.copied().ok_or_else(|| {
            let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            let wrong = format!("unknown kind `{text}`");
            ChangeError::new("kind", wrong, format!("allowed: {}", all.join(", ")))
        })
    }
}

/// Object of any kind, with its metadata, desired state and status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Name, unique within kind and source.
    pub name: Name,
    /// Source that wrote the object.
    pub source: Source,
    /// Labels, by which objects are selected.
    pub labels: Pairs,
    /// Annotations, for tools that interpret them.
    pub annotations: Pairs,
    /// Revision of the last write of any part of the object; 0 before the first write.
    pub revision: u64,
    /// Revision of the last write of the desired state: labels, annotations and spec.
    pub generation: u64,
    /// Desired state.
    pub spec: Spec,
    /// Status, deletion, finalizers and progress; `None` if the object has none of them.
    lifecycle: Option<Box<Lifecycle>>,
}

/// Lifecycle data of an object, beside its desired state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lifecycle {
    /// Observed status.
    pub status: Option<Status>,
    /// Time at which deletion was requested; the object is removed with its last finalizer.
    pub deletion: Option<SystemTime>,
    /// Names of the components that have to clean up before the object may be removed.
    pub finalizers: Vec<Box<str>>,
    /// Private data of the controller that manages the object; no other component reads it.
    pub progress: Option<Arc<serde_json::Value>>,
}

/// Lifecycle data of an object that has none.
static EMPTY: Lifecycle =
    Lifecycle { status: None, deletion: None, finalizers: Vec::new(), progress: None };

impl Object {
    /// Creates an object that has not been written yet.
    pub fn new(name: Name, source: Source, spec: Spec) -> Object {
        Object {
            name,
            source,
            labels: None,
            annotations: None,
            revision: 0,
            generation: 0,
            spec,
            lifecycle: None,
        }
    }

    /// Returns the lifecycle data.
    pub fn lifecycle(&self) -> &Lifecycle {
        self.lifecycle.as_deref().unwrap_or(&EMPTY)
    }

    /// Returns the object with its lifecycle data replaced.
    #[must_use]
    pub fn with_lifecycle(mut self, lifecycle: Lifecycle) -> Object {
        self.lifecycle = (lifecycle != EMPTY).then(|| Box::new(lifecycle));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.spec.kind()
    }

    /// Returns the key: kind, name and source.
    pub fn key(&self) -> Key {
        Key { kind: self.kind(), name: self.name.clone(), source: self.source.clone() }
    }

    /// Returns whether spec, labels and annotations equal those of another object.
    pub fn same_desired_state(&self, other: &Object) -> bool {
        self.spec == other.spec
            && self.labels == other.labels
            && self.annotations == other.annotations
    }
}

/// Observed status of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Status {
    /// Generation of the object that this status is about.
    pub observed: u64,
    /// Conditions, at most one of each type.
    pub conditions: Vec<Condition>,
}

/// One aspect of an object's status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Type of the condition, for example `Accepted` (`type` in JSON).
    #[serde(rename = "type")]
    pub aspect: Box<str>,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// Machine-readable reason, in one word, for example `Rejected`.
    #[serde(default)]
    pub reason: Box<str>,
    /// Human-readable explanation.
    #[serde(default)]
    pub message: Box<str>,
    /// Time of the last change of `status`.
    #[serde(with = "text::time")]
    #[schemars(with = "String")]
    pub since: SystemTime,
}

/// Status of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is not known whether the condition holds.
    Unknown,
}
