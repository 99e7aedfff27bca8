//! The kind `PrivateLinkService`: desired state and status.

mod immutable;
mod kubernetes;
mod status;
#[cfg(test)]
mod tests;

pub use config::private_link::{
    ANNOTATION_CLUSTER, EndpointSpec, Paused, ResourceRef, Sibling, Spec, ValidationError, Zone,
    from_kubernetes,
};
pub use immutable::{ImmutableEndpoint, ImmutableSpec};
pub use kubernetes::status_for_kubernetes;
pub use status::{
    Aspect, Backoff, Condition, ConditionStatus, Connection, EndpointStatus, Reason,
    RunningOperation, ServiceStatus, Status, Step, ZoneStatus,
};

use crate::time::Time;

/// Name of the kind.
pub const KIND: &str = "PrivateLinkService";
/// Plural name of the kind.
pub const PLURAL: &str = "privatelinkservices";
/// Finalizer that stays on an object until everything that was created for it is deleted.
pub const FINALIZER: &str = "weir.dev/private-link-cleanup";

/// An object, reduced to what a round needs.
#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    /// Name: `[cluster/]namespace/name`, or a single word.
    pub name: String,
    /// Revision of the last change of the desired state.
    pub generation: u64,
    /// Time of creation, for the object's age.
    pub created: Time,
    /// Desired state.
    pub spec: Spec,
    /// Observed state and progress.
    pub status: Status,
    /// Time at which the deletion was requested.
    pub deletion: Option<Time>,
    /// True if [`FINALIZER`] is on the object.
    pub has_finalizer: bool,
}
