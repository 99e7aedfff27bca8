//! A service: a name and its policy. A row of the table of services.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::checked::{Prefix, TooBig};
use config::services::{FailedTcp, FailedUdp, HealthCheck, Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{Name, Source};

/// Keys and values: labels, annotations, properties. None for none, since most have none.
pub type Pairs = Option<Arc<BTreeMap<Box<str>, Box<str>>>>;

/// Whether packets are translated between families.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NatPolicy {
    /// Backends are of the frontend's family.
    #[default]
    None,
    /// IPv4 frontends, IPv6 backends.
    Nat46,
    /// IPv6 frontends, IPv4 backends.
    Nat64,
}

/// Which backends may serve, by where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub enum TrafficPolicy {
    /// All.
    #[default]
    Cluster,
    /// Those on nodes or in zones that the appliance calls local.
    Local,
}

/// Which of the backends that may serve are preferred (Kubernetes `trafficDistribution`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub enum Distribution {
    /// None.
    #[default]
    Any,
    /// Those of the appliance's zone, all where there are none (also `PreferClose`).
    PreferSameZone,
    /// Those of a local node, then of the zone, then all.
    PreferSameNode,
}

/// How a backend is chosen for a new flow.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// By a consistent hash of the flow.
    #[default]
    Maglev,
    /// Any, by weight.
    Random,
}

/// The longest affinity timeout: 24 bits of seconds (194 days).
pub const AFFINITY_MAX_S: u32 = (1 << 24) - 1;

/// Packets go to a proxy on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProxyRedirect {
    /// The proxy's port.
    pub port: u16,
    /// Service ports that it is for; empty for all.
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRanges {
    /// The prefixes are refused, and not the only ones admitted.
    pub deny: bool,
    /// At least one.
    pub prefixes: Vec<Prefix>,
}

/// One service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its name, unique.
    pub name: Name,
    /// Who said it.
    pub source: Source,
    /// Labels as on the object.
    pub labels: Pairs,
    /// Annotations as on the object.
    pub annotations: Pairs,
    /// What other components note.
    pub properties: Pairs,
    /// Translation between families.
    pub nat_policy: NatPolicy,
    /// For packets from outside.
    pub external_policy: TrafficPolicy,
    /// For packets from within.
    pub internal_policy: TrafficPolicy,
    /// Preference by place.
    pub distribution: Distribution,
    /// How packets reach the backends.
    pub mode: Mode,
    /// How a backend is chosen.
    pub algorithm: Algorithm,
    /// Host ports are bound to the loopback address: reachable from the machine only.
    pub loopback_host_port: bool,
    /// Seconds for which a client address stays with its backend, 1 to [`AFFINITY_MAX_S`]; 0 for
    /// no affinity.
    pub affinity_s: u32,
    /// TCP port of the health responder; 0 for none.
    pub health_check_port: u16,
    /// How its backends are probed; none for not at all.
    pub health: Option<Arc<HealthCheck>>,
    /// Upper bound for the MSS option of passing SYNs, bytes; 0 for none.
    pub mss: u16,
    /// TCP established idle time, seconds; 0 for the appliance's.
    pub tcp_idle_s: u32,
    /// Maglev slots, one of the ten primes; 0 for the appliance's.
    pub table_size: u32,
    /// What becomes of packets too big for the way to the backend.
    pub too_big: TooBig,
    /// What becomes of UDP flows and pings whose backend has failed.
    pub failed_udp: FailedUdp,
    /// What becomes of TCP connections whose backend has failed.
    pub failed_tcp: FailedTcp,
    /// To a proxy on this machine.
    pub redirect: Option<Arc<ProxyRedirect>>,
    /// Who may use it; none for everybody.
    pub source_ranges: Option<Arc<SourceRanges>>,
    /// Names of its ports; few.
    pub port_names: Option<Arc<BTreeMap<Box<str>, u16>>>,
}

impl Service {
    /// A service of which nothing but its name and source is said: mode NAT, all defaults.
    pub fn new(name: Name, source: Source) -> Service {
        Service {
            name,
            source,
            labels: None,
            annotations: None,
            properties: None,
            nat_policy: NatPolicy::None,
            external_policy: TrafficPolicy::Cluster,
            internal_policy: TrafficPolicy::Cluster,
            distribution: Distribution::Any,
            mode: Mode::Nat,
            algorithm: Algorithm::Maglev,
            loopback_host_port: false,
            affinity_s: 0,
            health_check_port: 0,
            health: None,
            mss: 0,
            tcp_idle_s: 0,
            table_size: 0,
            too_big: TooBig::default(),
            failed_udp: FailedUdp::default(),
            failed_tcp: FailedTcp::default(),
            redirect: None,
            source_ranges: None,
            port_names: None,
        }
    }

    /// Whether the policies for packets from outside and from within differ, so that its addresses
    /// exist twice.
    pub fn has_two_reaches(&self) -> bool {
        self.external_policy != self.internal_policy
    }
}
