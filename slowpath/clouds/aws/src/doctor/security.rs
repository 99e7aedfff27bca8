//! Checks whether the ingress interface's security groups admit the gateway's packets.

use config::checked::Prefix;

use super::ask::Seen;
use super::wants::Wants;
use super::{Check, Verdict};
use crate::told::{Permission, SecurityGroup};

/// Checks GENEVE and health probes against the rules by address, because a gateway load balancer
/// has no security group that a rule could name.
pub(super) fn judge(wants: &Wants, seen: &Seen) -> Vec<Check> {
    if seen.security.is_empty() || wants.routes() {
        return Vec::new();
    }
    let mut asked: Vec<(&str, &str, u16)> =
        wants.ports.iter().map(|port| ("GENEVE", "udp", *port)).collect();
    if let Ok(group) = &seen.group {
        asked.push(("health check", "tcp", group.health.port.unwrap_or(group.port)));
    }
    let ids: Vec<&str> = seen.security.iter().map(|group| group.id.as_str()).collect();
    let check = |(what, protocol, port): (&str, &str, u16)| {
        let shut: Vec<String> = wants
            .sources
            .iter()
            .filter(|source| !admits(&seen.security, protocol, port, source))
            .map(|source| format!("{}/{}", source.addr, source.len))
            .collect();
        let (name, of) = (format!("{what} admitted"), ids.join(", "));
        if shut.is_empty() {
            return Check::ok(&name, format!("{of} let {protocol} port {port} in"));
        }
        let text = format!("{of} let no {protocol} port {port} in from {}", shut.join(", "));
        let by_list = seen.security.iter().flat_map(|g| &g.ingress).any(|rule| {
            rule.others.iter().any(|id| id.starts_with("pl-")) && opens(rule, protocol, port)
        });
        match by_list {
            true => Check::new(&name, Verdict::Warn, text, "see whether its prefix list does"),
            false => Check::new(&name, Verdict::Fail, text, "add a rule for these networks"),
        }
    };
    asked.into_iter().map(check).collect()
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

fn opens(rule: &Permission, protocol: &str, port: u16) -> bool {
    let number = if protocol == "udp" { "17" } else { "6" };
    let inside = |(first, last)| (first..=last).contains(&port);
    match rule.protocol.as_str() {
        "-1" => true,
        told => (told == protocol || told == number) && rule.ports.is_none_or(inside),
    }
}
