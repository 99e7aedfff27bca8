//! Checks whether the ingress interface's security groups admit the gateway's packets.

use config::checked::Prefix;

use super::check_config::CheckConfig;
use super::collect::Observations;
use super::{Check, Verdict};
use crate::types::{Permission, SecurityGroup};

/// Checks whether the rules admit GENEVE and health probes, by source address: a gateway load
/// balancer has no security group that a rule could name instead.
pub(super) fn evaluate(config: &CheckConfig, observed: &Observations) -> Vec<Check> {
    if observed.security.is_empty() || config.routes() {
        return Vec::new();
    }
    let mut traffic: Vec<(&str, &str, u16)> =
        config.ports.iter().map(|port| ("GENEVE", "udp", *port)).collect();
    if let Ok(group) = &observed.group {
        traffic.push(("health check", "tcp", group.health.port.unwrap_or(group.port)));
    }
    let ids: Vec<&str> = observed.security.iter().map(|group| group.id.as_str()).collect();
    let check = |(what, protocol, port): (&str, &str, u16)| {
        let rejected: Vec<String> = config
            .sources
            .iter()
            .filter(|source| !admits(&observed.security, protocol, port, source))
            .map(|source| format!("{}/{}", source.addr, source.len))
            .collect();
        let (name, of) = (format!("{what} admitted"), ids.join(", "));
        if rejected.is_empty() {
            return Check::ok(&name, format!("{of}: {protocol} port {port} is admitted"));
        }
        let rejected = rejected.join(", ");
        let text = format!("{of}: {protocol} port {port} is not admitted from {rejected}");
        let by_list = observed.security.iter().flat_map(|g| &g.ingress).any(|rule| {
            rule.others.iter().any(|id| id.starts_with("pl-")) && opens(rule, protocol, port)
        });
        let (verdict, remedy) = match by_list {
            true => (Verdict::Warn, "check that the rule's prefix list contains these networks"),
            false => (Verdict::Fail, "add an inbound rule for these networks"),
        };
        Check::new(&name, verdict, text, remedy)
    };
    traffic.into_iter().map(check).collect()
}

/// Returns true if a single rule admits this traffic from the whole of `source`.
pub fn admits(groups: &[SecurityGroup], protocol: &str, port: u16, source: &Prefix) -> bool {
    let covers = |text: &String| {
        text.split_once('/').is_some_and(|(addr, len)| {
            let network = addr.parse().ok().zip(len.parse::<u8>().ok());
            network.is_some_and(|(addr, len)| {
                len <= source.len && Prefix { addr, len }.contains(source.addr)
            })
        })
    };
    let mut rules = groups.iter().flat_map(|group| &group.ingress);
    rules.any(|rule| opens(rule, protocol, port) && rule.prefixes.iter().any(covers))
}

/// Returns true if the rule applies to this protocol and port.
fn opens(rule: &Permission, protocol: &str, port: u16) -> bool {
    let number = if protocol == "udp" { "17" } else { "6" };
    let inside = |(first, last)| (first..=last).contains(&port);
    match rule.protocol.as_str() {
        "-1" => true,
        other => (other == protocol || other == number) && rule.ports.is_none_or(inside),
    }
}
