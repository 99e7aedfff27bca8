//! Which keys may change while Weir runs, and which take a restart.
//!
//! Gateways, NAT, IPIP's sources, flow timeouts, the limits of punts and ICMP errors, and the
//! default size of tables are table data: slowpath commits them like services. Which sources are
//! heard it chooses anew. All else is laid out when the programs start, and so is every key that is
//! not named here.

use std::fmt;

use super::Config;
use crate::layers::shortened;

/// Sections and keys that may change at any time.
const LIVE: [&str; 10] = [
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
];
/// Sections and keys that only slowpath reads.
const SLOWPATH: [&str; 18] = [
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
    "api",
];

/// What has to be started again for a change to take effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// The control process alone; packets don't notice.
    Slowpath,
    /// Both, the poll loop first.
    Both,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restart::Slowpath => "restart slowpath",
            Restart::Both => "restart fastpath and slowpath",
        })
    }
}

/// A key that has another value than the one in force, and can't change while Weir runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fixed {
    /// The key, `ingress.device`.
    pub key: String,
    /// The value in force.
    pub now: String,
    /// The value that was written.
    pub wanted: String,
    /// Who wrote it: `weir.toml:12`.
    pub place: String,
    /// What a change takes.
    pub restart: Restart,
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fixed { key, now, wanted, place, restart } = self;
        write!(f, "{place}: {key} = {wanted} takes a restart (in force is {now}): {restart}")
    }
}

impl Config {
    /// The keys in which `new` differs from this configuration and that only a restart can change.
    /// None: all of `new` may be put in force now.
    pub fn fixed_changes(&self, new: &Config) -> Vec<Fixed> {
        let known = self
            .origins
            .keys()
            .chain(new.origins.keys().filter(|key| !self.origins.contains_key(*key)));
        let value = |config: &Config, key: &str| config.origins.get(key).map(|o| o.value.clone());
        let changed = known.filter(|key| value(self, key) != value(new, key));
        // Which map of a backend's NAT ports is whose depends on the order of the addresses, so
        // that new ones come behind the others.
        let grown = new.nat.addresses.starts_with(&self.nat.addresses);
        let fixed =
            changed.filter(|key| !within(key, &LIVE) || (*key == "nat.addresses" && !grown));
        let shown =
            |config: &Config, key| value(config, key).map_or("nothing".into(), |v| shortened(&v));
        fixed
            .map(|key| Fixed {
                key: key.clone(),
                now: shown(self, key),
                wanted: shown(new, key),
                place: new.origins.get(key).map_or("configuration".into(), |o| o.layer.clone()),
                restart: if within(key, &SLOWPATH) { Restart::Slowpath } else { Restart::Both },
            })
            .collect()
    }

    /// Whether `other` says the same, whoever said it and on whichever line.
    pub fn same_as(&self, other: &Config) -> bool {
        let unsigned = |config: &Config| Config { origins: Default::default(), ..config.clone() };
        unsigned(self) == unsigned(other)
    }
}

/// Whether `key` is one of these, or in a section of them.
fn within(key: &str, sections: &[&str]) -> bool {
    let rest = |section: &&str| key.strip_prefix(section).map(|rest| rest.chars().next());
    sections.iter().filter_map(rest).any(|next| matches!(next, None | Some('.' | '[')))
}
