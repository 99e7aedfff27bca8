//! A service's policy, checked.

use super::file::{self, Mode};
use super::{HealthCheck, NatPolicy, Policy, RangesPolicy, TrafficPolicy};
use crate::check::door::Door;

pub(super) fn policy(door: &mut Door, key: &str, file: &file::Service) -> Policy {
    let at = |field: &str| format!("{key}.{field}");
    if file.proxy_redirect.is_some() && file.affinity_s != 0 {
        let allowed = "leave out the one or the other";
        door.refuse(&at("affinity_s"), "the proxy sees to affinity itself", allowed);
    }
    if file.source_policy == RangesPolicy::Deny && file.source_ranges.is_empty() {
        let allowed = "write source_ranges, or leave source_policy out";
        door.refuse(&at("source_policy"), "there is nobody to deny", allowed);
    }
    for wrong in file.health.iter().flat_map(HealthCheck::faults) {
        door.refuse(&at(&format!("health.{}", wrong.field)), &wrong.wrong, &wrong.allowed);
    }
    if file.health_check_port != 0 && file.external_policy != TrafficPolicy::Local {
        let wrong = "only who needs local backends is asked whether there are any";
        let allowed = "write external_policy = \"local\", or leave it out";
        door.refuse(&at("health_check_port"), wrong, allowed);
    }
    if file.nat_policy != NatPolicy::None && file.mode != Mode::Nat {
        let allowed = "leave it out: a tunnel carries either family; or write mode = \"nat\"";
        door.refuse(&at("nat_policy"), "only mode nat translates", allowed);
    }
    let ranges = file.source_ranges.iter().enumerate();
    let source_ranges = ranges
        .filter_map(|(i, text)| door.prefix(&at(&format!("source_ranges.{i}")), text))
        .collect();
    Policy {
        external: file.external_policy,
        internal: file.internal_policy,
        distribution: file.distribution,
        algorithm: file.algorithm,
        nat: file.nat_policy,
        affinity_s: file.affinity_s,
        source_ranges,
        source_policy: file.source_policy,
        health_check_port: file.health_check_port,
        health: file.health.clone(),
        proxy_redirect: file.proxy_redirect.as_ref().map(|to| (to.port, to.ports.clone())),
    }
}
