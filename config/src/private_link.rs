//! What is wanted of an Azure Private Link Service, as people write it in an object, and what is
//! wrong with it. What becomes of it is the crate `private-link`'s.

mod home;
pub mod id;
mod kubernetes;
pub mod names;
mod spec;
pub mod time;

pub use home::Home;
pub use kubernetes::{ANNOTATION_CLUSTER, Sibling, from_kubernetes};
pub use spec::{Address, EndpointSpec, Paused, Spec, Zone};

pub use crate::wrong::Wrong;
