//! What is wanted of a service: its policy and its frontends.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::frontend::{self, FrontendSpec};
use super::health::HealthCheck;
use super::kinds::{
    Algorithm, Distribution, FailedTcp, FailedUdp, Mode, NatPolicy, RangesPolicy, TrafficPolicy,
};
use super::labels::Pairs;
use super::text::{self, is_default};
use crate::checked::{Prefix, TooBig};

/// The longest affinity timeout: 24 bits of seconds (194 days).
pub const AFFINITY_MAX_S: u32 = (1 << 24) - 1;

/// A service.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceSpec {
    /// What other components note.
    #[serde(skip_serializing_if = "is_default")]
    pub properties: Pairs,
    /// Translation between families.
    #[serde(skip_serializing_if = "is_default")]
    pub nat_policy: NatPolicy,
    /// Which backends serve packets from outside.
    #[serde(skip_serializing_if = "is_default")]
    pub external_policy: TrafficPolicy,
    /// Which backends serve packets from within.
    #[serde(skip_serializing_if = "is_default")]
    pub internal_policy: TrafficPolicy,
    /// Preference by place.
    #[serde(skip_serializing_if = "is_default")]
    pub distribution: Distribution,
    /// How packets reach the backends.
    pub mode: Mode,
    /// How a backend is chosen.
    #[serde(skip_serializing_if = "is_default")]
    pub algorithm: Algorithm,
    /// Host ports are bound to the loopback address: reachable from the machine only.
    #[serde(skip_serializing_if = "is_default")]
    pub loopback_host_port: bool,
    /// Packets for a proxy that is on this machine are left to the machine: no plane carries this
    /// out, so that `true` is refused.
    #[serde(skip_serializing_if = "is_default")]
    pub delegate_if_local: bool,
    /// Seconds for which a client address stays with its backend; 0 for no affinity.
    #[schemars(range(min = 0, max = 16777215))]
    #[serde(skip_serializing_if = "is_default")]
    pub affinity_s: u32,
    /// TCP port of the health responder; 0 for none.
    #[serde(skip_serializing_if = "is_default")]
    pub health_check_port: u16,
    /// How its backends are probed; none for not at all.
    #[serde(skip_serializing_if = "is_default")]
    pub health: Option<Arc<HealthCheck>>,
    /// Upper bound for the MSS option of passing SYNs, bytes; 0 for none.
    #[schemars(range(min = 0, max = 9460))]
    #[serde(skip_serializing_if = "is_default")]
    pub mss: u16,
    /// TCP established idle time, seconds; 0 for the appliance's.
    #[schemars(range(min = 0, max = 86400))]
    #[serde(skip_serializing_if = "is_default")]
    pub tcp_idle_s: u32,
    /// Maglev slots, one of the ten primes; 0 for the appliance's.
    #[serde(skip_serializing_if = "is_default")]
    pub table_size: u32,
    /// What becomes of packets too big for the way to the backend.
    #[serde(skip_serializing_if = "is_default")]
    pub too_big: TooBig,
    /// What becomes of UDP flows and pings whose backend is quarantined.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_udp: FailedUdp,
    /// What becomes of TCP connections whose backend is quarantined.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_tcp: FailedTcp,
    /// To a proxy on this machine.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_redirect: Option<Arc<ProxyRedirect>>,
    /// Who may use it; none for everybody.
    #[serde(skip_serializing_if = "is_default")]
    pub source_ranges: Option<Arc<SourceRanges>>,
    /// Names of its ports.
    #[serde(skip_serializing_if = "is_default")]
    pub port_names: Option<Arc<BTreeMap<Box<str>, u16>>>,
    /// What it answers on. Where the two policies differ, each exists for packets from within as
    /// well, without being written twice.
    #[serde(with = "frontend::list")]
    #[schemars(with = "Vec<frontend::Frontend>")]
    pub frontends: Vec<FrontendSpec>,
}

impl ServiceSpec {
    /// Whether the policies for packets from outside and from within differ, so that its addresses
    /// exist twice.
    pub fn has_two_reaches(&self) -> bool {
        self.external_policy != self.internal_policy
    }
}

/// To a proxy on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyRedirect {
    /// The proxy's port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Ports of the service that it is for; empty for all.
    #[serde(default)]
    pub ports: Vec<u16>,
}

impl ProxyRedirect {
    /// Whether packets to a service port go to the proxy.
    pub fn takes(&self, service_port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&service_port)
    }
}

/// Which client addresses may use the service.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceRanges {
    /// What becomes of clients inside.
    #[serde(default)]
    pub policy: RangesPolicy,
    /// Addresses and networks of clients; at least one.
    #[serde(with = "text::prefixes")]
    #[schemars(with = "Vec<String>")]
    pub prefixes: Vec<Prefix>,
}

impl SourceRanges {
    /// Whether clients inside are refused, and not the only ones admitted.
    pub fn denies(&self) -> bool {
        self.policy == RangesPolicy::Deny
    }
}
