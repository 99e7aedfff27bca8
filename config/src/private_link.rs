//! Desired state of an Azure Private Link Service, as written in objects, and its validation. The
//! crate `private-link` reconciles it.

mod defaults;
pub mod id;
mod kubernetes;
pub mod names;
mod spec;
pub mod time;

pub use defaults::SpecDefaults;
pub use kubernetes::{ANNOTATION_CLUSTER, Sibling, from_kubernetes};
pub use spec::{EndpointSpec, Paused, ResourceRef, Spec, Zone};

pub use crate::validation_error::ValidationError;
