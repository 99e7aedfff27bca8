//! Desired state of a frontend, and its representation as keys.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::address::{Address, TrafficScope};
use super::kinds::FrontendKind;
use super::text::{self, is_default};
use crate::checked::Prefix;
use crate::protocol;
use crate::validation_error::ValidationError;

/// Desired state of a frontend.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Frontend", into = "Frontend")]
#[schemars(with = "Frontend")]
pub struct FrontendSpec {
    /// Address, port and protocol of the frontend.
    pub address: Address,
    /// Origin of the address.
    pub kind: FrontendKind,
    /// Restricts backends to those with this port name; `None` for all backends.
    pub port_name: Option<Arc<str>>,
    /// The port as the service defines it, which for node ports differs from the port of `address`.
    pub service_port: u16,
}

impl FrontendSpec {
    /// Creates a frontend that uses all backends of the service.
    pub fn new(address: Address, kind: FrontendKind) -> FrontendSpec {
        FrontendSpec { address, kind, port_name: None, service_port: address.port }
    }

    /// Returns a validation error if the frontend has a port but its protocol has no ports; `at` is
    /// the path of the frontend. Files, objects and the API all reject it.
    pub(super) fn fault(&self, at: &str) -> Option<ValidationError> {
        let (port, protocol) = (self.address.port, self.address.protocol);
        let fault = match protocol {
            _ if port == 0 => return None,
            6 | 17 | 132 => return None,
            0 => "protocol any has no ports".to_owned(),
            other => format!("protocol {} has no ports", protocol::name(other)),
        };
        let remedy = "write protocol tcp, udp or sctp (one frontend each), or port 0";
        Some(ValidationError::new(&format!("{at}.port"), fault, remedy))
    }
}

/// A frontend as written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Frontend {
    /// IP address, or a network (`10.0.0.0/8`, `0.0.0.0/0`).
    #[serde(with = "text::prefix")]
    #[schemars(with = "String")]
    address: Prefix,
    /// Port; 0 for any.
    #[serde(default)]
    port: u16,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, `sctp`, a number, or `any` (then the port must be 0).
    #[serde(default, with = "text::protocol")]
    #[schemars(with = "String")]
    protocol: u8,
    /// Type of the address: `LoadBalancer`, `ClusterIP`, `NodePort` (address 0.0.0.0 or ::),
    /// `ExternalIPs`, `HostPort` or `LocalRedirect`.
    #[serde(rename = "type", default = "load_balancer")]
    kind: FrontendKind,
    /// Name of the port that backends must serve; omitted for all backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port_name: Option<Arc<str>>,
    /// The port as the service defines it; omitted for `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    service_port: Option<u16>,
    /// Scope of the traffic policy: `external` for packets from outside the cluster, `internal` for
    /// packets from within.
    #[serde(default, skip_serializing_if = "is_default")]
    traffic_scope: TrafficScope,
    /// Restricts the frontend to packets of one gateway endpoint, in hexadecimal (`0x1f2e...`; for
    /// azure the external VNI); omitted for all.
    #[serde(default, skip_serializing_if = "is_default", with = "text::scope")]
    #[schemars(with = "String")]
    scope: u64,
}

fn load_balancer() -> FrontendKind {
    FrontendKind::LoadBalancer
}

impl From<FrontendSpec> for Frontend {
    fn from(spec: FrontendSpec) -> Frontend {
        let Address { prefix, port, protocol, traffic_scope, endpoint } = spec.address;
        Frontend {
            address: prefix,
            port,
            protocol,
            kind: spec.kind,
            port_name: spec.port_name,
            service_port: (spec.service_port != port).then_some(spec.service_port),
            traffic_scope,
            scope: endpoint,
        }
    }
}

impl From<Frontend> for FrontendSpec {
    fn from(written: Frontend) -> FrontendSpec {
        let Frontend { address: prefix, port, protocol, traffic_scope, scope: endpoint, .. } =
            written;
        FrontendSpec {
            address: Address { prefix, port, protocol, traffic_scope, endpoint },
            kind: written.kind,
            port_name: written.port_name.filter(|name| !name.is_empty()),
            service_port: written.service_port.unwrap_or(port),
        }
    }
}
