//! Why there is no place, and what to do about it.

use std::net::IpAddr;

use clouds::failure::Setback;
use clouds::runner::SearchError;
use config::checked::AzurePool;

use crate::id::ResourceId;
use crate::told::{CallError, Failure, Family};

/// Why there is no place.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PlaceError {
    /// The ingress port is not there yet.
    #[error("the ingress port has no kernel interface yet; is the fastpath running?")]
    NoIngress,
    /// The metadata service didn't tell.
    #[error("the metadata service does not tell who this machine is: {0}")]
    Metadata(CallError),
    /// Azure knows other interfaces of this machine.
    #[error(
        "no network interface of this machine has the ingress port's MAC {}; Azure knows {}; let \
         [ingress] device be one of them",
        written(*mac), or_none(has)
    )]
    NoInterface {
        /// Of the ingress port.
        mac: [u8; 6],
        /// Names and MACs.
        has: Vec<String>,
    },
    /// The interface has other addresses.
    #[error(
        "no IP configuration of network interface {interface} has the ingress arm's {} address \
         ({}); it has {}; write the one that is meant as ingress.address, or add the IP \
         configuration",
        words(*family), or_none(ours), or_none(has)
    )]
    NoAddress {
        /// The pool's family.
        family: Family,
        /// The interface's name.
        interface: String,
        /// Of the ingress arm.
        ours: Vec<IpAddr>,
        /// Of the interface.
        has: Vec<String>,
    },
    /// There is none of that name, or none at all.
    #[error(
        "resource group {group} has no load balancer{}; see azure.resource_group and \
         azure.load_balancer, and whether the role may read it",
        name.as_ref().map(|name| format!(" {name}")).unwrap_or_default()
    )]
    NoBalancer {
        /// Where it was looked for.
        group: String,
        /// Its name, where one is written.
        name: Option<String>,
    },
    /// They are of another SKU.
    #[error(
        "no load balancer of SKU Gateway in resource group {group}; there are {}; make one of SKU \
         Gateway, or name its group by azure.resource_group",
        or_none(has)
    )]
    NotGateway {
        /// Where it was looked for.
        group: String,
        /// Names and SKUs.
        has: Vec<String>,
    },
    /// More than one has our pools.
    #[error(
        "{} gateway load balancers have our pools: {}; set azure.load_balancer to the one that is \
         meant",
        balancers.len(), or_none(balancers)
    )]
    Several {
        /// Their names.
        balancers: Vec<String>,
    },
    /// Each pool is there, at another load balancer.
    #[error(
        "no gateway load balancer has both pools; they are at {}; make them pools of one, or leave \
         azure.pool_ipv6 out",
        or_none(balancers)
    )]
    Apart {
        /// Names of those that there are.
        balancers: Vec<String>,
    },
    /// No gateway load balancer has it.
    #[error(
        "no gateway load balancer has the {} pool {:?}; the pools are {}; set {} to one of them",
        if pool.ipv6 { "IPv6" } else { "IPv4" }, pool.name, or_none(has),
        if pool.ipv6 { "azure.pool_ipv6" } else { "azure.pool" }
    )]
    NoPool {
        /// As it is written.
        pool: AzurePool,
        /// Those that there are.
        has: Vec<String>,
    },
    /// Nothing would be sent in tunnels.
    #[error(
        "pool {pool} has no tunnel interfaces; add one of type External and one of type Internal \
         (az network lb address-pool tunnel-interface add)"
    )]
    NoTunnels {
        /// Its name.
        pool: String,
    },
    /// A load balancer's members are in its region.
    #[error(
        "load balancer {balancer} is in region {region}, and this machine in {ours}: it can be no \
         member; name another by azure.load_balancer"
    )]
    OtherRegion {
        /// Its name.
        balancer: String,
        /// Its region.
        region: String,
        /// Ours.
        ours: String,
    },
    /// A load balancer's members are in its network.
    #[error(
        "load balancer {balancer} is in virtual network {}, and the ingress port in {}: it can be \
         no member; name another load balancer, or move the interface",
        or_none(theirs),
        ours
    )]
    OtherNetwork {
        /// Its name.
        balancer: String,
        /// Of its frontends.
        theirs: Vec<ResourceId>,
        /// Of our address.
        ours: ResourceId,
    },
    /// Azure didn't tell.
    #[error("{0}")]
    Call(#[from] CallError),
}

impl From<Setback> for PlaceError {
    fn from(setback: Setback) -> PlaceError {
        PlaceError::Call(setback.error)
    }
}

impl SearchError for PlaceError {
    fn silence(&self) -> Option<&CallError> {
        match self {
            PlaceError::Metadata(error) => Some(error),
            PlaceError::Call(error) if error.kind != Failure::Absent => Some(error),
            _ => None,
        }
    }

    fn passes(&self) -> bool {
        match self {
            PlaceError::Metadata(error) | PlaceError::Call(error) => {
                matches!(error.kind, Failure::Throttled | Failure::Transient)
            }
            PlaceError::NoIngress => true,
            _ => false,
        }
    }
}

/// A link address as people write it.
fn written(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn words(family: Family) -> &'static str {
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
