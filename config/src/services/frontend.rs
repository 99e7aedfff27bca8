//! What is wanted of a frontend, and how it is written.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::address::{Address, Reach};
use super::kinds::FrontendKind;
use super::text::{self, is_default};

/// What is wanted of a frontend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrontendSpec {
    /// What it answers on.
    pub address: Address,
    /// What made it one.
    pub kind: FrontendKind,
    /// Restricts backends to those of a port name; none for all.
    pub port_name: Option<Arc<str>>,
    /// The port as the service defines it; equals the address's unless it is a node port.
    pub service_port: u16,
}

impl FrontendSpec {
    /// A frontend of all the service's backends.
    pub fn new(address: Address, kind: FrontendKind) -> FrontendSpec {
        FrontendSpec { address, kind, port_name: None, service_port: address.port }
    }
}

/// A frontend as it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Frontend {
    /// An address, or a network.
    address: String,
    /// Port; 0 for any.
    #[serde(default)]
    port: u16,
    /// `tcp`, `udp`, `sctp`, `icmp`, `icmpv6`, a number, or `any`.
    #[serde(default, with = "text::protocol")]
    #[schemars(with = "String")]
    protocol: u8,
    /// What made the address a frontend.
    #[serde(rename = "type", default = "load_balancer")]
    kind: FrontendKind,
    /// Restricts backends to those of a port name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port_name: Option<Arc<str>>,
    /// The port as the service defines it; `port` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_port: Option<u16>,
    /// Whose packets.
    #[serde(default, skip_serializing_if = "is_default")]
    reach: Reach,
    /// Gateway endpoint in hexadecimal; none for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
}

fn load_balancer() -> FrontendKind {
    FrontendKind::LoadBalancer
}

impl From<&FrontendSpec> for Frontend {
    fn from(said: &FrontendSpec) -> Frontend {
        let Address { prefix, port, protocol, reach, endpoint } = said.address;
        Frontend {
            address: text::prefix_text(&prefix),
            port,
            protocol,
            kind: said.kind,
            port_name: said.port_name.clone(),
            service_port: (said.service_port != port).then_some(said.service_port),
            reach,
            scope: (endpoint != 0).then(|| format!("{endpoint:#x}")),
        }
    }
}

impl TryFrom<Frontend> for FrontendSpec {
    type Error = String;

    fn try_from(written: Frontend) -> Result<FrontendSpec, String> {
        let scope = written.scope.as_deref().map(|scope| {
            let digits = scope.strip_prefix("0x").unwrap_or(scope);
            u64::from_str_radix(digits, 16).map_err(|_| {
                format!("`{scope}` is no endpoint, expected 0x1 to 0xffffffffffffffff")
            })
        });
        let address = Address {
            prefix: text::prefix_of(&written.address)?,
            port: written.port,
            protocol: written.protocol,
            reach: written.reach,
            endpoint: scope.transpose()?.unwrap_or(0),
        };
        Ok(FrontendSpec {
            address,
            kind: written.kind,
            port_name: written.port_name,
            service_port: written.service_port.unwrap_or(written.port),
        })
    }
}

/// Lists of frontends for serde.
pub(super) mod list {
    use super::{Deserialize, Deserializer, Frontend, FrontendSpec, Serializer};

    pub fn serialize<S: Serializer>(
        list: &[FrontendSpec],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(Frontend::from))
    }

    /// A frontend that is told wrong by its own conversion keeps its place in the path.
    #[derive(Deserialize)]
    #[serde(try_from = "Frontend")]
    struct One(FrontendSpec);

    impl TryFrom<Frontend> for One {
        type Error = String;

        fn try_from(written: Frontend) -> Result<One, String> {
            FrontendSpec::try_from(written).map(One)
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<FrontendSpec>, D::Error> {
        Ok(Vec::<One>::deserialize(from)?.into_iter().map(|One(said)| said).collect())
    }
}
