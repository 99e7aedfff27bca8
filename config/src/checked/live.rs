//! Which keys may change while Weir runs, and which take a restart.
//!
//! Gateways, NAT, flow timeouts, the punt's limits and the default size of tables are table data:
//! slowpath commits them like services. All else is laid out when the programs start. Each type is
//! taken apart in full here, so that a new key is refused by the compiler until it has its place.

use std::fmt;

use super::{Arm, ArmName, Config, Control, Fastpath, Health, Metrics, Region, Tables};

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

/// A key with its value in a form that can be compared.
type Row = (String, Restart, String);

impl Config {
    /// The keys in which `new` differs from this configuration and that only a restart can change.
    /// None: all of `new` may be put in force now.
    pub fn fixed_changes(&self, new: &Config) -> Vec<Fixed> {
        let (before, after) = (rows(self), rows(new));
        let mut keys: Vec<(&String, Restart)> =
            before.iter().chain(&after).map(|(key, restart, _)| (key, *restart)).collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        keys.dedup();
        let value = |rows: &[Row], key: &str| {
            rows.iter().find(|(known, ..)| known == key).map(|(.., value)| value.clone())
        };
        let changed = keys.into_iter().filter(|(key, _)| value(&before, key) != value(&after, key));
        let mut fixed: Vec<Fixed> =
            changed.map(|(key, restart)| self.fixed(new, key, restart)).collect();
        // Which map of a backend's NAT ports is whose depends on the order of the addresses.
        if !new.nat.addresses.starts_with(&self.nat.addresses) {
            fixed.push(self.fixed(new, "nat.addresses", Restart::Both));
        }
        fixed
    }

    /// Whether `other` says the same, whoever said it and on whichever line.
    pub fn same_as(&self, other: &Config) -> bool {
        let unsigned = |config: &Config| Config { origins: Default::default(), ..config.clone() };
        unsigned(self) == unsigned(other)
    }

    fn fixed(&self, new: &Config, key: &str, restart: Restart) -> Fixed {
        let shown = |config: &Config| {
            let origin = config.origins.get(key);
            origin.map_or_else(|| "nothing".to_owned(), |origin| origin.value.clone())
        };
        let place = new.origins.get(key).map(|origin| origin.layer.clone());
        Fixed {
            key: key.to_owned(),
            now: shown(self),
            wanted: shown(new),
            place: place.unwrap_or_else(|| "configuration".to_owned()),
            restart,
        }
    }
}

fn row(key: impl Into<String>, restart: Restart, value: &impl fmt::Debug) -> Row {
    (key.into(), restart, format!("{value:?}"))
}

fn rows(config: &Config) -> Vec<Row> {
    let Config {
        name,
        zone,
        labels,
        services,
        fastpath,
        region,
        ingress,
        egress,
        nat: _,
        flows: _,
        punt: _,
        gateways: _,
        health,
        metrics,
        control,
        tables,
        warnings: _,
        origins: _,
    } = config;
    let slowpath = |key: &str, value: &dyn fmt::Debug| row(key, Restart::Slowpath, &value);
    let mut rows = vec![
        slowpath("name", name),
        slowpath("zone", zone),
        slowpath("labels", labels),
        slowpath("services", services),
    ];
    rows.extend(of_fastpath(fastpath));
    rows.extend(of_region(region));
    rows.extend(of_arm(ArmName::Ingress, ingress));
    rows.extend(egress.iter().flat_map(|arm| of_arm(ArmName::Egress, arm)));
    let Health { listen, tcp } = health;
    rows.push(slowpath("health.listen", listen));
    rows.push(slowpath("health.tcp", tcp));
    let Metrics { listen } = metrics;
    rows.push(slowpath("metrics.listen", listen));
    let Control { socket } = control;
    rows.push(slowpath("control.socket", socket));
    let Tables { seed, maglev_size: _ } = tables;
    rows.push(row("tables.seed", Restart::Both, seed));
    rows
}

fn of_fastpath(fastpath: &Fastpath) -> Vec<Row> {
    let Fastpath {
        lcores,
        main_core,
        hugepages,
        memory_mib,
        buffers,
        buffer_bytes,
        idle,
        burst,
        eal,
    } = fastpath;
    let both =
        |key: &str, value: &dyn fmt::Debug| row(format!("fastpath.{key}"), Restart::Both, &value);
    vec![
        both("lcores", lcores),
        both("main_core", main_core),
        both("hugepages", hugepages),
        both("memory_mib", memory_mib),
        both("buffers", buffers),
        both("buffer_bytes", buffer_bytes),
        both("idle", idle),
        both("burst", burst),
        both("eal", eal),
    ]
}

fn of_region(region: &Region) -> Vec<Row> {
    let Region {
        path,
        max_services,
        max_frontends,
        max_backends,
        max_next_hops,
        slots,
        max_flows,
        option_slabs,
        max_fragments,
        nat_maps,
        max_scopes,
        ring_slots,
    } = region;
    let both =
        |key: &str, value: &dyn fmt::Debug| row(format!("region.{key}"), Restart::Both, &value);
    vec![
        both("path", path),
        both("max_services", max_services),
        both("max_frontends", max_frontends),
        both("max_backends", max_backends),
        both("max_next_hops", max_next_hops),
        both("slots", slots),
        both("max_flows", max_flows),
        both("option_slabs", option_slabs),
        both("max_fragments", max_fragments),
        both("nat_maps", nat_maps),
        both("max_scopes", max_scopes),
        both("ring_slots", ring_slots),
    ]
}

fn of_arm(name: ArmName, arm: &Arm) -> Vec<Row> {
    let Arm { device, addresses, gateways, mtu, queues, rx_descriptors, tx_descriptors, tap } = arm;
    let both = |key: &str, value: &dyn fmt::Debug| {
        row(format!("{}.{key}", name.as_str()), Restart::Both, &value)
    };
    vec![
        both("device", device),
        both("address", addresses),
        both("gateway", gateways),
        both("mtu", mtu),
        both("queues", queues),
        both("rx_descriptors", rx_descriptors),
        both("tx_descriptors", tx_descriptors),
        both("tap", tap),
    ]
}
