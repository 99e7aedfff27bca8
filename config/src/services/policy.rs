//! A service's policy, checked; and what of it no plane carries out yet.

use super::file;
use super::{NatPolicy, Policy, RangesPolicy};
use crate::checked::Plane;
use crate::checked::door::Door;

pub(super) fn policy(door: &mut Door, key: &str, file: &file::Service, plane: Plane) -> Policy {
    not_yet(door, key, file);
    let at = |field: &str| format!("{key}.{field}");
    if file.proxy_redirect.is_some() && plane == Plane::Xdp {
        let wrong = "with plane = \"xdp\" nobody sees what the proxy answers";
        let allowed = "leave it out, or write plane = \"dpdk\" in the configuration";
        door.refuse(&at("proxy_redirect"), wrong, allowed);
    }
    if file.proxy_redirect.is_some() && file.affinity_s != 0 {
        let allowed = "leave out the one or the other";
        door.refuse(&at("affinity_s"), "the proxy sees to affinity itself", allowed);
    }
    if file.source_policy == RangesPolicy::Deny && file.source_ranges.is_empty() {
        let allowed = "write source_ranges, or leave source_policy out";
        door.refuse(&at("source_policy"), "there is nobody to deny", allowed);
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
        proxy_redirect: file.proxy_redirect.as_ref().map(|to| (to.port, to.ports.clone())),
    }
}

/// Refuses what would be asked in vain: a service that seems to have it is worse than none.
fn not_yet(door: &mut Door, key: &str, file: &file::Service) {
    for (field, asked) in [
        ("nat_policy", file.nat_policy != NatPolicy::None),
        ("health_check_port", file.health_check_port != 0),
    ] {
        if asked {
            let wrong = "this is not yet carried out by a plane";
            door.refuse(&format!("{key}.{field}"), wrong, "leave it out");
        }
    }
}
