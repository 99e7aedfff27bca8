//! Spec of the appliance's object, which shows a part of its configuration.

use std::collections::BTreeSet;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::ChangeError;
use super::spec::ObjectSpec;

/// Appliance as configured: its zone, its local nodes and zones, its addresses, its cluster,
/// whether it serves cluster addresses to clients outside the cluster, and its node ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApplianceSpec {
    /// Zone of the appliance; empty if unknown, and then no zone is preferred.
    pub zone: Box<str>,
    /// Names of the nodes and zones whose backends are local.
    pub local: BTreeSet<Box<str>>,
    /// The appliance's own addresses, on which node ports answer.
    pub addresses: Vec<IpAddr>,
    /// Number of the appliance's cluster; 0 if there is only one.
    pub cluster: u32,
    /// Whether packets from outside the cluster to frontends of type ClusterIP are accepted.
    /// Default: false.
    pub external_cluster_ip: bool,
    /// First and last node port. Default: 30000 and 32767.
    pub node_ports: [u16; 2],
    /// Whether preferences of services for a node or zone (`distribution`) are applied. Default:
    /// true.
    pub zone_aware: bool,
}

impl Default for ApplianceSpec {
    fn default() -> ApplianceSpec {
        ApplianceSpec {
            zone: Box::default(),
            local: BTreeSet::new(),
            addresses: Vec::new(),
            cluster: 0,
            external_cluster_ip: false,
            node_ports: [30_000, 32_767],
            zone_aware: true,
        }
    }
}

impl ObjectSpec for ApplianceSpec {
    fn check(&self) -> Result<(), ChangeError> {
        let [first, last] = self.node_ports;
        if first == 0 || first > last {
            let wrong = format!("{first} to {last} is not a range of ports");
            let allowed =
                "write the first and the last port, 1 to 65535, in this order: [30000, 32767]";
            return Err(ChangeError::new("spec.node_ports", wrong, allowed));
        }
        for (i, addr) in self.addresses.iter().enumerate() {
            if addr.is_unspecified() || addr.is_multicast() {
                let field = format!("spec.addresses[{i}]");
                let wrong = format!("{addr} cannot be an appliance's address");
                return Err(ChangeError::new(field, wrong, "write a unicast address"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ports_are_a_range_of_one_or_more_ports() {
        let check = |node_ports| ApplianceSpec { node_ports, ..ApplianceSpec::default() }.check();
        for good in [[30_000, 32_767], [30_000, 30_000], [1, u16::MAX]] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in [[0, 0], [0, 32_767], [30_001, 30_000]] {
            assert_eq!(check(bad).unwrap_err().field, "spec.node_ports", "{bad:?}");
        }
    }
}
