//! The kind `PrivateLinkService`: what is wanted, and what became of it.

mod fixed;
mod kubernetes;
mod status;
#[cfg(test)]
mod tests;

pub use config::private_link::{
    ANNOTATION_CLUSTER, Address, EndpointSpec, Paused, Sibling, Spec, Wrong, Zone, from_kubernetes,
};
pub use fixed::{Fixed, FixedEndpoint};
pub use kubernetes::status_for_kubernetes;
pub use status::{
    Aspect, Condition, Connection, EndpointStatus, HeldOff, Reason, Running, ServiceStatus, Status,
    Step, Truth, ZoneStatus,
};

use crate::time::Time;

/// Its name as a kind.
pub const KIND: &str = "PrivateLinkService";
/// Its name for many.
pub const MANY: &str = "privatelinkservices";
/// The finalizer that stays until everything at Azure is taken back.
pub const FINALIZER: &str = "weir.dev/private-link-cleanup";

/// An object as a round needs it; the store has more of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    /// `[cluster/]namespace/name`, or a single word.
    pub name: String,
    /// Revision of the last write of what is wanted.
    pub generation: u64,
    /// When it was made, for its age.
    pub created: Time,
    /// What is wanted.
    pub spec: Spec,
    /// What became of it.
    pub status: Status,
    /// When its deletion was asked.
    pub deletion: Option<Time>,
    /// [`FINALIZER`] is on it.
    pub held: bool,
}
