//! A service's policy, checked.

use super::file::{self, Mode};
use super::health::HealthCheck;
use super::kinds::{NatPolicy, RangesPolicy, TrafficPolicy};
use super::spec::SourceRanges;
use crate::check::door::Door;
use crate::checked::Prefix;

pub(super) fn check(door: &mut Door, key: &str, file: &file::Service) {
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
}

/// The clients that may use it; none where everybody may.
pub(super) fn source_ranges(
    door: &mut Door,
    key: &str,
    file: &file::Service,
) -> Option<SourceRanges> {
    let ranges = file.source_ranges.iter().enumerate();
    let prefixes: Vec<Prefix> = ranges
        .filter_map(|(i, text)| door.prefix(&format!("{key}.source_ranges.{i}"), text))
        .collect();
    (!prefixes.is_empty()).then_some(SourceRanges { policy: file.source_policy, prefixes })
}
