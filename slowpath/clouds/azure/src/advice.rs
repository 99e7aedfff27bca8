//! Advice about Azure settings that are harmful together or with Weir's settings: one finding each.

use std::time::Duration;

use clouds::report::Finding;
use config::checked::Config;
use serde_json::Value;

use crate::balancer::{Probe, Rule, rules};
use crate::location::Location;

/// Time for the detection of a failed member above which a finding is reported.
const MAX_DETECTION_TIME: Duration = Duration::from_secs(30);
/// Idle timeout of TCP flows up to which a rule should reset idle flows: 4 minutes, Azure's default
/// and minimum.
const SHORT_IDLE_TIMEOUT: Duration = Duration::from_secs(240);

/// The part of Weir's configuration that must fit the settings at Azure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApplianceSettings {
    /// Ports that answer HTTP probes, with any path.
    pub http: Vec<u16>,
    /// Ports that answer TCP probes.
    pub tcp: Vec<u16>,
    /// Idle timeout of established TCP flows, in seconds.
    pub tcp_s: u32,
}

impl ApplianceSettings {
    /// Extracts the settings from the configuration.
    pub fn of(config: &Config) -> ApplianceSettings {
        ApplianceSettings {
            http: config.health.listen.iter().map(|socket| socket.port()).collect(),
            tcp: config.health.tcp.iter().map(|socket| socket.port()).collect(),
            tcp_s: config.flows.tcp_established_s,
        }
    }
}

/// Returns a finding for each harmful setting, once even if several pools have it.
pub fn advise(
    location: &Location,
    balancer: &Value,
    appliance: &ApplianceSettings,
) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for pool in &location.pools {
        let rules = rules(balancer, &pool.id);
        let name = pool.id.name();
        if rules.is_empty() {
            let text = format!("no rule of {} sends to pool {name}", location.balancer.name());
            found.push(finding("pool-unused", text, "add a rule for all ports with a probe"));
        }
        rules.iter().for_each(|rule| check_rule(rule, name, appliance, &mut found));
    }
    let mut names = std::collections::BTreeSet::new();
    found.retain(|finding| names.insert(finding.name));
    found
}

fn check_rule(rule: &Rule, pool: &str, appliance: &ApplianceSettings, found: &mut Vec<Finding>) {
    let Rule { name, idle, .. } = rule;
    if !rule.all_ports {
        let text = format!("rule {name} sends only some ports to pool {pool}");
        let remedy = "set protocol All and port 0 (HA ports), as a gateway requires";
        found.push(finding("rule-not-whole", text, remedy));
    }
    match &rule.probe {
        Some(probe) => check_probe(probe, appliance, found),
        None => found.push(finding(
            "rule-unprobed",
            format!(
                "rule {name} has no probe: a failed member of pool {pool} gets flows, and a drain \
                 has no effect, neither by 503 nor by an administrative state"
            ),
            "add an HTTP probe of a port of health.listen to the rule",
        )),
    }
    if Duration::from_secs(appliance.tcp_s.into()) < *idle {
        found.push(finding(
            "tcp-forgotten-early",
            format!(
                "flows.tcp_established_s is {}, but rule {name} keeps TCP flows for {} s: an idle \
                 flow may change its backend",
                appliance.tcp_s,
                idle.as_secs()
            ),
            "raise flows.tcp_established_s to the rule's idle timeout",
        ));
    }
    if *idle <= SHORT_IDLE_TIMEOUT && !rule.resets {
        found.push(finding(
            "idle-unreset",
            format!(
                "rule {name} expires TCP flows after {} s of idle time, without a reset",
                idle.as_secs()
            ),
            "set enableTcpReset, or raise idleTimeoutInMinutes (up to 100)",
        ));
    }
}

fn check_probe(probe: &Probe, appliance: &ApplianceSettings, found: &mut Vec<Finding>) {
    let Probe { name, protocol, port, .. } = probe;
    let (key, ports) = match protocol.eq_ignore_ascii_case("Tcp") {
        true => ("health.tcp", &appliance.tcp),
        false => ("health.listen", &appliance.http),
    };
    if protocol.eq_ignore_ascii_case("Https") {
        found.push(finding(
            "probe-https",
            format!("probe {name} uses HTTPS, but health.listen serves HTTP"),
            "set the probe's protocol to Http",
        ));
    } else if !ports.contains(port) {
        found.push(finding(
            "probe-elsewhere",
            format!("probe {name} uses {protocol} port {port}, but {key} has {ports:?}"),
            "set the probe's port to one of them",
        ));
    }
    let detection_time = probe.detection_time();
    if detection_time > MAX_DETECTION_TIME {
        found.push(finding(
            "detection-slow",
            format!("probe {name} detects a failed member after {} s", detection_time.as_secs()),
            "lower the probe's intervalInSeconds (5) or its probeThreshold (2)",
        ));
    }
}

fn finding(name: &'static str, text: String, remedy: &str) -> Finding {
    Finding { name, text, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests;
