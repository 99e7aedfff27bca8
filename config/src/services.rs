//! The services: what the services file says, checked.

mod check;
mod file;
mod health;
mod policy;

pub(crate) use check::{check, schema};
pub use health::{HealthCheck, ProbeKind, Timing, Wrong, statuses};

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::checked::{ArmName, Prefix, TooBig};

/// The services file, checked against itself and against the configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Services {
    /// The file permits any removal.
    pub allow_removal: bool,
    /// In the order of the file; names are unique.
    pub services: Vec<Service>,
}

/// One service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// `[cluster/]namespace/name`, 1..=120 bytes.
    pub name: String,
    /// How its packets reach the backends, with what belongs to it.
    pub mode: Mode,
    /// What becomes of packets too big for the way to the backend.
    pub too_big: TooBig,
    /// What becomes of UDP flows whose backend has failed.
    pub failed_udp: FailedUdp,
    /// What becomes of TCP connections whose backend has failed.
    pub failed_tcp: FailedTcp,
    /// Upper bound for the MSS option of passing SYNs, bytes; 0 for none.
    pub mss: u16,
    /// TCP established idle time in seconds; 0 for `flows.tcp_established_s`.
    pub tcp_idle_s: u32,
    /// Maglev slots, one of [`crate::checked::MAGLEV_SIZES`].
    pub table_size: u32,
    /// How it is served beyond that.
    pub policy: Policy,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// What it answers on, at least one, unique over all services.
    pub frontends: Vec<Frontend>,
    /// Who serves it; empty means that its packets are dropped as `no-backend`.
    pub backends: Vec<Backend>,
}

/// How packets reach the backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Rewritten, source NAT to an address of ours. Frontends and backends are of one family.
    #[default]
    Nat,
    /// In a tunnel with a return leg.
    Tunnel(BackendTunnel),
    /// In a tunnel, for plain flows: the backend answers by itself.
    Dsr(BackendTunnel),
}

/// The tunnel to a service's backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BackendTunnel {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// UDP destination port; 0 for IPIP.
    pub port: u16,
    /// Network identifier, 24 bits; 0 for IPIP and GUE.
    #[serde(default)]
    pub vni: u32,
    /// Fill in the outer UDP checksum where it could be zero.
    #[serde(default)]
    pub outer_checksum: bool,
    /// Set DF on the outer IPv4 header.
    #[serde(default = "yes")]
    pub dont_fragment: bool,
}

fn yes() -> bool {
    true
}

impl BackendTunnel {
    /// A tunnel of that kind of which nothing else is said.
    pub fn new(kind: TunnelKind) -> BackendTunnel {
        let port = match kind {
            TunnelKind::Geneve => 6081,
            TunnelKind::Vxlan => 4789,
            TunnelKind::Gue => 6080,
            TunnelKind::Ipip => 0,
        };
        BackendTunnel { kind, port, vni: 0, outer_checksum: false, dont_fragment: true }
    }
}

/// What a tunnel is made of; the numbers are those of the tables' records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum TunnelKind {
    /// RFC 8926, UDP 6081.
    Geneve = 1,
    /// RFC 7348, UDP 4789.
    Vxlan = 2,
    /// RFC 2003, 2473, 4213; no port.
    Ipip = 3,
    /// Generic UDP encapsulation, variant 1, UDP 6080.
    Gue = 4,
}

/// Who may use a service, and which of its backends serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// Which backends serve packets from outside.
    pub external: TrafficPolicy,
    /// Which backends serve packets from within.
    pub internal: TrafficPolicy,
    /// Preference by place.
    pub distribution: Distribution,
    /// How a backend is chosen.
    pub algorithm: Algorithm,
    /// Translation between families.
    pub nat: NatPolicy,
    /// Seconds for which a client address stays with its backend, at most 2^24-1; 0 for none.
    pub affinity_s: u32,
    /// Client addresses that `source_policy` is about; empty for everybody.
    pub source_ranges: Vec<Prefix>,
    /// What becomes of them.
    pub source_policy: RangesPolicy,
    /// TCP port of the health responder; 0 for none.
    pub health_check_port: u16,
    /// How its backends are probed; none for not at all.
    pub health: Option<HealthCheck>,
    /// Port of the proxy on this machine that packets go to, and the service's ports that it is
    /// for, none for all.
    pub proxy_redirect: Option<(u16, Vec<u16>)>,
}

/// Which backends may serve, by where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrafficPolicy {
    /// All.
    #[default]
    #[serde(alias = "Cluster")]
    Cluster,
    /// Those on nodes or in zones that the appliance calls local.
    #[serde(alias = "Local")]
    Local,
}

/// Which of the backends that may serve are preferred (Kubernetes `trafficDistribution`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// None.
    #[default]
    #[serde(alias = "Any")]
    Any,
    /// Those of the appliance's zone, all where there are none.
    #[serde(alias = "PreferSameZone")]
    SameZone,
    /// Those of a local node, then of the zone, then all.
    #[serde(alias = "PreferSameNode")]
    SameNode,
}

impl Distribution {
    /// What Kubernetes calls it.
    pub fn kubernetes_name(self) -> &'static str {
        match self {
            Distribution::Any => "Any",
            Distribution::SameZone => "PreferSameZone",
            Distribution::SameNode => "PreferSameNode",
        }
    }
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
    Deserialize,
    Serialize,
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

/// What becomes of UDP flows and pings whose backend is quarantined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailedUdp {
    /// The client's next packet goes to another backend.
    #[default]
    Move,
    /// They stay with it until they are idle.
    Keep,
}

/// What becomes of TCP connections whose backend is quarantined. They cannot move: another backend
/// does not know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailedTcp {
    /// They stay with it until they are idle.
    #[default]
    Keep,
    /// The client's next segment is answered with a reset.
    Reset,
}

/// Whether packets are translated between families.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
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

/// What becomes of the clients in source ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RangesPolicy {
    /// They alone are admitted.
    #[default]
    Allow,
    /// All others are admitted.
    Deny,
}

/// What made an address a frontend.
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
    Deserialize,
    Serialize,
    JsonSchema,
)]
pub enum FrontendKind {
    /// The service's own address within the cluster.
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// A port on each address of the appliance.
    NodePort,
    /// An address given by a load balancer.
    #[default]
    LoadBalancer,
    /// An address that somebody routes here.
    #[serde(rename = "ExternalIPs")]
    ExternalIps,
    /// A port of one machine.
    HostPort,
    /// A literal address that is redirected on this machine.
    LocalRedirect,
}

impl FrontendKind {
    /// Its name in tables and dumps.
    pub fn as_str(self) -> &'static str {
        match self {
            FrontendKind::ClusterIp => "ClusterIP",
            FrontendKind::NodePort => "NodePort",
            FrontendKind::LoadBalancer => "LoadBalancer",
            FrontendKind::ExternalIps => "ExternalIPs",
            FrontendKind::HostPort => "HostPort",
            FrontendKind::LocalRedirect => "LocalRedirect",
        }
    }
}

/// What a service answers on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frontend {
    /// One address or a network.
    pub prefix: Prefix,
    /// Port; 0 for any.
    pub port: u16,
    /// IP protocol number; 0 for any.
    pub protocol: u8,
    /// Gateway endpoint (GENEVE endpoint id, external VNI) that it is limited to; 0 for all.
    pub scope: u64,
    /// What made it one.
    pub kind: FrontendKind,
    /// Restricts backends to those of a port name; empty for all.
    pub port_name: String,
}

/// Who serves. The same address and port in several services are one backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Its address.
    pub addr: IpAddr,
    /// Its port; 0 keeps the port of the frontend (always 0 in tunnel and dsr).
    pub port: u16,
    /// Share relative to the service's other backends, 0..=65535; 0 goes with `Maintenance`.
    pub weight: u16,
    /// Who gets new flows.
    pub state: BackendState,
    /// The arm behind which it is.
    pub arm: ArmName,
    /// Source address whose packets on the exception path go to exactly this backend.
    pub probe: Option<IpAddr>,
    /// Its node; empty counts as local everywhere.
    pub node: String,
    /// Its zone; empty for unknown.
    pub zone: String,
    /// Names of the service's ports that it serves; empty for all.
    pub port_names: Vec<String>,
}

/// What a source says of a backend. The order is that of a service's slots.
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
    Deserialize,
    Serialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum BackendState {
    /// Serves.
    #[default]
    Active,
    /// Keeps its flows; gets new ones only where nothing is active.
    Terminating,
    /// Keeps its flows; never gets new ones.
    TerminatingNotServing,
    /// Failed its checks: keeps its flows, gets no new ones.
    Quarantined,
    /// Taken out by the operator, or of weight 0: no slot at all.
    Maintenance,
}

impl BackendState {
    /// Its name in dumps and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            BackendState::Active => "active",
            BackendState::Terminating => "terminating",
            BackendState::TerminatingNotServing => "terminating-not-serving",
            BackendState::Quarantined => "quarantined",
            BackendState::Maintenance => "maintenance",
        }
    }
}
