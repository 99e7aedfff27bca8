//! What is wanted of backends: who serves a service, as one source says it.

use std::net::IpAddr;
use std::sync::Arc;

use config::checked::ArmName;
use config::services::{is_default, text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::described::Described;
use super::refusal::Refusal;
use crate::address::Endpoint;
use crate::backend::{Place, State};
use crate::name::Name;

/// Backends of a service. A source may give several such lists for one service: they are added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendsSpec {
    /// Whose they are; the service need not exist yet.
    #[schemars(with = "String")]
    pub service: Name,
    /// In any order, each endpoint once.
    #[serde(default)]
    pub endpoints: Vec<Member>,
}

/// One backend in the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its address.
    pub address: IpAddr,
    /// Its port; 0 keeps the frontend's.
    #[serde(default)]
    pub port: u16,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, a number, or `any`.
    #[serde(default, with = "text::protocol")]
    #[schemars(with = "String")]
    pub protocol: u8,
    /// Names of the service's ports that it serves; empty for all.
    #[serde(default, skip_serializing_if = "SmallVec::is_empty")]
    pub port_names: SmallVec<[Arc<str>; 1]>,
    /// Share relative to the service's other backends; 0 is the same as maintenance.
    #[serde(default = "hundred", skip_serializing_if = "is_hundred")]
    pub weight: u16,
    /// What the source says of it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: State,
    /// The arm behind which it is; the one of backends where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<ArmName>,
    /// Where it runs, and for whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Arc<Place>>,
    /// Source address whose packets on the exception path go to exactly this backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<IpAddr>,
}

fn hundred() -> u16 {
    100
}

fn is_hundred(weight: &u16) -> bool {
    *weight == 100
}

impl Member {
    /// An active one of weight 100 that serves all ports.
    pub fn new(address: IpAddr, port: u16, protocol: u8) -> Member {
        Member {
            address,
            port,
            protocol,
            port_names: SmallVec::new(),
            weight: 100,
            state: State::Active,
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

impl Described for BackendsSpec {
    fn check(&self) -> Result<(), Refusal> {
        let mut seen = std::collections::HashSet::with_capacity(self.endpoints.len());
        for (i, member) in self.endpoints.iter().enumerate() {
            let field = |name: &str| format!("spec.endpoints[{i}]{name}");
            let addr = member.address;
            let broadcast = matches!(addr, IpAddr::V4(v4) if v4.is_broadcast());
            if addr.is_unspecified() || addr.is_multicast() || addr.is_loopback() || broadcast {
                let wrong = format!("no backend can have {addr}");
                let allowed = "write a unicast address, not 0.0.0.0 or loopback";
                return Err(Refusal::new(field(".address"), wrong, allowed));
            }
            if member.port != 0 && !matches!(member.protocol, 0 | 6 | 17 | 132) {
                let wrong = format!("protocol {} has no ports", member.protocol);
                let allowed = "write protocol tcp, udp or sctp, or leave the port out";
                return Err(Refusal::new(field(".port"), wrong, allowed));
            }
            if !seen.insert(member.endpoint()) {
                let wrong = format!("{} is there twice", member.endpoint());
                return Err(Refusal::new(field(""), wrong, "remove one of them"));
            }
        }
        Ok(())
    }
}
