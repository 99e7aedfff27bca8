//! Advice about AWS settings that are harmful together or with Weir's settings: one finding each.

use std::time::Duration;

use config::checked::{AwsLifecycleSettings, Config};

use clouds::report::Finding;

use super::types::{Attributes, Group, HealthCheck, Stickiness};

pub mod permissions;

/// Time for the detection of a failed target above which a finding is reported.
const MAX_DETECTION_TIME: Duration = Duration::from_secs(30);
/// Idle timeout of non-TCP flows at the gateway, in seconds; AWS has no setting for it.
const NON_TCP_IDLE_S: u32 = 120;

/// The part of Weir's configuration that must fit the settings at AWS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalSettings {
    /// Lifecycle settings.
    pub lifecycle: AwsLifecycleSettings,
    /// Ports that answer HTTP probes.
    pub http: Vec<u16>,
    /// Ports that answer TCP probes.
    pub tcp: Vec<u16>,
    /// Number of networks in `gateway.sources` of AWS gateways: those from which the gateway may
    /// send.
    pub sources: usize,
    /// Idle timeout of non-TCP flows, in seconds.
    pub udp_s: u32,
}

impl LocalSettings {
    /// Extracts the settings from the configuration.
    pub fn of(config: &Config, lifecycle: AwsLifecycleSettings) -> LocalSettings {
        let gateways = config.gateways.iter();
        let aws = gateways.filter(|g| g.kind == config::checked::GatewayKind::Aws);
        let tunnels = aws.flat_map(|gateway| &gateway.tunnels);
        LocalSettings {
            lifecycle,
            http: config.health.listen.iter().map(|socket| socket.port()).collect(),
            tcp: config.health.tcp.iter().map(|socket| socket.port()).collect(),
            sources: tunnels.map(|tunnel| tunnel.sources.len()).sum(),
            udp_s: config.flows.udp_s,
        }
    }
}

/// Returns a finding for each harmful setting.
pub fn advise(group: &Group, attributes: &Attributes, local: &LocalSettings) -> Vec<Finding> {
    let mut found = Vec::new();
    if group.load_balancers.is_empty() {
        found.push(finding(
            "group-unused",
            format!("no load balancer sends traffic to target group {}", group.arn),
            "forward to it in the gateway load balancer's listener",
        ));
    }
    failover(attributes, &mut found);
    timeouts(attributes, local, &mut found);
    probes(group, local, &mut found);
    if attributes.stickiness != Stickiness::FiveTuple {
        found.push(finding(
            "stickiness-coarse",
            format!(
                "stickiness is {:?}: all flows between two hosts go to one target, and the TCP \
                 idle timeout cannot be set",
                attributes.stickiness
            ),
            "use 5-tuple stickiness (stickiness.enabled = false), unless protocols need it",
        ));
    }
    if attributes.cross_zone && local.sources < 2 {
        found.push(finding(
            "sources-of-one-zone",
            "cross-zone is on, but gateway.sources names fewer than two networks: packets from the \
             gateway's nodes in other zones are dropped"
                .to_owned(),
            "add the gateway's subnets of all zones to gateway.sources",
        ));
    }
    found
}

fn failover(attributes: &Attributes, found: &mut Vec<Finding>) {
    let rebalances = attributes.rebalance_on_unhealthy;
    if rebalances != attributes.rebalance_on_deregistration {
        found.push(finding(
            "failover-unequal",
            format!(
                "target_failover.on_unhealthy rebalances: {rebalances}, on_deregistration: {}; AWS \
                 requires them to be equal",
                attributes.rebalance_on_deregistration
            ),
            "set both target_failover attributes to the same value",
        ));
    }
    if !rebalances && !attributes.reset_on_unhealthy {
        found.push(finding(
            "flows-stick-to-dead-target",
            "with target_failover no_rebalance and no TCP reset, flows of a failed target stay on \
             it until they are idle"
                .to_owned(),
            "set target_failover to rebalance, or send_tcp_reset.on_unhealthy.enabled to true",
        ));
    }
    let delay = attributes.deregistration_delay;
    if !attributes.rebalance_on_deregistration
        && !attributes.reset_on_deregistration
        && !delay.is_zero()
    {
        found.push(finding(
            "flows-end-unreset",
            format!("flows that outlive the deregistration delay of {delay:?} get no reset"),
            "set send_tcp_reset.on_deregistration.enabled to true",
        ));
    }
}

fn timeouts(attributes: &Attributes, local: &LocalSettings, found: &mut Vec<Finding>) {
    let (delay, cap) = (attributes.deregistration_delay, local.lifecycle.drain_cap);
    if delay > cap {
        found.push(finding(
            "drain-cap-short",
            format!(
                "the deregistration delay is {delay:?}, but the appliance ends after {cap:?}: the \
                 gateway still sends it flows after that"
            ),
            "raise aws.drain_cap_s, or lower deregistration_delay.timeout_seconds",
        ));
    }
    if delay.is_zero() {
        found.push(finding(
            "no-deregistration-delay",
            "the deregistration delay is 0: each restart cuts all flows".to_owned(),
            "raise deregistration_delay.timeout_seconds, to 300 for instance",
        ));
    }
    if local.udp_s < NON_TCP_IDLE_S {
        found.push(finding(
            "udp-forgotten-early",
            format!(
                "flows.udp_s is {}, but the gateway keeps UDP flows for {NON_TCP_IDLE_S} s: an \
                 idle flow may change its backend",
                local.udp_s
            ),
            "raise flows.udp_s to 120",
        ));
    }
    if !attributes.reset_on_idle && attributes.tcp_idle < Duration::from_secs(350) {
        found.push(finding(
            "idle-unreset",
            format!(
                "TCP flows expire after {:?} of idle time, without a reset",
                attributes.tcp_idle
            ),
            "set send_tcp_reset.on_idle_timeout.enabled to true, or raise tcp.idle_timeout.seconds",
        ));
    }
}

fn probes(group: &Group, local: &LocalSettings, found: &mut Vec<Finding>) {
    let health = &group.health;
    let (port, protocol) = (health.port.unwrap_or(group.port), health.protocol.as_str());
    let (key, ports) = match protocol {
        "TCP" => ("health.tcp", &local.tcp),
        _ => ("health.listen", &local.http),
    };
    if protocol == "HTTPS" {
        found.push(finding(
            "probe-https",
            "the health check uses HTTPS, but health.listen serves HTTP".to_owned(),
            "set the group's health check protocol to HTTP",
        ));
    } else if !ports.contains(&port) {
        found.push(finding(
            "probe-elsewhere",
            format!("the health check probes {protocol} port {port}, but {key} has {ports:?}"),
            &format!("add the port to {key}, or set the group's health check port to one in {key}"),
        ));
    }
    let detection_time = detection_time(health);
    if detection_time > MAX_DETECTION_TIME {
        found.push(finding(
            "detection-slow",
            format!("a failed target is detected after {detection_time:?}"),
            "lower the health check's interval or its unhealthy threshold: 10 s, 2",
        ));
    }
    if health.timeout >= health.interval {
        found.push(finding(
            "probe-overlaps",
            format!(
                "a probe may take {:?}, but the next one begins after {:?}",
                health.timeout, health.interval
            ),
            "set the health check's timeout below its interval",
        ));
    }
}

/// Returns the time after which a failed target is reported unhealthy.
fn detection_time(health: &HealthCheck) -> Duration {
    health.interval * health.unhealthy_threshold
}

fn finding(name: &'static str, text: String, remedy: &str) -> Finding {
    Finding { name, text, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests;
