//! Desired state of a backend, in the form shared by services files, objects and the API.

use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use super::address::Endpoint;
use super::kinds::BackendState;
use super::text::{self, is_default};
use crate::checked::ArmName;

/// A backend of a service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendSpec {
    /// IP address of the backend.
    #[serde(with = "text::address")]
    #[schemars(with = "String")]
    pub address: IpAddr,
    /// Destination port; 0 keeps the frontend's. Must be omitted with modes tunnel and dsr.
    #[serde(default)]
    pub port: u16,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, a number, or `any`. Omitted in a services file: the
    /// protocol of the service's frontends, if they have the same one.
    #[serde(default, with = "text::protocol")]
    #[schemars(with = "String")]
    pub protocol: u8,
    /// Names of the service's ports that the backend serves; empty for all.
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    pub port_names: SmallVec<[Arc<str>; 1]>,
    /// Weight relative to the other backends; 0 is equivalent to state maintenance.
    #[serde(default = "hundred", skip_serializing_if = "is_hundred")]
    #[schemars(extend("default" = 100))]
    pub weight: u16,
    /// `active`, `terminating` (keeps its flows, gets new ones only if no backend is active),
    /// `terminating-not-serving` (keeps its flows, gets no new ones), `quarantined` (treated as
    /// having failed its health checks) or `maintenance`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: BackendState,
    /// Arm behind which the backend is, `ingress` or `egress`; omitted for egress if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<ArmName>,
    /// Node, zone, zone hints and cluster; none if all of them are omitted.
    #[serde(flatten, with = "placement")]
    #[schemars(with = "Placement")]
    pub placement: Option<Arc<Placement>>,
    /// Source address reserved for health checks: packets that this machine sends from it go to
    /// exactly this backend through the service's tunnel; omitted for none. Replies return through
    /// the tunnel, or without a tunnel from a backend that replies directly and has a route for the
    /// address to this machine. With `health`, the address is added to `lo` while a backend uses
    /// it, unless an interface has it already. With `plane = "xdp"` replies arrive on the NIC with
    /// the frontend's source address, which the kernel must accept: the larger `rp_filter` of `all`
    /// and of the NIC's interface must be 0, or 2 with any route to it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional_address")]
    #[schemars(with = "Option<String>")]
    pub probe: Option<IpAddr>,
}

/// Location of a backend: node, zone, zone hints and cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Place")]
pub struct Placement {
    /// Node on which the backend runs; empty counts as local everywhere.
    #[serde(skip_serializing_if = "is_default")]
    pub node: Box<str>,
    /// Zone in which the backend runs; empty for unknown.
    #[serde(skip_serializing_if = "is_default")]
    pub zone: Box<str>,
    /// Zones that should use the backend; empty for no hint. Hints apply only if all serving
    /// backends of a frontend have one.
    #[serde(skip_serializing_if = "is_default")]
    pub for_zones: Vec<Box<str>>,
    /// Number of the backend's cluster; 0 for this one.
    #[serde(skip_serializing_if = "is_default")]
    pub cluster: u32,
}

fn hundred() -> u16 {
    100
}

fn is_hundred(weight: &u16) -> bool {
    *weight == 100
}

/// Serialization of a placement: its keys are flattened into those of the backend.
mod placement {
    use super::{Arc, Deserialize, Deserializer, Placement, Serialize, Serializer};

    pub fn serialize<S: Serializer>(
        placement: &Option<Arc<Placement>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        placement.as_deref().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Arc<Placement>>, D::Error> {
        let placement = Placement::deserialize(from)?;
        Ok((placement != Placement::default()).then(|| Arc::new(placement)))
    }
}

impl BackendSpec {
    /// Creates an active backend of weight 100 that serves all ports.
    pub fn new(address: IpAddr, port: u16, protocol: u8) -> BackendSpec {
        BackendSpec {
            address,
            port,
            protocol,
            port_names: SmallVec::new(),
            weight: 100,
            state: BackendState::Active,
            arm: None,
            placement: None,
            probe: None,
        }
    }

    /// Returns the address, port and protocol of the backend.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { addr: self.address, port: self.port, protocol: self.protocol }
    }
}
