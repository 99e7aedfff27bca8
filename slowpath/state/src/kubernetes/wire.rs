//! The fields of Kubernetes' objects that are read, by Kubernetes' names.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use crate::labels::Pairs;
use config::services::TrafficPolicy;

/// `metadata`.
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
    /// A label's value.
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
    /// How it is exposed.
    #[serde(rename = "type")]
    pub kind: ServiceType,
    /// The first cluster address, `None` for headless.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// All cluster addresses.
    #[serde(rename = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    /// Families of node ports; those of the cluster addresses where it is empty.
    #[serde(rename = "ipFamilies")]
    pub ip_families: Vec<Family>,
    /// Ports.
    pub ports: Vec<ServicePort>,
    /// Addresses that somebody routes here.
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<IpAddr>,
    /// Who may use it.
    pub load_balancer_source_ranges: Vec<String>,
    /// Which load balancer it is for.
    pub load_balancer_class: Option<String>,
    /// Policy for packets from outside.
    pub external_traffic_policy: TrafficPolicy,
    /// Policy for packets from within.
    pub internal_traffic_policy: TrafficPolicy,
    /// Stickiness.
    pub session_affinity: Affinity,
    /// Its timeout.
    pub session_affinity_config: AffinityConfig,
    /// Port of the health responder.
    pub health_check_node_port: u16,
    /// Preference by place.
    pub traffic_distribution: String,
}

/// `spec.type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub enum ServiceType {
    /// Within the cluster only.
    #[default]
    #[serde(rename = "ClusterIP")]
    ClusterIp,
    /// On ports of the nodes as well.
    NodePort,
    /// At addresses of a load balancer as well.
    LoadBalancer,
    /// Another name for something outside: nothing to serve.
    ExternalName,
}

/// A family of addresses.
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
    /// Its name; empty where there is only one.
    pub name: String,
    /// The port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// The port on each node; 0 for none.
    pub node_port: u16,
}

/// `protocol`.
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
    /// Its number.
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
    /// Off.
    #[default]
    None,
    /// By the client's address.
    #[serde(rename = "ClientIP")]
    ClientIp,
}

/// `spec.sessionAffinityConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AffinityConfig {
    /// Of [`Affinity::ClientIp`].
    #[serde(rename = "clientIP")]
    pub client_ip: ClientIp,
}

/// `spec.sessionAffinityConfig.clientIP`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientIp {
    /// Seconds; 0 for the default.
    pub timeout_seconds: u32,
}

/// `status` of a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    /// What the load balancer did.
    pub load_balancer: LoadBalancerStatus,
}

/// `status.loadBalancer`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// Where it answers.
    pub ingress: Vec<Ingress>,
}

/// `status.loadBalancer.ingress[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ingress {
    /// An address; none where there is only a host name.
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
    /// Who serves.
    pub endpoints: Vec<Endpoint>,
    /// On which ports, each of them.
    pub ports: Vec<EndpointPort>,
}

/// `endpoints[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoint {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// How it is.
    pub conditions: Conditions,
    /// Its node.
    pub node_name: Box<str>,
    /// Its zone.
    pub zone: Box<str>,
    /// For whom.
    pub hints: Hints,
}

/// `endpoints[].conditions`.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Takes new flows; not told is yes.
    pub ready: Option<bool>,
    /// Would be ready if it weren't terminating; not told is as ready.
    pub serving: Option<bool>,
    /// Goes away; not told is no.
    pub terminating: Option<bool>,
}

/// `endpoints[].hints`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hints {
    /// Zones that are asked to use it.
    pub for_zones: Vec<ForZone>,
}

/// `endpoints[].hints.forZones[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ForZone {
    /// The zone.
    pub name: Box<str>,
}

/// `ports[]` of a slice.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// Name of the service's port.
    pub name: Arc<str>,
    /// The port; none for the frontend's.
    pub port: Option<u16>,
    /// Its protocol.
    pub protocol: Protocol,
}
