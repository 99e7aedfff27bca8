//! Choices for services, frontends and backends: traffic policies, algorithms, types and states.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Backends that may serve, selected by location.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrafficPolicy {
    /// All backends of the cluster.
    #[default]
    #[serde(alias = "Cluster")]
    Cluster,
    /// Backends on nodes or in zones that are local to the appliance.
    #[serde(alias = "Local")]
    Local,
}

/// Preferred backends among those that may serve (Kubernetes `trafficDistribution`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// No preference.
    #[default]
    #[serde(alias = "Any")]
    Any,
    /// Backends in the appliance's zone, or all if none is in it.
    #[serde(alias = "PreferSameZone")]
    SameZone,
    /// Backends on a local node, else those in the zone, else all.
    #[serde(alias = "PreferSameNode")]
    SameNode,
}

impl Distribution {
    /// Returns the name that Kubernetes uses.
    pub fn kubernetes_name(self) -> &'static str {
        match self {
            Distribution::Any => "Any",
            Distribution::SameZone => "PreferSameZone",
            Distribution::SameNode => "PreferSameNode",
        }
    }
}

/// How a backend is selected for a new flow.
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
    /// By a consistent hash of the flow (Maglev).
    #[default]
    Maglev,
    /// By a hash of the flow and the weights.
    Random,
}

/// How UDP flows and pings are handled whose backend is quarantined or no longer in any source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailedUdp {
    /// The client's next packet goes to another backend.
    #[default]
    Move,
    /// The flow keeps its backend until it is idle.
    Keep,
}

/// How TCP connections are handled whose backend is quarantined or no longer in any source. They
/// cannot move, because another backend does not have the connection's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailedTcp {
    /// The connection keeps its backend until it is idle.
    #[default]
    Keep,
    /// The client's next segment is answered with a reset.
    Reset,
}

/// Translation between address families.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NatPolicy {
    /// None: backends are of the frontend's family.
    #[default]
    None,
    /// IPv4 frontends, IPv6 backends.
    Nat46,
    /// IPv6 frontends, IPv4 backends.
    Nat64,
}

/// Whether the clients in source ranges are admitted or denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RangesPolicy {
    /// Only clients in the ranges are admitted.
    #[default]
    Allow,
    /// All clients outside the ranges are admitted.
    Deny,
}

/// Origin of a frontend's address.
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
    /// An address assigned by a load balancer.
    #[default]
    LoadBalancer,
    /// An address routed to the appliance by other means.
    #[serde(rename = "ExternalIPs")]
    ExternalIps,
    /// A port of a single machine.
    HostPort,
    /// An address whose packets are redirected on this machine.
    LocalRedirect,
}

impl FrontendKind {
    /// Returns the name used in tables and dumps.
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

/// State of a backend as given by a source. A service's backends are sorted in the order of the
/// variants.
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
    /// Serves new flows.
    #[default]
    Active,
    /// Keeps its flows; gets new ones only if no backend is active.
    Terminating,
    /// Keeps its flows; never gets new ones.
    TerminatingNotServing,
    /// Failed its health checks: gets no new flows. The service decides whether it keeps its flows
    /// (`failed_udp`, `failed_tcp`).
    Quarantined,
    /// Taken out by the operator, or of weight 0: gets no new flows and has no Maglev slots. It
    /// keeps its flows.
    Maintenance,
}

impl BackendState {
    /// Returns the name used in dumps and tables.
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
