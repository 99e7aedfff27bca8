//! What a service, a frontend and a backend may be: tunnels, policies, kinds and states.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
