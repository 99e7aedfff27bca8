//! Services, EndpointSlices and BGP's policies as Kubernetes writes them, made into objects.
//!
//! `read` takes the text of files; `service` and `slice` take what is parsed already, from whoever
//! has it. What Kubernetes or Cilium's annotations leave open is decided as Cilium decides it.

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
pub use read::{Broken, Found, read};
pub use service::service;
pub use slice::slice;
pub use wire::{EndpointSlice, Meta, Service};

use crate::labels::Pairs;
use crate::name::{Name, Source};
use crate::object::Refusal;

/// The class of load balancers that is this appliance's own.
pub const CLASS: &str = "weir.dev/gateway";
/// The class of those that are announced by BGP, as Cilium names it.
pub const BGP_CLASS: &str = "io.cilium/bgp-control-plane";

/// The property of a service that lists what of its Kubernetes object is ignored.
pub const IGNORED: &str = "weir.dev/ignored";

/// What the conversion has to know of this appliance.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who says what is converted.
    pub source: Source,
    /// The appliance's labels: services may be meant for some appliances only.
    pub labels: Pairs,
    /// The appliance's name: what is said of a node of this name is meant for it.
    pub node: Box<str>,
    /// Name of the cluster, the first part of names; empty for none.
    pub cluster: Box<str>,
    /// Its number, which backends carry; 0 for this one.
    pub cluster_number: u32,
    /// Classes of load balancers that are served; those that name none always are.
    pub classes: Vec<Box<str>>,
}

impl Settings {
    /// Of one cluster, of our own class.
    pub fn new(source: Source) -> Settings {
        let (cluster, classes) = (Box::default(), vec![CLASS.into(), BGP_CLASS.into()]);
        let node = Box::default();
        Settings { source, labels: None, node, cluster, cluster_number: 0, classes }
    }

    fn name(&self, namespace: &str, name: &str, field: &str) -> Result<Name, Refusal> {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        let text = match &*self.cluster {
            "" => format!("{namespace}/{name}"),
            cluster => format!("{cluster}/{namespace}/{name}"),
        };
        Name::new(&text).map_err(|wrong| Refusal::new(field, wrong.to_string(), ""))
    }
}
