//! Discovery of the machine's location at Azure: its identity, the network interface of the ingress
//! port, the load balancer, and for each address family a pool and an IP configuration.

use std::net::IpAddr;

use clouds::appliance::Ingress;
use config::checked::{Azure as Settings, AzurePool, Balancer, Prefix};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm::Arm;
use crate::balancer;
use crate::id::ResourceId;
use crate::imds::parse_mac;
use crate::operations;
use crate::requests;
use crate::types::{Failure, Family, Identity};

mod error;

pub use error::LocationError;

/// The machine's location at Azure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Location {
    /// Identity of this machine.
    pub identity: Identity,
    /// Network interface of the ingress port.
    pub interface: ResourceId,
    /// True if a scale set's model owns the interface, so that it can be read but not written. This
    /// is the case for instances of uniform scale sets; those of flexible ones have ordinary
    /// interfaces.
    pub managed: bool,
    /// The gateway load balancer.
    pub balancer: ResourceId,
    /// Pools of this machine, the IPv4 pool first.
    pub pools: Vec<Pool>,
}

/// A pool, and the IP configuration with which this machine is a member of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Address family of the pool.
    pub family: Family,
    /// Name of the configured gateway that the pool feeds.
    pub gateway: String,
    /// Id of the pool.
    pub id: ResourceId,
    /// IP configuration of this machine.
    pub configuration: ResourceId,
    /// Address of that IP configuration.
    pub address: IpAddr,
    /// Virtual network of the address.
    pub network: ResourceId,
}

/// A network interface of this machine, as reported by Resource Manager.
#[derive(Clone, PartialEq, Debug)]
pub struct Nic {
    /// Id of the interface.
    pub id: ResourceId,
    /// JSON body of the resource.
    pub body: Value,
    /// See [`Location::managed`].
    pub managed: bool,
}

impl Nic {
    /// Returns the MAC address, if there is one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        parse_mac(balancer::text(&self.body, "/properties/macAddress"))
    }
}

impl Location {
    /// Finds the location by reading the machine, its network interfaces and the load balancer.
    ///
    /// # Errors
    /// Fails if no usable location is found or Azure does not answer.
    pub async fn discover(
        arm: &dyn Arm,
        settings: &Settings,
        identity: Identity,
        ingress: &Ingress,
    ) -> Result<Location, LocationError> {
        let nics = read_interfaces(arm, &identity).await?;
        let nic = find_ingress_nic(&nics, ingress)?;
        let balancer = find_balancer(arm, settings, &identity).await?;
        Location::from_resources(settings, identity, ingress, nic, &balancer)
    }

    /// Determines the location from resources that the caller has read.
    ///
    /// # Errors
    /// Fails if the interface or the load balancer cannot be used.
    pub fn from_resources(
        settings: &Settings,
        identity: Identity,
        ingress: &Ingress,
        nic: &Nic,
        balancer: &Value,
    ) -> Result<Location, LocationError> {
        let id = balancer::id(balancer, "/id").ok_or_else(|| unreadable_id("the load balancer"))?;
        let region = balancer::text(balancer, "/location");
        if normalize_region(region) != normalize_region(&identity.location) {
            return Err(LocationError::OtherRegion {
                balancer: id.name().to_owned(),
                region: region.to_owned(),
                machine_region: identity.location,
            });
        }
        let pools: Result<Vec<Pool>, LocationError> =
            settings.pools.iter().map(|one| locate_pool(one, ingress, nic, balancer)).collect();
        let (interface, managed) = (nic.id.clone(), nic.managed);
        Ok(Location { identity, interface, managed, balancer: id, pools: pools? })
    }
}

/// Normalizes a region name: `West Europe` becomes `westeurope`.
fn normalize_region(region: &str) -> String {
    region.to_ascii_lowercase().replace(' ', "")
}

fn unreadable_id(what: &str) -> LocationError {
    let why = format!("{what} has no valid id");
    operations::LOAD_BALANCERS_GET.operation.malformed(why).error.into()
}

/// Reads all network interfaces of this machine.
///
/// # Errors
/// Fails if a read fails.
pub async fn read_interfaces(
    arm: &dyn Arm,
    identity: &Identity,
) -> Result<Vec<Nic>, LocationError> {
    let machine = ResourceId::parse(&identity.resource_id).map_err(|error| {
        let why = format!("resourceId: {error}");
        LocationError::Metadata(operations::MACHINES_GET.operation.malformed(why).error)
    })?;
    let managed = machine.named("virtualMachineScaleSets").is_some();
    let response = arm.get(&requests::machine(&machine)).await?.body;
    let mut nics = Vec::new();
    for reference in balancer::list(&response, "/properties/networkProfile/networkInterfaces") {
        if let Some(id) = balancer::id(reference, "/id") {
            let body = arm.get(&requests::interface(&id)).await?.body;
            nics.push(Nic { id, body, managed });
        }
    }
    Ok(nics)
}

/// Returns the network interface of the ingress port, matched by MAC address.
///
/// # Errors
/// Fails if none matches.
pub fn find_ingress_nic<'a>(nics: &'a [Nic], ingress: &Ingress) -> Result<&'a Nic, LocationError> {
    let own = nics.iter().find(|nic| nic.mac() == Some(ingress.mac));
    own.ok_or_else(|| {
        let one = |nic: &Nic| {
            format!("{} {}", nic.id.name(), balancer::text(&nic.body, "/properties/macAddress"))
        };
        LocationError::NoInterface { mac: ingress.mac, has: nics.iter().map(one).collect() }
    })
}

/// Returns the gateway load balancer that has all configured pools: the one with the configured id
/// or name, or without those the only one in the resource group.
///
/// # Errors
/// Fails if there is none or more than one, or if Azure does not answer.
pub async fn find_balancer(
    arm: &dyn Arm,
    settings: &Settings,
    identity: &Identity,
) -> Result<Value, LocationError> {
    let (group, name, all) = match &settings.balancer {
        Balancer::Id(text) => {
            let id = ResourceId::parse(text).map_err(|_| unreadable_id("azure.load_balancer"))?;
            let response = absent_as_none(arm.get(&requests::balancer(&id)).await)?;
            let all = response.map(|resource| resource.body).into_iter().collect();
            (id.group().to_owned(), Some(id.name().to_owned()), all)
        }
        Balancer::Search { group, name } => {
            let group = group.clone().unwrap_or_else(|| identity.resource_group.clone());
            let request = requests::balancers(&identity.subscription, &group);
            let response = absent_as_none(arm.list(&request).await)?.unwrap_or_default();
            (group, name.clone(), response)
        }
    };
    select_balancer(&settings.pools, &group, name.as_deref(), all)
}

/// Converts `Absent` to `None`.
fn absent_as_none<T>(
    response: Result<T, clouds::failure::AttemptError>,
) -> Result<Option<T>, LocationError> {
    match response {
        Ok(response) => Ok(Some(response)),
        Err(failed) if failed.error.kind == Failure::Absent => Ok(None),
        Err(failed) => Err(failed.into()),
    }
}

fn select_balancer(
    pools: &[AzurePool],
    group: &str,
    name: Option<&str>,
    mut all: Vec<Value>,
) -> Result<Value, LocationError> {
    let group = group.to_owned();
    let own_name = |balancer: &Value| balancer::text(balancer, "/name").to_owned();
    if let Some(name) = name {
        all.retain(|balancer| own_name(balancer).eq_ignore_ascii_case(name));
    }
    if all.is_empty() {
        return Err(LocationError::NoBalancer { group, name: name.map(str::to_owned) });
    }
    let others: Vec<String> =
        all.iter().map(|b| format!("{} ({})", own_name(b), balancer::sku(b))).collect();
    all.retain(|balancer| balancer::sku(balancer).eq_ignore_ascii_case("Gateway"));
    if all.is_empty() {
        return Err(LocationError::NotGateway { group, has: others });
    }
    let has = |balancer: &Value, pool: &AzurePool| balancer::pool(balancer, &pool.name).is_some();
    let missing = pools.iter().find(|pool| !all.iter().any(|balancer| has(balancer, pool)));
    if let Some(pool) = missing {
        let has = all.iter().flat_map(|b| balancer::pools(b).iter().map(own_name)).collect();
        return Err(LocationError::NoPool { pool: pool.clone(), has });
    }
    let balancers: Vec<String> = all.iter().map(own_name).collect();
    all.retain(|balancer| pools.iter().all(|pool| has(balancer, pool)));
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(LocationError::SeparateBalancers { balancers }),
        _ => {
            Err(LocationError::AmbiguousBalancer { balancers: all.iter().map(own_name).collect() })
        }
    }
}

/// Returns a configured pool with this machine's IP configuration of the same family.
fn locate_pool(
    configured: &AzurePool,
    ingress: &Ingress,
    nic: &Nic,
    balancer: &Value,
) -> Result<Pool, LocationError> {
    let document = balancer::pool(balancer, &configured.name);
    let missing = || {
        let has = balancer::pools(balancer).iter().map(|p| balancer::text(p, "/name").to_owned());
        LocationError::NoPool { pool: configured.clone(), has: has.collect() }
    };
    let document = document.ok_or_else(missing)?;
    let id = balancer::id(document, "/id").ok_or_else(|| unreadable_id("the pool"))?;
    if balancer::list(document, "/properties/tunnelInterfaces").is_empty() {
        return Err(LocationError::NoTunnels { pool: configured.name.clone() });
    }
    let family = if configured.ipv6 { Family::V6 } else { Family::V4 };
    let (configuration, address, network) = find_configuration(family, ingress, nic)?;
    let networks = balancer::networks(balancer);
    if !networks.is_empty() && !networks.contains(&network) {
        return Err(LocationError::OtherNetwork {
            balancer: balancer::text(balancer, "/name").to_owned(),
            balancer_networks: networks,
            ingress_network: network,
        });
    }
    Ok(Pool { family, gateway: configured.gateway.clone(), id, configuration, address, network })
}

/// Returns the interface's IP configuration that has a configured address, with that address and
/// its virtual network.
fn find_configuration(
    family: Family,
    ingress: &Ingress,
    nic: &Nic,
) -> Result<(ResourceId, IpAddr, ResourceId), LocationError> {
    let all = balancer::list(&nic.body, "/properties/ipConfigurations");
    let of_family = |address: &&IpAddr| address.is_ipv6() == (family == Family::V6);
    let configured: Vec<IpAddr> = ingress.addresses.iter().filter(of_family).copied().collect();
    for address in &configured {
        for configuration in all {
            let has = parse_prefix(balancer::text(configuration, "/properties/privateIPAddress"));
            let id = balancer::id(configuration, "/id");
            let of = balancer::network_of(configuration);
            if let (Some(has), Some(id), Some(of)) = (has, id, of)
                && has.contains(*address)
            {
                return Ok((id, *address, of));
            }
        }
    }
    let address = |c: &Value| balancer::text(c, "/properties/privateIPAddress").to_owned();
    let has = all.iter().map(address).filter(|address| !address.is_empty()).collect();
    Err(LocationError::NoAddress { family, interface: nic.id.name().to_owned(), configured, has })
}

/// Parses the address of an IP configuration: a single one, or a prefix such as `172.20.2.16/28`.
fn parse_prefix(text: &str) -> Option<Prefix> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, len.parse::<u8>().ok()),
        None => (text, Some(128)),
    };
    let addr: IpAddr = address.parse().ok()?;
    let len = len?.min(if addr.is_ipv4() { 32 } else { 128 });
    Some(config::checked::Interface { addr, len }.network())
}

#[cfg(test)]
mod tests;
