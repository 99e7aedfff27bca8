//! The desired state of a backend, as files and objects write it.

use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

use super::address::Endpoint;
use super::kinds::BackendState;
use super::text::{self, is_default};
use crate::checked::ArmName;

/// A backend.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendSpec {
    /// Its address.
    #[serde(with = "text::address")]
    #[schemars(with = "String")]
    pub address: IpAddr,
    /// Its port; 0 keeps the frontend's. Modes tunnel and dsr: leave out.
    #[serde(default)]
    pub port: u16,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, a number, or `any`. Left out in a services file: the
    /// protocol of the service's frontends, where they have one.
    #[serde(default, with = "text::protocol")]
    #[schemars(with = "String")]
    pub protocol: u8,
    /// Names of the service's ports that it serves; empty for all.
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    pub port_names: SmallVec<[Arc<str>; 1]>,
    /// Share relative to the others; 0 is the same as state maintenance.
    #[serde(default = "hundred", skip_serializing_if = "is_hundred")]
    #[schemars(extend("default" = 100))]
    pub weight: u16,
    /// `active`, `terminating` (keeps its flows, gets new ones only where nothing is active),
    /// `terminating-not-serving` (gets none), `quarantined` or `maintenance`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: BackendState,
    /// `ingress` or `egress`; left out for egress where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<ArmName>,
    /// Its node, zone, zone hints and cluster; none where all of them are left out.
    #[serde(flatten, with = "placement")]
    #[schemars(with = "Place")]
    pub place: Option<Arc<Place>>,
    /// A source address reserved for probes: what this machine sends from it goes to exactly this
    /// backend, through the service's tunnel; left out for none. Answers come back by the tunnel,
    /// or plain from a backend that answers directly and has a route for it to this machine. With
    /// `health`, the machine gets it by itself, on `lo`, until no backend wants it; one that is
    /// there already, on any interface, is left alone. With `plane = "xdp"` answers come in by the
    /// NIC from the frontend's address, which the kernel must not take for forged: `rp_filter` 0,
    /// or 2 and any route there.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text::optional_address")]
    #[schemars(with = "Option<String>")]
    pub probe: Option<IpAddr>,
}

/// Where a backend runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Place {
    /// The node on which it runs; empty counts as local everywhere.
    #[serde(skip_serializing_if = "is_default")]
    pub node: Box<str>,
    /// The zone in which it runs; empty for unknown.
    #[serde(skip_serializing_if = "is_default")]
    pub zone: Box<str>,
    /// Zones that are asked to use it; empty for no hint. Hints count only where all of a
    /// frontend's serving backends have one.
    #[serde(skip_serializing_if = "is_default")]
    pub for_zones: Vec<Box<str>>,
    /// Number of the cluster that it is of; 0 for this one.
    #[serde(skip_serializing_if = "is_default")]
    pub cluster: u32,
}

fn hundred() -> u16 {
    100
}

fn is_hundred(weight: &u16) -> bool {
    *weight == 100
}

/// The keys of a place lie beside the backend's own.
mod placement {
    use super::{Arc, Deserialize, Deserializer, Place, Serialize, Serializer};

    pub fn serialize<S: Serializer>(place: &Option<Arc<Place>>, to: S) -> Result<S::Ok, S::Error> {
        place.as_deref().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Place>>, D::Error> {
        let place = Place::deserialize(from)?;
        Ok((place != Place::default()).then(|| Arc::new(place)))
    }
}

impl BackendSpec {
    /// An active one of weight 100 that serves all ports.
    pub fn new(address: IpAddr, port: u16, protocol: u8) -> BackendSpec {
        BackendSpec {
            address,
            port,
            protocol,
            port_names: SmallVec::new(),
            weight: 100,
            state: BackendState::Active,
            arm: None,
            place: None,
            probe: None,
        }
    }

    /// Where it is.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { addr: self.address, port: self.port, protocol: self.protocol }
    }
}
