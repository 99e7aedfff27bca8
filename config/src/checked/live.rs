//! Which keys may change while Weir runs, and which require a restart.
//!
//! Gateways, NAT, IPIP sources, flow timeouts, the limits of new flows, of packets to the kernel
//! and of ICMP errors, and the default Maglev table size are records of the region, which slowpath
//! commits like services. After a change of sources, slowpath selects among their objects again. A
//! new `control.max_removal_percent` applies to the next list of a source. Changes of `log.level`
//! and `log.limit` apply to slowpath at once; the data plane reads both keys only when it starts.
//! All other keys are read when the programs start and require a restart.

use std::fmt;

use super::Config;
use crate::layers::truncated;

/// Sections and keys that may change at any time.
const LIVE: [&str; 12] = [
    "gateway",
    "source",
    "nat",
    "flows",
    "ingress.ipip_sources",
    "egress.ipip_sources",
    "punt",
    "icmp",
    "tables.maglev_size",
    "control.max_removal_percent",
    "log.level",
    "log.limit",
];
/// Sections and keys that only slowpath reads.
const SLOWPATH: [&str; 21] = [
    "name",
    "zone",
    "local",
    "cluster",
    "node_ports",
    "external_cluster_ip",
    "load_balancer_classes",
    "labels",
    "annotations",
    "services",
    "aws",
    "azure",
    "private_link",
    "bgp",
    "health",
    "metrics",
    "control",
    "events",
    "telemetry",
    "api",
    "audit",
];

/// Processes to restart for a change to take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// The control process alone; traffic is not affected.
    Slowpath,
    /// The data plane and slowpath, the data plane first.
    Both,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restart::Slowpath => "restart slowpath",
            Restart::Both => "restart the data plane and slowpath",
        })
    }
}

/// A key that differs from the value in force and cannot change while Weir runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartRequired {
    /// The key, for example `ingress.device`.
    pub key: String,
    /// The value in force.
    pub current: String,
    /// The new value.
    pub new: String,
    /// Layer that set the new value, for example `weir.toml:12`.
    pub location: String,
    /// Processes to restart.
    pub restart: Restart,
}

impl fmt::Display for RestartRequired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RestartRequired { key, current, new, location, restart } = self;
        write!(f, "{location}: {key} = {new} requires a restart (in force: {current}): {restart}")
    }
}

impl Config {
    /// Returns the keys that differ in `new` and require a restart. If there is none, all of `new`
    /// may be applied now.
    pub fn changes_requiring_restart(&self, new: &Config) -> Vec<RestartRequired> {
        let keys = self
            .origins
            .keys()
            .chain(new.origins.keys().filter(|key| !self.origins.contains_key(*key)));
        let value = |config: &Config, key: &str| config.origins.get(key).map(|o| o.value.clone());
        let changed = keys.filter(|key| value(self, key) != value(new, key));
        // The order of the addresses determines which NAT port map of a backend belongs to which
        // address, so new addresses may only be appended.
        let only_appended = new.nat.addresses.starts_with(&self.nat.addresses);
        let requiring_restart = changed
            .filter(|key| !within(key, &LIVE) || (*key == "nat.addresses" && !only_appended));
        let shown =
            |config: &Config, key| value(config, key).map_or("unset".into(), |v| truncated(&v));
        requiring_restart
            .map(|key| RestartRequired {
                key: key.clone(),
                current: shown(self, key),
                new: shown(new, key),
                location: new.origins.get(key).map_or("configuration".into(), |o| o.layer.clone()),
                restart: if within(key, &SLOWPATH) { Restart::Slowpath } else { Restart::Both },
            })
            .collect()
    }

    /// Returns whether `other` has the same values and warnings, whatever layer and line set them.
    pub fn same_as(&self, other: &Config) -> bool {
        let without_origins =
            |config: &Config| Config { origins: Default::default(), ..config.clone() };
        without_origins(self) == without_origins(other)
    }
}

/// Returns whether `key` is one of `sections` or below one of them.
fn within(key: &str, sections: &[&str]) -> bool {
    let rest = |section: &&str| key.strip_prefix(section).map(|rest| rest.chars().next());
    sections.iter().filter_map(rest).any(|next| matches!(next, None | Some('.' | '[')))
}
