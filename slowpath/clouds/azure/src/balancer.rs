//! Parsing of a load balancer's body, which contains its pools with their members and tunnels, its
//! rules and its probes.

use std::net::IpAddr;
use std::time::Duration;

use config::checked::MembershipMode;
use serde_json::Value;

use crate::id::ResourceId;
use crate::membership::AdminState;
use crate::types::{TunnelEnd, Tunnels};

/// An entry of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// How the entry was made: by IP configuration or by address.
    pub mode: MembershipMode,
    /// Name of the entry in the pool's list of addresses; an administrative state needs one.
    pub name: Option<String>,
    /// The member's IP configuration (an address of a network interface), if Azure lists it.
    pub configuration: Option<ResourceId>,
    /// Address, of an entry by address.
    pub address: Option<IpAddr>,
    /// Virtual network of the address.
    pub network: Option<ResourceId>,
    /// Administrative state.
    pub admin: AdminState,
}

/// A load balancing rule that sends to a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Name of the rule.
    pub name: String,
    /// True if the rule covers all ports of all protocols.
    pub all_ports: bool,
    /// Idle timeout of TCP flows.
    pub idle: Duration,
    /// True if a TCP flow is reset when its idle timeout expires.
    pub resets: bool,
    /// Probe that determines the health of members; without one, members are not checked.
    pub probe: Option<Probe>,
}

/// A health probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Name of the probe.
    pub name: String,
    /// Protocol as Azure spells it: `Http`, `Https` or `Tcp`.
    pub protocol: String,
    /// Port of the probe.
    pub port: u16,
    /// Path of the HTTP request; empty for TCP.
    pub path: String,
    /// Time between two probes.
    pub interval: Duration,
    /// Number of failed probes until a member is down.
    pub failures: u32,
}

impl Probe {
    /// Returns the time after which a failed member is detected.
    pub fn detection_time(&self) -> Duration {
        self.interval.saturating_mul(self.failures)
    }
}

/// Returns the string at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the resource id at a JSON pointer.
pub(crate) fn id(value: &Value, pointer: &str) -> Option<ResourceId> {
    ResourceId::parse(text(value, pointer)).ok()
}

/// Returns the list at a JSON pointer; empty if there is none.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn number<T: TryFrom<u64>>(value: &Value, pointer: &str) -> Option<T> {
    T::try_from(value.pointer(pointer)?.as_u64()?).ok()
}

/// Returns the SKU of a load balancer: `Gateway`, `Standard` or `Basic`.
pub fn sku(balancer: &Value) -> &str {
    text(balancer, "/sku/name")
}

/// Returns the backend pools of a load balancer.
pub fn pools(balancer: &Value) -> &[Value] {
    list(balancer, "/properties/backendAddressPools")
}

/// Returns the pool of that name; Azure's names are case-insensitive.
pub fn pool<'a>(balancer: &'a Value, name: &str) -> Option<&'a Value> {
    pools(balancer).iter().find(|pool| text(pool, "/name").eq_ignore_ascii_case(name))
}

/// Returns the virtual networks of a load balancer's frontends.
pub fn networks(balancer: &Value) -> Vec<ResourceId> {
    list(balancer, "/properties/frontendIPConfigurations").iter().filter_map(network_of).collect()
}

/// Returns the virtual network of an object with a subnet.
pub(crate) fn network_of(value: &Value) -> Option<ResourceId> {
    id(value, "/properties/subnet/id")?.parent()
}

/// Returns the private addresses of a load balancer's frontends, from which it sends to members.
pub fn frontend_addresses(balancer: &Value) -> Vec<IpAddr> {
    let frontends = list(balancer, "/properties/frontendIPConfigurations").iter();
    frontends.filter_map(|f| text(f, "/properties/privateIPAddress").parse().ok()).collect()
}

/// Returns all entries of a pool. If one entry has an address, all entries are by address: Azure
/// then lists the interfaces that have these addresses too, which are no entries of their own.
pub fn entries(pool: &Value) -> Vec<Entry> {
    let listed = list(pool, "/properties/loadBalancerBackendAddresses").iter().map(parse_entry);
    let mut entries: Vec<Entry> = listed.collect();
    if entries.iter().any(|entry| entry.mode == MembershipMode::Ip) {
        return entries;
    }
    for reference in list(pool, "/properties/backendIPConfigurations") {
        let configuration = id(reference, "/id");
        if configuration.is_some() && !entries.iter().any(|e| e.configuration == configuration) {
            let (mode, admin) = (MembershipMode::Nic, AdminState::None);
            let (name, address, network) = (None, None, None);
            entries.push(Entry { mode, name, configuration, address, network, admin });
        }
    }
    entries
}

fn parse_entry(listed: &Value) -> Entry {
    let address = text(listed, "/properties/ipAddress");
    let mode = if address.is_empty() { MembershipMode::Nic } else { MembershipMode::Ip };
    let network = id(listed, "/properties/virtualNetwork/id").or_else(|| network_of(listed));
    Entry {
        mode,
        name: Some(text(listed, "/name").to_owned()).filter(|name| !name.is_empty()),
        configuration: id(listed, "/properties/networkInterfaceIPConfiguration/id"),
        address: address.parse().ok(),
        network,
        admin: parse_admin_state(text(listed, "/properties/adminState")),
    }
}

fn parse_admin_state(text: &str) -> AdminState {
    match text.to_ascii_lowercase().as_str() {
        "up" => AdminState::Up,
        "down" => AdminState::Down,
        _ => AdminState::None,
    }
}

/// Returns a pool's tunnels, or why they cannot be used. Exactly one external and one internal
/// VXLAN tunnel are required, although an example of Microsoft's has two internal ones.
pub fn tunnels(pool: &Value) -> Result<Tunnels, String> {
    let interfaces = list(pool, "/properties/tunnelInterfaces");
    let name = text(pool, "/name");
    let described = || {
        let one = |t: &Value| {
            let number = |pointer| number::<u64>(t, pointer).unwrap_or_default();
            let (port, vni) = (number("/port"), number("/identifier"));
            format!("{} {} port {port} vni {vni}", text(t, "/type"), text(t, "/protocol"))
        };
        interfaces.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let remedy = "give the pool one External and one Internal tunnel interface, protocol VXLAN \
                  (az network lb address-pool tunnel-interface)";
    if interfaces.is_empty() {
        return Err(format!("pool {name} has no tunnel interfaces; {remedy}"));
    }
    let of = |side: &str| {
        let mut fits = interfaces.iter().filter(|t| text(t, "/type").eq_ignore_ascii_case(side));
        fits.next().filter(|_| fits.next().is_none()).and_then(parse_tunnel)
    };
    match (interfaces.len(), of("External"), of("Internal")) {
        (2, Some(external), Some(internal)) => Ok(Tunnels { external, internal }),
        _ => Err(format!("pool {name} has the tunnels {}; {remedy}", described())),
    }
}

/// Parses one tunnel; returns `None` unless it is a valid VXLAN tunnel.
fn parse_tunnel(tunnel: &Value) -> Option<TunnelEnd> {
    let port = number(tunnel, "/port").filter(|port| *port != 0)?;
    let vni = number(tunnel, "/identifier").filter(|vni| *vni < 1 << 24)?;
    text(tunnel, "/protocol").eq_ignore_ascii_case("VXLAN").then_some(TunnelEnd { port, vni })
}

/// Returns the rules that send to a pool.
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
    let is_zero = |pointer| number::<u16>(rule, pointer) == Some(0);
    let minutes = number(rule, "/properties/idleTimeoutInMinutes").unwrap_or(4_u64);
    let probe = id(rule, "/properties/probe/id");
    let mut probes = list(balancer, "/properties/probes").iter();
    let probe = probe.and_then(|used| probes.find(|p| id(p, "/id").as_ref() == Some(&used)));
    Rule {
        name: text(rule, "/name").to_owned(),
        all_ports: text(rule, "/properties/protocol").eq_ignore_ascii_case("All")
            && is_zero("/properties/frontendPort"),
        idle: Duration::from_secs(minutes.saturating_mul(60)),
        resets: rule.pointer("/properties/enableTcpReset").and_then(Value::as_bool) == Some(true),
        probe: probe.map(read_probe),
    }
}

/// Parses a probe. Azure's documentation is inconsistent about whether `numberOfProbes` or
/// `probeThreshold` applies, so the larger one is used.
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
