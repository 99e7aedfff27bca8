//! Errors of the discovery of the machine's location, with remedies.

use std::net::IpAddr;

use clouds::failure::AttemptError;
use clouds::runner::SearchError;
use config::checked::AzurePool;

use crate::id::ResourceId;
use crate::types::{CallError, Failure, Family};

/// Why no location was found.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LocationError {
    /// The ingress port does not exist yet.
    #[error("the ingress port has no kernel interface yet; is the fastpath running?")]
    NoIngress,
    /// The metadata service does not report the identity.
    #[error("the metadata service does not report this machine's identity: {0}")]
    Metadata(CallError),
    /// No network interface of this machine matches the ingress port.
    #[error(
        "no network interface of this machine has the ingress port's MAC {}; Azure reports {}; set \
         ingress.device to the port of one of them",
        mac_text(*mac), or_none(has)
    )]
    NoInterface {
        /// MAC address of the ingress port.
        mac: [u8; 6],
        /// Names and MAC addresses of the machine's interfaces.
        has: Vec<String>,
    },
    /// No IP configuration of the interface has a configured address.
    #[error(
        "no IP configuration of network interface {interface} has the ingress arm's {} address \
         ({}); it has {}; set ingress.address to the intended one, or add the IP configuration",
        family_name(*family), or_none(configured), or_none(has)
    )]
    NoAddress {
        /// Address family of the pool.
        family: Family,
        /// Name of the interface.
        interface: String,
        /// Configured addresses of the ingress port.
        configured: Vec<IpAddr>,
        /// Addresses of the interface.
        has: Vec<String>,
    },
    /// The resource group has no load balancer of that name, or none at all.
    #[error(
        "resource group {group} has no load balancer{}; check azure.resource_group and \
         azure.load_balancer, and whether the role may read it",
        name.as_ref().map(|name| format!(" {name}")).unwrap_or_default()
    )]
    NoBalancer {
        /// The resource group that was searched.
        group: String,
        /// Configured name, if any.
        name: Option<String>,
    },
    /// The load balancers are of another SKU.
    #[error(
        "no load balancer of SKU Gateway in resource group {group}; it has {}; create one of SKU \
         Gateway, or set azure.resource_group to its group",
        or_none(has)
    )]
    NotGateway {
        /// The resource group that was searched.
        group: String,
        /// Names and SKUs of the load balancers.
        has: Vec<String>,
    },
    /// More than one gateway load balancer has the configured pools.
    #[error(
        "{} gateway load balancers have the configured pools: {}; set azure.load_balancer to the \
         intended one",
        balancers.len(), or_none(balancers)
    )]
    AmbiguousBalancer {
        /// Names of the load balancers.
        balancers: Vec<String>,
    },
    /// The configured pools belong to different load balancers.
    #[error(
        "no gateway load balancer has both pools; they are at {}; create both at one, or remove \
         azure.pool_ipv6",
        or_none(balancers)
    )]
    SeparateBalancers {
        /// Names of the gateway load balancers.
        balancers: Vec<String>,
    },
    /// No gateway load balancer has the pool.
    #[error(
        "no gateway load balancer has the {} pool {:?}; the pools are {}; set {} to one of them",
        if pool.ipv6 { "IPv6" } else { "IPv4" }, pool.name, or_none(has),
        if pool.ipv6 { "azure.pool_ipv6" } else { "azure.pool" }
    )]
    NoPool {
        /// The pool as configured.
        pool: AzurePool,
        /// Names of the existing pools.
        has: Vec<String>,
    },
    /// The pool has no tunnel interfaces, so that no traffic would be sent.
    #[error(
        "pool {pool} has no tunnel interfaces; add one of type External and one of type Internal \
         (az network lb address-pool tunnel-interface add)"
    )]
    NoTunnels {
        /// Name of the pool.
        pool: String,
    },
    /// The load balancer is in another region, so that the machine cannot be a member.
    #[error(
        "load balancer {balancer} is in region {region}, and this machine in \
         {machine_region}: it cannot be a member; set azure.load_balancer to another"
    )]
    OtherRegion {
        /// Name of the load balancer.
        balancer: String,
        /// Region of the load balancer.
        region: String,
        /// Region of this machine.
        machine_region: String,
    },
    /// The load balancer is in another virtual network, so that the machine cannot be a member.
    #[error(
        "load balancer {balancer} is in virtual network {}, and the ingress port in {}: it cannot \
         be a member; set azure.load_balancer to another, or move the interface",
        or_none(balancer_networks),
        ingress_network
    )]
    OtherNetwork {
        /// Name of the load balancer.
        balancer: String,
        /// Virtual networks of its frontends.
        balancer_networks: Vec<ResourceId>,
        /// Virtual network of the ingress port.
        ingress_network: ResourceId,
    },
    /// A call to Azure failed.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl From<AttemptError> for LocationError {
    fn from(failed: AttemptError) -> LocationError {
        LocationError::Call(failed.error)
    }
}

impl SearchError for LocationError {
    fn no_answer(&self) -> Option<&CallError> {
        match self {
            LocationError::Metadata(error) => Some(error),
            LocationError::Call(error) if error.kind != Failure::Absent => Some(error),
            _ => None,
        }
    }

    fn is_temporary(&self) -> bool {
        match self {
            LocationError::Metadata(error) | LocationError::Call(error) => {
                matches!(error.kind, Failure::Throttled | Failure::Transient)
            }
            LocationError::NoIngress => true,
            _ => false,
        }
    }
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

fn or_none<T: std::fmt::Display>(all: &[T]) -> String {
    match all {
        [] => "none".to_owned(),
        all => all.iter().map(T::to_string).collect::<Vec<_>>().join(", "),
    }
}
