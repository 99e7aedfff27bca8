//! Checks whether the network security groups admit the gateway's packets and probes.

use std::net::IpAddr;

use config::checked::Interface;
use serde_json::Value;

use super::check_config::CheckConfig;
use super::collect::Observations;
use super::{Check, Verdict};
use crate::balancer::{self, list, rules, text};

/// Source address of Azure's health probes, the same in all regions.
pub const PROBE_SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(168, 63, 129, 16));

/// Checks whether the groups admit the tunnels' packets, which come from the frontends' addresses
/// in the virtual network, and the probes, which come from [`PROBE_SOURCE`].
pub(super) fn evaluate(_: &CheckConfig, observed: &Observations) -> Vec<Check> {
    let (Ok(location), Some(balancer)) = (&observed.location, &observed.balancer) else {
        return Vec::new();
    };
    if observed.security.is_empty() {
        return Vec::new();
    }
    let groups: Vec<&str> = observed.security.iter().map(|group| text(group, "/name")).collect();
    let check = |name: String, protocol: &str, port: u16, source: (IpAddr, &str), to: IpAddr| {
        let admitted = |group: &Value| admits(group, protocol, port, source, to);
        let denying: Vec<&str> =
            observed.security.iter().filter(|g| !admitted(g)).map(|g| text(g, "/name")).collect();
        let what = format!("{protocol} port {port} from {} ({})", source.0, source.1);
        match denying.is_empty() {
            true => Check::ok(&name, format!("{}: {what} is admitted", groups.join(", "))),
            false => {
                let text = format!("{}: {what} is not admitted", denying.join(", "));
                let remedy = "add an inbound rule that allows it before the one that denies it";
                Check::new(&name, Verdict::Fail, text, remedy)
            }
        }
    };
    let mut checks = Vec::new();
    for pool in &location.pools {
        let (of, to) = (pool.id.name(), pool.address);
        let from = balancer::frontend_addresses(balancer);
        let from = from.into_iter().find(|from| from.is_ipv4() == to.is_ipv4());
        let document = crate::pool_entries::find_pool(balancer, pool).ok();
        if let (Some(from), Some(Ok(tunnels))) = (from, document.map(balancer::tunnels)) {
            for port in [tunnels.external.port, tunnels.internal.port] {
                let name = format!("tunnels of {of} admitted");
                checks.push(check(name, "Udp", port, (from, "VirtualNetwork"), to));
            }
        }
        for probe in rules(balancer, &pool.id).into_iter().filter_map(|rule| rule.probe) {
            let name = format!("probe {} admitted", probe.name);
            checks.push(check(name, "Tcp", probe.port, (PROBE_SOURCE, "AzureLoadBalancer"), to));
        }
    }
    checks
}

/// Returns true if a security group admits a packet. `source` is its source address, together with
/// Azure's service tag for that address. The matching rule with the lowest priority number decides;
/// after the group's own rules come Azure's default rules, which admit the virtual network and the
/// load balancer.
pub fn admits(
    group: &Value,
    protocol: &str,
    port: u16,
    source: (IpAddr, &str),
    to: IpAddr,
) -> bool {
    let inbound = |rule: &&Value| {
        text(rule, "/properties/direction").eq_ignore_ascii_case("Inbound")
            && matches(rule, "protocol", |p| p == "*" || p.eq_ignore_ascii_case(protocol))
            && matches(rule, "destinationPortRange", |range| holds(range, port))
            && matches(rule, "sourceAddressPrefix", |prefix| covers(prefix, source))
            && matches(rule, "destinationAddressPrefix", |p| covers(p, (to, "VirtualNetwork")))
    };
    let priority = |rule: &&Value| rule.pointer("/properties/priority").and_then(Value::as_u64);
    let rules = list(group, "/properties/securityRules").iter();
    match rules.filter(inbound).min_by_key(priority) {
        Some(rule) => text(rule, "/properties/access").eq_ignore_ascii_case("Allow"),
        None => matches!(source.1, "VirtualNetwork" | "AzureLoadBalancer"),
    }
}

/// Returns true if one of a rule's values matches, under `key` (a single value) or under its plural
/// (a list).
fn matches(rule: &Value, key: &str, fits: impl Fn(&str) -> bool) -> bool {
    let plural = key.strip_suffix("Prefix").map_or(format!("{key}s"), |k| format!("{k}Prefixes"));
    let many = list(rule, &format!("/properties/{plural}")).iter().filter_map(Value::as_str);
    let one = Some(text(rule, &format!("/properties/{key}"))).filter(|text| !text.is_empty());
    many.chain(one).any(fits)
}

fn holds(range: &str, port: u16) -> bool {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let bounds = first.trim().parse::<u16>().ok().zip(last.trim().parse::<u16>().ok());
    range == "*" || bounds.is_some_and(|(first, last)| (first..=last).contains(&port))
}

fn covers(prefix: &str, (address, tag): (IpAddr, &str)) -> bool {
    if prefix == "*" || prefix.eq_ignore_ascii_case(tag) {
        return true;
    }
    let (addr, len) = prefix.split_once('/').unwrap_or((prefix, "128"));
    let network = addr.parse::<IpAddr>().ok().zip(len.parse::<u8>().ok());
    network.is_some_and(|(addr, len)| {
        let len = len.min(if addr.is_ipv4() { 32 } else { 128 });
        Interface { addr, len }.network().contains(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(priority: u32, access: &str, protocol: &str, port: &str, source: &str) -> Value {
        json!({ "properties": {
            "priority": priority, "access": access, "direction": "Inbound", "protocol": protocol,
            "destinationPortRange": port, "destinationPortRanges": [],
            "sourceAddressPrefix": source, "sourceAddressPrefixes": [],
            "destinationAddressPrefix": "*",
        }})
    }

    #[test]
    fn lowest_priority_number_decides_before_default_rules() {
        let from: (IpAddr, &str) = ("10.1.0.100".parse().unwrap(), "VirtualNetwork");
        let to: IpAddr = "10.1.0.11".parse().unwrap();
        type Rule = (u32, &'static str, &'static str, &'static str, &'static str);
        let table: &[(&[Rule], bool)] = &[
            (&[], true),
            (&[(100, "Deny", "*", "*", "*")], false),
            (&[(100, "Deny", "Tcp", "*", "*")], true),
            (&[(200, "Deny", "*", "*", "*"), (100, "Allow", "Udp", "10800-10801", "*")], true),
            (&[(200, "Deny", "*", "*", "*"), (100, "Allow", "Udp", "10801", "*")], false),
            (&[(100, "Deny", "UDP", "10800", "VirtualNetwork")], false),
            (&[(100, "Deny", "Udp", "10800", "10.1.0.0/24")], false),
            (&[(100, "Deny", "Udp", "10800", "10.2.0.0/24")], true),
            (&[(100, "Deny", "Udp", "10800", "Internet")], true),
        ];
        for (row, (rules, admitted)) in table.iter().enumerate() {
            let rules: Vec<Value> =
                rules.iter().map(|(n, a, p, o, s)| rule(*n, a, p, o, s)).collect();
            let group = json!({ "properties": { "securityRules": rules } });
            assert_eq!(admits(&group, "Udp", 10800, from, to), *admitted, "row {row}");
        }
        let no_rules = json!({ "properties": {} });
        assert!(admits(&no_rules, "Tcp", 80, (PROBE_SOURCE, "AzureLoadBalancer"), to));
        assert!(!admits(&no_rules, "Tcp", 80, (PROBE_SOURCE, "Internet"), to));
    }
}
