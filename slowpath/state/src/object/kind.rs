//! Kinds of objects, and the keys by which objects are found.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{Name, Source};

/// All kinds: the variant, its name, and its name for many.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $one:literal, $many:literal;)*) => {
        /// What sort of thing an object is.
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
            JsonSchema,
        )]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $one)] $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self { $(Kind::$kind => $one,)* }
            }

            /// Its name for many, as in commands and addresses.
            pub fn many(self) -> &'static str {
                match self { $(Kind::$kind => $many,)* }
            }
        }
    };
}

kinds! {
    /// A service with its frontends.
    Service = "Service", "services";
    /// Backends of a service: one source's list, or a part of it.
    Backends = "Backends", "backends";
    /// This appliance as its configuration says: where it is, and what it counts as local.
    Appliance = "Appliance", "appliances";
    /// A source that speaks over the API: its lease, and what it said last.
    Source = "Source", "sources";
    /// Whom an appliance speaks BGP with, and what it announces.
    BgpPeeringPolicy = "BgpPeeringPolicy", "bgp-peering-policies";
    /// An Azure Private Link Service in front of an internal load balancer, and its endpoint.
    PrivateLinkService = "PrivateLinkService", "private-link-services";
}

impl Kind {
    /// Whether objects of this kind say what is wanted, and are written by people and machines.
    pub fn is_wanted(self) -> bool {
        self.read_only().is_none()
    }

    /// Why objects of this kind are written neither over the API nor in files, and what to do
    /// instead; none for a kind that is.
    pub fn read_only(self) -> Option<&'static str> {
        match self {
            Kind::Source => Some(
                "a source's own object is written by the source, with what it asks below \
                 /v1/sources/SOURCE",
            ),
            Kind::Appliance => Some(
                "the appliance is as its configuration says: set `name`, `zone`, `local`, \
                 `labels`, `annotations`, `cluster`, `external_cluster_ip`, `node_ports`, \
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

/// Which object. Sources may each say something under one name: precedence decides who is heard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its name, unique in a kind of one source.
    pub name: Name,
    /// Who said it.
    pub source: Source,
}

/// `Service shop/web of file`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.kind, self.name, self.source)
    }
}
