//! What a load balancer's document says: its pools, who is in them, their tunnels, rules and
//! probes. One document has all of it, so one question does.

use std::net::IpAddr;
use std::time::Duration;

use config::checked::MadeBy;
use serde_json::Value;

use crate::id::ResourceId;
use crate::life::Admin;
use crate::told::{End, Tunnels};

/// An entry of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How it is in the pool.
    pub by: MadeBy,
    /// Its name, where the pool lists it as an address: an administrative state needs one.
    pub name: Option<String>,
    /// The IP configuration that names the pool.
    pub configuration: Option<ResourceId>,
    /// The address that the pool names.
    pub address: Option<IpAddr>,
    /// Where that address is.
    pub network: Option<ResourceId>,
    /// Its administrative state.
    pub admin: Admin,
}

/// A rule that sends to a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// All ports of all protocols.
    pub whole: bool,
    /// TCP flows are forgotten after so long without a packet.
    pub idle: Duration,
    /// Who is forgotten is told by a reset.
    pub resets: bool,
    /// What says whether a member is well; without one nothing does.
    pub probe: Option<Probe>,
}

/// A probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// `Http`, `Https` or `Tcp`, as Azure writes it.
    pub protocol: String,
    /// Where it asks.
    pub port: u16,
    /// For what it asks; empty with TCP.
    pub path: String,
    /// From one to the next.
    pub interval: Duration,
    /// So many that fail take a member out.
    pub failures: u32,
}

impl Probe {
    /// How long a dead member is taken for well.
    pub fn detects(&self) -> Duration {
        self.interval.saturating_mul(self.failures)
    }
}

/// The text at a pointer, empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The id at a pointer.
pub(crate) fn id(value: &Value, pointer: &str) -> Option<ResourceId> {
    ResourceId::parse(text(value, pointer)).ok()
}

/// The list at a pointer, empty where there is none.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number<T: TryFrom<u64>>(value: &Value, pointer: &str) -> Option<T> {
    T::try_from(value.pointer(pointer)?.as_u64()?).ok()
}

/// Its SKU: `Gateway`, `Standard`, `Basic`.
pub fn sku(balancer: &Value) -> &str {
    text(balancer, "/sku/name")
}

/// Its pools.
pub fn pools(balancer: &Value) -> &[Value] {
    list(balancer, "/properties/backendAddressPools")
}

/// The pool of that name. Azure's names have no case.
pub fn pool<'a>(balancer: &'a Value, name: &str) -> Option<&'a Value> {
    pools(balancer).iter().find(|pool| text(pool, "/name").eq_ignore_ascii_case(name))
}

/// Networks that its frontends are in.
pub fn networks(balancer: &Value) -> Vec<ResourceId> {
    list(balancer, "/properties/frontendIPConfigurations").iter().filter_map(network_of).collect()
}

/// The network of what has a subnet.
pub(crate) fn network_of(value: &Value) -> Option<ResourceId> {
    id(value, "/properties/subnet/id")?.parent()
}

/// Its frontends' own addresses, from which packets come to members.
pub fn frontends(balancer: &Value) -> Vec<IpAddr> {
    let frontends = list(balancer, "/properties/frontendIPConfigurations").iter();
    frontends.filter_map(|f| text(f, "/properties/privateIPAddress").parse().ok()).collect()
}

/// All that are in a pool. A pool is by address as soon as an entry of it has one: Azure lists the
/// interfaces behind those addresses as well.
pub fn entries(pool: &Value) -> Vec<Entry> {
    let listed = list(pool, "/properties/loadBalancerBackendAddresses").iter().map(entry);
    let mut entries: Vec<Entry> = listed.collect();
    if entries.iter().any(|entry| entry.by == MadeBy::Ip) {
        return entries;
    }
    for reference in list(pool, "/properties/backendIPConfigurations") {
        let configuration = id(reference, "/id");
        if configuration.is_some() && !entries.iter().any(|e| e.configuration == configuration) {
            let (by, admin) = (MadeBy::Nic, Admin::None);
            let (name, address, network) = (None, None, None);
            entries.push(Entry { by, name, configuration, address, network, admin });
        }
    }
    entries
}

fn entry(listed: &Value) -> Entry {
    let address = text(listed, "/properties/ipAddress");
    let by = if address.is_empty() { MadeBy::Nic } else { MadeBy::Ip };
    let network = id(listed, "/properties/virtualNetwork/id").or_else(|| network_of(listed));
    Entry {
        by,
        name: Some(text(listed, "/name").to_owned()).filter(|name| !name.is_empty()),
        configuration: id(listed, "/properties/networkInterfaceIPConfiguration/id"),
        address: address.parse().ok(),
        network,
        admin: admin(text(listed, "/properties/adminState")),
    }
}

fn admin(text: &str) -> Admin {
    match text.to_ascii_lowercase().as_str() {
        "up" => Admin::Up,
        "down" => Admin::Down,
        _ => Admin::None,
    }
}

/// A pool's tunnels, or why they are none that we could use: exactly one external and one internal,
/// both VXLAN. Microsoft's own example has two internal ones.
pub fn tunnels(pool: &Value) -> Result<Tunnels, String> {
    let told = list(pool, "/properties/tunnelInterfaces");
    let name = text(pool, "/name");
    let described = || {
        let one = |t: &Value| {
            let number = |pointer| number::<u64>(t, pointer).unwrap_or_default();
            let (port, vni) = (number("/port"), number("/identifier"));
            format!("{} {} port {port} vni {vni}", text(t, "/type"), text(t, "/protocol"))
        };
        told.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let remedy = "give the pool one External and one Internal tunnel interface, protocol VXLAN \
                  (az network lb address-pool tunnel-interface)";
    if told.is_empty() {
        return Err(format!("pool {name} has no tunnel interfaces; {remedy}"));
    }
    let of = |side: &str| {
        let mut fits = told.iter().filter(|t| text(t, "/type").eq_ignore_ascii_case(side));
        fits.next().filter(|_| fits.next().is_none()).and_then(end)
    };
    match (told.len(), of("External"), of("Internal")) {
        (2, Some(external), Some(internal)) => Ok(Tunnels { external, internal }),
        _ => Err(format!("pool {name} has the tunnels {}; {remedy}", described())),
    }
}

fn end(tunnel: &Value) -> Option<End> {
    let port = number(tunnel, "/port").filter(|port| *port != 0)?;
    let vni = number(tunnel, "/identifier").filter(|vni| *vni < 1 << 24)?;
    text(tunnel, "/protocol").eq_ignore_ascii_case("VXLAN").then_some(End { port, vni })
}

/// The rules that send to a pool.
pub fn rules(balancer: &Value, pool: &ResourceId) -> Vec<Rule> {
    let all = list(balancer, "/properties/loadBalancingRules").iter();
    let sends = |rule: &&Value| {
        let of = list(rule, "/properties/backendAddressPools").iter();
        let one = id(rule, "/properties/backendAddressPool/id");
        of.filter_map(|reference| id(reference, "/id")).chain(one).any(|id| id == *pool)
    };
    all.filter(sends).map(|rule| read_rule(balancer, rule)).collect()
}

fn read_rule(balancer: &Value, rule: &Value) -> Rule {
    let port = |pointer| number::<u16>(rule, pointer) == Some(0);
    let minutes = number(rule, "/properties/idleTimeoutInMinutes").unwrap_or(4_u64);
    let probe = id(rule, "/properties/probe/id");
    let mut probes = list(balancer, "/properties/probes").iter();
    let probe = probe.and_then(|wanted| probes.find(|p| id(p, "/id").as_ref() == Some(&wanted)));
    Rule {
        name: text(rule, "/name").to_owned(),
        whole: text(rule, "/properties/protocol").eq_ignore_ascii_case("All")
            && port("/properties/frontendPort"),
        idle: Duration::from_secs(minutes.saturating_mul(60)),
        resets: rule.pointer("/properties/enableTcpReset").and_then(Value::as_bool) == Some(true),
        probe: probe.map(read_probe),
    }
}

/// Which of the two numbers counts is not the same in all of Azure's texts: the larger one is told.
fn read_probe(probe: &Value) -> Probe {
    let interval = number(probe, "/properties/intervalInSeconds").unwrap_or(15);
    let numbers = ["/properties/numberOfProbes", "/properties/probeThreshold"];
    Probe {
        name: text(probe, "/name").to_owned(),
        protocol: text(probe, "/properties/protocol").to_owned(),
        port: number(probe, "/properties/port").unwrap_or_default(),
        path: text(probe, "/properties/requestPath").to_owned(),
        interval: Duration::from_secs(interval),
        failures: numbers.into_iter().filter_map(|at| number(probe, at)).max().unwrap_or(1),
    }
}

#[cfg(test)]
mod tests;
