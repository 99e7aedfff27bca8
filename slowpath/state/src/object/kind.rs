//! Kinds of objects, and the keys of objects.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{Name, Source};

/// Defines [`Kind`] from the variant, the singular and the plural name of each kind.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $singular:literal, $plural:literal;)*) => {
        /// Kind of an object.
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
            JsonSchema,
        )]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $singular)] $kind,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Returns the singular name.
            pub fn as_str(self) -> &'static str {
                match self { $(Kind::$kind => $singular,)* }
            }

            /// Returns the plural name, as used in commands and URLs.
            pub fn plural(self) -> &'static str {
                match self { $(Kind::$kind => $plural,)* }
            }
        }
    };
}

kinds! {
    /// Service with its frontends.
    Service = "Service", "services";
    /// Backends of a service: one source's list, or a part of it.
    Backends = "Backends", "backends";
    /// This appliance as configured: its location, addresses, cluster and node ports.
    Appliance = "Appliance", "appliances";
    /// Own object of a source: its lease and the revision that it last committed.
    Source = "Source", "sources";
    /// BGP neighbors of the selected appliances, and what is advertised to them.
    BgpPeeringPolicy = "BgpPeeringPolicy", "bgp-peering-policies";
    /// Azure Private Link Service in front of an internal load balancer, and its endpoint.
    PrivateLinkService = "PrivateLinkService", "private-link-services";
}

impl Kind {
    /// Returns whether objects of this kind are desired state, written by operators and
    /// controllers.
    pub fn is_desired_state(self) -> bool {
        self.read_only_reason().is_none()
    }

    /// Returns why objects of this kind cannot be written over the API or in files, and what to do
    /// instead; `None` if they can.
    pub fn read_only_reason(self) -> Option<&'static str> {
        match self {
            Kind::Source => Some(
                "a Source object is written by the requests of its source below \
                 /v1/sources/SOURCE",
            ),
            Kind::Appliance => Some(
                "the Appliance object is derived from the configuration: set `name`, `zone`, \
                 `local`, `labels`, `annotations`, `cluster`, `external_cluster_ip`, `node_ports`, \
                 `ingress.address` or `egress.address` in the configuration file, and restart \
                 slowpath",
            ),
            Kind::Service | Kind::Backends | Kind::BgpPeeringPolicy | Kind::PrivateLinkService => {
                None
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Key of an object. Several sources may each have an object of the same kind and name; precedence
/// decides which of them is used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Kind of the object.
    pub kind: Kind,
    /// Name, unique within kind and source.
    pub name: Name,
    /// Source of the object.
    pub source: Source,
}

/// `Service shop/web of file`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.kind, self.name, self.source)
    }
}
