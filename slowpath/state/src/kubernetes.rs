//! Conversion of Kubernetes Services, EndpointSlices and BGP policies to objects.
//!
//! `read` takes the text of files; `service` and `slice` take parsed objects from any origin. Cases
//! that Kubernetes' API and Cilium's annotations do not specify are handled as in Cilium.

mod annotations;
mod bgp;
mod health;
mod read;
mod selector;
mod service;
mod slice;
#[cfg(test)]
mod tests;
mod wire;

pub use annotations::{CILIUM, OWN};
pub use bgp::{FIRST_GENERATION, GENERATION, SECOND_GENERATION};
pub use read::{ConvertedFiles, FileError, read};
pub use service::service;
pub use slice::slice;
pub use wire::{EndpointSlice, Meta, Service};

use crate::labels::Pairs;
use crate::name::{Name, Source};
use crate::object::ChangeError;

/// Load balancer class of this appliance.
pub const CLASS: &str = "weir.dev/gateway";
/// Load balancer class of Cilium's BGP control plane.
pub const BGP_CLASS: &str = "io.cilium/bgp-control-plane";

/// Property of a service that lists the ignored parts of its Kubernetes object.
pub const IGNORED: &str = "weir.dev/ignored";

/// Settings of the conversion.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Source of the converted objects.
    pub source: Source,
    /// Labels of the appliance, by which services may be restricted to some appliances.
    pub labels: Pairs,
    /// Name of the appliance. The `CiliumBGPNodeConfigOverride` of this name applies to it.
    pub node: Box<str>,
    /// Name of the cluster, the first part of object names; empty for none.
    pub cluster: Box<str>,
    /// Number of the cluster, which is written into the placement of each backend; 0 for the local
    /// cluster.
    pub cluster_number: u32,
    /// Load balancer classes that are served; services without a class are always served.
    pub classes: Vec<Box<str>>,
}

impl Settings {
    /// Creates the settings for the local cluster, with the default classes.
    pub fn new(source: Source) -> Settings {
        let (cluster, classes) = (Box::default(), vec![CLASS.into(), BGP_CLASS.into()]);
        let node = Box::default();
        Settings { source, labels: None, node, cluster, cluster_number: 0, classes }
    }

    /// Returns the name of an object: `[cluster/]namespace/name`. `field` is the path for errors.
    fn name(&self, namespace: &str, name: &str, field: &str) -> Result<Name, ChangeError> {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        let text = match &*self.cluster {
            "" => format!("{namespace}/{name}"),
            cluster => format!("{cluster}/{namespace}/{name}"),
        };
        Name::new(&text).map_err(|wrong| ChangeError::new(field, wrong.to_string(), ""))
    }
}
