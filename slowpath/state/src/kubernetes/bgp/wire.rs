//! Fields of Cilium's BGP objects that are read, with Cilium's names.

use std::net::{IpAddr, Ipv4Addr};

use serde::Deserialize;

use crate::kubernetes::Meta;
use crate::object::bgp::{AddressKind, BgpPeeringPolicySpec, Selector};

/// `weir.dev/v1` `BgpPeeringPolicy`: Weir's own format.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::kubernetes) struct WeirPolicy {
    pub metadata: Meta,
    pub spec: BgpPeeringPolicySpec,
}

/// `cilium.io/v2alpha1` `CiliumBGPPeeringPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct PeeringPolicy {
    pub metadata: Meta,
    pub spec: PeeringFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PeeringFields {
    pub node_selector: Option<Selector>,
    pub virtual_routers: Vec<VirtualRouter>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualRouter {
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    #[serde(rename = "exportPodCIDR")]
    pub export_pod_cidr: bool,
    #[serde(rename = "podIPPoolSelector")]
    pub pod_ip_pool_selector: Option<Selector>,
    pub service_selector: Option<Selector>,
    pub service_advertisements: Vec<AddressKind>,
    pub neighbors: Vec<NeighborFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NeighborFields {
    pub peer_address: String,
    #[serde(rename = "peerASN")]
    pub peer_asn: Option<u32>,
    pub advertised_path_attributes: Vec<PathAttributesFields>,
    pub peer_port: Option<u16>,
    pub auth_secret_ref: Option<Box<str>>,
    #[serde(rename = "eBGPMultihopTTL")]
    pub hops: Option<u8>,
    pub connect_retry_time_seconds: Option<u32>,
    pub hold_time_seconds: Option<u32>,
    pub keep_alive_time_seconds: Option<u32>,
    pub graceful_restart: Option<GracefulRestart>,
    pub families: Vec<FamilyFields>,
}

impl NeighborFields {
    /// Returns the session parameters.
    pub fn session(&self) -> SessionFields {
        SessionFields {
            peer_port: self.peer_port,
            auth_secret_ref: self.auth_secret_ref.clone(),
            hops: self.hops,
            timers: Timers {
                connect_retry_time_seconds: self.connect_retry_time_seconds,
                hold_time_seconds: self.hold_time_seconds,
                keep_alive_time_seconds: self.keep_alive_time_seconds,
            },
            graceful_restart: self.graceful_restart,
        }
    }
}

/// Session parameters that both generations have.
#[derive(Clone, Debug, Default)]
pub struct SessionFields {
    pub peer_port: Option<u16>,
    pub auth_secret_ref: Option<Box<str>>,
    pub hops: Option<u8>,
    pub timers: Timers,
    pub graceful_restart: Option<GracefulRestart>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timers {
    pub connect_retry_time_seconds: Option<u32>,
    pub hold_time_seconds: Option<u32>,
    pub keep_alive_time_seconds: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GracefulRestart {
    pub enabled: bool,
    pub restart_time_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FamilyFields {
    pub afi: String,
    pub safi: String,
    /// Selects the advertisements of the family; absent in the first generation.
    pub advertisements: Option<Selector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PathAttributesFields {
    pub selector_type: String,
    pub selector: Option<Selector>,
    pub communities: CommunityFields,
    pub local_preference: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AttributeFields {
    pub communities: CommunityFields,
    pub local_preference: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CommunityFields {
    pub standard: Vec<String>,
    pub well_known: Vec<String>,
    pub large: Vec<String>,
}

/// `CiliumBGPClusterConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct ClusterConfig {
    pub metadata: Meta,
    pub spec: ClusterFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterFields {
    pub node_selector: Option<Selector>,
    pub bgp_instances: Vec<Instance>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Instance {
    pub name: String,
    #[serde(rename = "localASN")]
    pub local_asn: u32,
    pub local_port: Option<u16>,
    pub peers: Vec<Peer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Peer {
    pub name: String,
    pub peer_address: String,
    #[serde(rename = "peerASN")]
    pub peer_asn: Option<u32>,
    pub peer_config_ref: Option<Reference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Reference {
    pub name: String,
}

/// `CiliumBGPPeerConfig`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct PeerConfig {
    pub metadata: Meta,
    pub spec: PeerFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PeerFields {
    pub transport: Transport,
    pub timers: Timers,
    pub auth_secret_ref: Option<Box<str>>,
    pub ebgp_multihop: Option<u8>,
    pub graceful_restart: Option<GracefulRestart>,
    pub families: Vec<FamilyFields>,
}

impl PeerFields {
    /// Returns the session parameters.
    pub fn session(&self) -> SessionFields {
        SessionFields {
            peer_port: self.transport.peer_port,
            auth_secret_ref: self.auth_secret_ref.clone(),
            hops: self.ebgp_multihop,
            timers: self.timers,
            graceful_restart: self.graceful_restart,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Transport {
    pub peer_port: Option<u16>,
}

/// `CiliumBGPAdvertisement`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct Advertisement {
    pub metadata: Meta,
    pub spec: AdvertisementFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AdvertisementFields {
    pub advertisements: Vec<OneAdvertisement>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OneAdvertisement {
    pub advertisement_type: String,
    pub service: ServiceFields,
    pub selector: Option<Selector>,
    pub attributes: AttributeFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ServiceFields {
    pub addresses: Vec<AddressKind>,
    #[serde(rename = "aggregationLengthIPv4")]
    pub aggregation_ipv4: Option<u8>,
    #[serde(rename = "aggregationLengthIPv6")]
    pub aggregation_ipv6: Option<u8>,
}

/// `CiliumBGPNodeConfigOverride`, for the node with the same name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::kubernetes) struct NodeConfigOverride {
    pub metadata: Meta,
    pub spec: OverrideFields,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OverrideFields {
    pub bgp_instances: Vec<InstanceOverride>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceOverride {
    pub name: String,
    #[serde(rename = "routerID")]
    pub router_id: Option<Ipv4Addr>,
    pub local_port: Option<u16>,
    #[serde(rename = "localASN")]
    pub local_asn: Option<u32>,
    pub peers: Vec<PeerOverride>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PeerOverride {
    pub name: String,
    pub local_address: Option<IpAddr>,
}
