//! Our place at Azure: the interface that the gateway reaches us by, the load balancer, and the IP
//! configuration and the pool of each family.

use std::net::IpAddr;

use clouds::appliance::Ingress;
use config::checked::{Azure as Settings, AzurePool, Balancer, Prefix};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm::Arm;
use crate::asks;
use crate::balancer;
use crate::id::ResourceId;
use crate::imds::mac;
use crate::names;
use crate::told::{Failure, Family, Identity};

mod error;

pub use error::PlaceError;

/// Where we belong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// This machine.
    pub identity: Identity,
    /// The interface that the ingress port is.
    pub interface: ResourceId,
    /// A scale set's model owns that interface: it can be read, and not written. True of a uniform
    /// one's instances alone; those of a flexible one have interfaces like everybody's.
    pub managed: bool,
    /// The gateway load balancer.
    pub balancer: ResourceId,
    /// Our pools, that of IPv4 first.
    pub pools: Vec<Pool>,
}

/// A pool, and as what we are in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Of which family it is.
    pub family: Family,
    /// The gateway of ours that it feeds.
    pub gateway: String,
    /// Its id.
    pub id: ResourceId,
    /// Our IP configuration.
    pub configuration: ResourceId,
    /// Our address there.
    pub address: IpAddr,
    /// The network that it is in.
    pub network: ResourceId,
}

/// An interface of this machine with all that Azure tells of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Nic {
    /// Its id.
    pub id: ResourceId,
    /// Its document.
    pub body: Value,
    /// See [`Place::managed`].
    pub managed: bool,
}

impl Nic {
    /// Its link address, where it has one.
    pub fn mac(&self) -> Option<[u8; 6]> {
        mac(balancer::text(&self.body, "/properties/macAddress"))
    }
}

impl Place {
    /// Asks Azure for it.
    ///
    /// # Errors
    /// There is none, or Azure didn't tell.
    pub async fn find(
        arm: &dyn Arm,
        settings: &Settings,
        identity: Identity,
        ingress: &Ingress,
    ) -> Result<Place, PlaceError> {
        let nics = interfaces(arm, &identity).await?;
        let nic = own(&nics, ingress)?;
        let balancer = the_balancer(arm, settings, &identity).await?;
        Place::of(settings, identity, ingress, nic, &balancer)
    }

    /// Out of what Azure told.
    ///
    /// # Errors
    /// It is not a place where we could be.
    pub fn of(
        settings: &Settings,
        identity: Identity,
        ingress: &Ingress,
        nic: &Nic,
        balancer: &Value,
    ) -> Result<Place, PlaceError> {
        let id = balancer::id(balancer, "/id").ok_or_else(|| unread("the load balancer"))?;
        let region = balancer::text(balancer, "/location");
        if plain(region) != plain(&identity.location) {
            return Err(PlaceError::OtherRegion {
                balancer: id.name().to_owned(),
                region: region.to_owned(),
                ours: identity.location,
            });
        }
        let pools: Result<Vec<Pool>, PlaceError> =
            settings.pools.iter().map(|wanted| pool(wanted, ingress, nic, balancer)).collect();
        let (interface, managed) = (nic.id.clone(), nic.managed);
        Ok(Place { identity, interface, managed, balancer: id, pools: pools? })
    }
}

/// `West Europe` is `westeurope`.
fn plain(region: &str) -> String {
    region.to_ascii_lowercase().replace(' ', "")
}

fn unread(what: &str) -> PlaceError {
    let why = format!("{what} has no id that could be read");
    names::LOAD_BALANCERS_GET.operation.garbled(why).error.into()
}

/// All interfaces of this machine.
///
/// # Errors
/// Azure didn't tell.
pub async fn interfaces(arm: &dyn Arm, identity: &Identity) -> Result<Vec<Nic>, PlaceError> {
    let machine = ResourceId::parse(&identity.resource_id).map_err(|error| {
        let why = format!("its resourceId: {error}");
        PlaceError::Metadata(names::MACHINES_GET.operation.garbled(why).error)
    })?;
    let managed = machine.named("virtualMachineScaleSets").is_some();
    let told = arm.get(&asks::machine(&machine)).await?.body;
    let mut nics = Vec::new();
    for reference in balancer::list(&told, "/properties/networkProfile/networkInterfaces") {
        if let Some(id) = balancer::id(reference, "/id") {
            let body = arm.get(&asks::interface(&id)).await?.body;
            nics.push(Nic { id, body, managed });
        }
    }
    Ok(nics)
}

/// The one that the ingress port is.
///
/// # Errors
/// None of them is it.
pub fn own<'a>(nics: &'a [Nic], ingress: &Ingress) -> Result<&'a Nic, PlaceError> {
    let own = nics.iter().find(|nic| nic.mac() == Some(ingress.mac));
    own.ok_or_else(|| {
        let one = |nic: &Nic| {
            format!("{} {}", nic.id.name(), balancer::text(&nic.body, "/properties/macAddress"))
        };
        PlaceError::NoInterface { mac: ingress.mac, has: nics.iter().map(one).collect() }
    })
}

/// The gateway load balancer: by its id, by its name, or the one that has all our pools.
///
/// # Errors
/// There is none, or not one alone.
pub async fn the_balancer(
    arm: &dyn Arm,
    settings: &Settings,
    identity: &Identity,
) -> Result<Value, PlaceError> {
    let (group, name, all) = match &settings.balancer {
        Balancer::Id(text) => {
            let id = ResourceId::parse(text).map_err(|_| unread("azure.load_balancer"))?;
            let told = found(arm.get(&asks::balancer(&id)).await)?;
            let all = told.map(|resource| resource.body).into_iter().collect();
            (id.group().to_owned(), Some(id.name().to_owned()), all)
        }
        Balancer::Search { group, name } => {
            let group = group.clone().unwrap_or_else(|| identity.resource_group.clone());
            let ask = asks::balancers(&identity.subscription, &group);
            let told = found(arm.list(&ask).await)?.unwrap_or_default();
            (group, name.clone(), told)
        }
    };
    choose(&settings.pools, &group, name.as_deref(), all)
}

/// Nothing where Azure says that there is nothing.
fn found<T>(told: Result<T, clouds::failure::Setback>) -> Result<Option<T>, PlaceError> {
    match told {
        Ok(told) => Ok(Some(told)),
        Err(setback) if setback.error.kind == Failure::Absent => Ok(None),
        Err(setback) => Err(setback.into()),
    }
}

fn choose(
    pools: &[AzurePool],
    group: &str,
    name: Option<&str>,
    mut all: Vec<Value>,
) -> Result<Value, PlaceError> {
    let group = group.to_owned();
    let own_name = |balancer: &Value| balancer::text(balancer, "/name").to_owned();
    if let Some(name) = name {
        all.retain(|balancer| own_name(balancer).eq_ignore_ascii_case(name));
    }
    if all.is_empty() {
        return Err(PlaceError::NoBalancer { group, name: name.map(str::to_owned) });
    }
    let others: Vec<String> =
        all.iter().map(|b| format!("{} ({})", own_name(b), balancer::sku(b))).collect();
    all.retain(|balancer| balancer::sku(balancer).eq_ignore_ascii_case("Gateway"));
    if all.is_empty() {
        return Err(PlaceError::NotGateway { group, has: others });
    }
    let has = |balancer: &Value, pool: &AzurePool| balancer::pool(balancer, &pool.name).is_some();
    let missing = pools.iter().find(|pool| !all.iter().any(|balancer| has(balancer, pool)));
    if let Some(pool) = missing {
        let has = all.iter().flat_map(|b| balancer::pools(b).iter().map(own_name)).collect();
        return Err(PlaceError::NoPool { pool: pool.clone(), has });
    }
    let balancers: Vec<String> = all.iter().map(own_name).collect();
    all.retain(|balancer| pools.iter().all(|pool| has(balancer, pool)));
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(PlaceError::Apart { balancers }),
        _ => Err(PlaceError::Several { balancers: all.iter().map(own_name).collect() }),
    }
}

/// A pool of ours, and our IP configuration of its family.
fn pool(
    wanted: &AzurePool,
    ingress: &Ingress,
    nic: &Nic,
    balancer: &Value,
) -> Result<Pool, PlaceError> {
    let told = balancer::pool(balancer, &wanted.name);
    let missing = || {
        let has = balancer::pools(balancer).iter().map(|p| balancer::text(p, "/name").to_owned());
        PlaceError::NoPool { pool: wanted.clone(), has: has.collect() }
    };
    let told = told.ok_or_else(missing)?;
    let id = balancer::id(told, "/id").ok_or_else(|| unread("the pool"))?;
    if balancer::list(told, "/properties/tunnelInterfaces").is_empty() {
        return Err(PlaceError::NoTunnels { pool: wanted.name.clone() });
    }
    let family = if wanted.ipv6 { Family::V6 } else { Family::V4 };
    let (configuration, address, network) = configuration(family, ingress, nic)?;
    let theirs = balancer::networks(balancer);
    if !theirs.is_empty() && !theirs.contains(&network) {
        return Err(PlaceError::OtherNetwork {
            balancer: balancer::text(balancer, "/name").to_owned(),
            theirs,
            ours: network,
        });
    }
    Ok(Pool { family, gateway: wanted.gateway.clone(), id, configuration, address, network })
}

/// The interface's IP configuration that has an address of ours, with that address and its network.
fn configuration(
    family: Family,
    ingress: &Ingress,
    nic: &Nic,
) -> Result<(ResourceId, IpAddr, ResourceId), PlaceError> {
    let all = balancer::list(&nic.body, "/properties/ipConfigurations");
    let of_family = |address: &&IpAddr| address.is_ipv6() == (family == Family::V6);
    let ours: Vec<IpAddr> = ingress.addresses.iter().filter(of_family).copied().collect();
    for address in &ours {
        for configuration in all {
            let has = network(balancer::text(configuration, "/properties/privateIPAddress"));
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
    Err(PlaceError::NoAddress { family, interface: nic.id.name().to_owned(), ours, has })
}

/// An IP configuration's address: one, or a whole network of them, `172.20.2.16/28`.
fn network(text: &str) -> Option<Prefix> {
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
