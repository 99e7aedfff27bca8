//! Kubernetes Services and EndpointSlices: the fields that are read, with the names of the
//! Kubernetes API.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use crate::labels::Pairs;
use config::services::TrafficPolicy;

/// `metadata` of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Name within the namespace.
    pub name: String,
    /// Namespace; empty for `default`.
    pub namespace: String,
    /// Labels.
    pub labels: Pairs,
    /// Annotations.
    pub annotations: Pairs,
}

impl Meta {
    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(|value| &**value)
    }
}

/// `v1` `Service`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: ServiceFields,
    /// `status`.
    pub status: ServiceStatus,
}

/// `spec` of a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceFields {
    /// Type of the service.
    #[serde(rename = "type")]
    pub kind: ServiceType,
    /// First cluster address; the text `None` for a headless service.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// All cluster addresses.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    /// Address families of the service, used for node ports; if empty, those of the cluster
    /// addresses.
    #[serde(rename = "ipFamilies")]
    pub ip_families: Vec<Family>,
    /// Ports of the service.
    pub ports: Vec<ServicePort>,
    /// Addresses that are routed to the nodes by other means.
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<IpAddr>,
    /// Networks of the clients that may use the load balancer.
    pub load_balancer_source_ranges: Vec<String>,
    /// Load balancer class.
    pub load_balancer_class: Option<String>,
    /// Traffic policy for packets from outside.
    pub external_traffic_policy: TrafficPolicy,
    /// Traffic policy for packets from within the cluster.
    pub internal_traffic_policy: TrafficPolicy,
    /// Session affinity.
    pub session_affinity: Affinity,
    /// Parameters of session affinity.
    pub session_affinity_config: AffinityConfig,
    /// Port of the health check responder; 0 for none.
    pub health_check_node_port: u16,
    /// Preference for backends by zone or node.
    pub traffic_distribution: String,
}

/// `spec.type`: how a service is exposed. Each type up to `LoadBalancer` includes the previous
/// ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub enum ServiceType {
    /// Reachable within the cluster only.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// Also reachable on ports of the nodes.
    NodePort,
    /// Also reachable at addresses of a load balancer.
    LoadBalancer,
    /// DNS alias for a name outside the cluster; it has no frontends.
    ExternalName,
}

/// Address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

/// `spec.ports[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Name of the port; may be empty if there is only one.
    pub name: String,
    /// Port number of the service.
    pub port: u16,
    /// Protocol of the port.
    pub protocol: Protocol,
    /// Port number on each node; 0 for none.
    pub node_port: u16,
}

/// `protocol` of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Returns the IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

/// `spec.sessionAffinity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub enum Affinity {
    /// No affinity.
    #[default]
    None,
    /// Affinity by the client's address.
    #[serde(rename = "ClientIP")]
    ClientIp,
}

/// `spec.sessionAffinityConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AffinityConfig {
    /// Parameters of [`Affinity::ClientIp`].
    #[serde(rename = "clientIP")]
    pub client_ip: ClientIp,
}

/// `spec.sessionAffinityConfig.clientIP`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientIp {
    /// Timeout in seconds; 0 for the default.
    pub timeout_seconds: u32,
}

/// `status` of a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    /// Status of the load balancer.
    pub load_balancer: LoadBalancerStatus,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// Addresses of the load balancer.
    pub ingress: Vec<Ingress>,
}

/// `status.loadBalancer.ingress[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ingress {
    /// Address; absent if the load balancer has only a host name.
    pub ip: Option<IpAddr>,
}

/// `discovery.k8s.io/v1` `EndpointSlice`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndpointSlice {
    /// `metadata`.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// Endpoints of the service.
    pub endpoints: Vec<Endpoint>,
    /// Ports, which apply to each endpoint.
    pub ports: Vec<EndpointPort>,
}

/// `endpoints[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    /// Addresses of the endpoint.
    pub addresses: Vec<String>,
    /// Conditions of the endpoint.
    pub conditions: Conditions,
    /// Name of the endpoint's node.
    pub node_name: Box<str>,
    /// Zone of the endpoint.
    pub zone: Box<str>,
    /// Zones that should use the endpoint.
    pub hints: Hints,
}

/// `endpoints[].conditions`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Accepts new flows; absent means yes.
    pub ready: Option<bool>,
    /// Ready regardless of termination; absent means the value of `ready`.
    pub serving: Option<bool>,
    /// Is terminating; absent means no.
    pub terminating: Option<bool>,
}

/// `endpoints[].hints`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hints {
    /// Zones that should use the endpoint.
    pub for_zones: Vec<ForZone>,
}

/// `endpoints[].hints.forZones[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ForZone {
    /// Name of the zone.
    pub name: Box<str>,
}

/// `ports[]` of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// Name of the service's port.
    pub name: Arc<str>,
    /// Port number; `None` for the frontend's port.
    pub port: Option<u16>,
    /// Protocol of the port.
    pub protocol: Protocol,
}
