//! Limits of new flows per second and lcore, as configured or derived from the capacity of the flow
//! table and of the NAT ports.

use std::fmt;
use std::path::Path;

use config::Config;
use config::checked::Plane;
use tables::flow::budget;
use tables::new_flow_limit::derived;
use tables::record::NewFlowLimits;

use crate::machine::online_cpus;

/// The configuration key of the limit of new NAT flows.
const SETTING: &str = "flows.nat_new_per_s";

/// Returns the number of lcores that process packets: with DPDK the polling lcores, with XDP every
/// online CPU. Returns 1 with XDP if the number of online CPUs cannot be read below `root`.
pub fn forwarding_lcores(config: &Config, root: &Path) -> u32 {
    match config.plane {
        Plane::Dpdk => config.fastpath.lcores.len() as u32,
        Plane::Xdp => online_cpus(root).unwrap_or(1),
    }
}

/// Returns how many unconfirmed NAT flows the appliance can hold even if all go to one backend: the
/// smaller of their share of a flow table of `flows` and the number of NAT ports towards one
/// backend.
///
/// Each NAT address provides one range of ports towards each backend of its family. If both
/// families have NAT addresses, the one with fewer addresses determines the number of ports.
pub fn unconfirmed_by_nat(config: &Config, flows: u32) -> u32 {
    let nat = &config.nat;
    let v4 = nat.addresses.iter().filter(|address| address.addr.is_ipv4()).count();
    let families = [v4, nat.addresses.len() - v4];
    let addresses = families.into_iter().filter(|addresses| *addresses > 0).min();
    let range = u32::from(nat.last_port.saturating_sub(nat.first_port)) + 1;
    // Without NAT addresses the limit applies to flows to proxies only, which use no NAT port.
    let ports = addresses.map_or(u32::MAX, |addresses| range.saturating_mul(addresses as u32));
    budget(flows, config.region.unconfirmed_percent[0]).min(ports)
}

/// Returns the limits of new flows for an appliance with a capacity of `flows` flows and with
/// `lcores` lcores. This is the only function that derives them from the configuration.
pub fn new_flow_limits(config: &Config, flows: u32, lcores: u32) -> NewFlowLimits {
    let of_nat = || derived(unconfirmed_by_nat(config, flows), lcores);
    NewFlowLimits {
        translated: config.flows.nat_new_per_s.unwrap_or_else(of_nat),
        tunneled: config.flows.tunnel_new_per_s,
    }
}

/// The limit of new NAT flows and its source, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewFlows {
    /// Set by the configuration: flows per second and lcore, or 0 for no limit.
    Set(u32),
    /// Derived from the capacity for unconfirmed flows.
    Derived {
        /// Maximum per second and lcore.
        each: u32,
        /// Number of lcores that process packets.
        lcores: u32,
        /// Number of unconfirmed flows that the appliance can hold ([`unconfirmed_by_nat`]).
        unconfirmed: u32,
    },
}

impl NewFlows {
    /// Returns the limit for a capacity of `flows` flows on the machine whose `proc` and `sys` lie
    /// below `root`.
    pub(crate) fn of(config: &Config, flows: u32, root: &Path) -> NewFlows {
        let lcores = forwarding_lcores(config, root);
        let each = new_flow_limits(config, flows, lcores).translated;
        match config.flows.nat_new_per_s {
            Some(set) => NewFlows::Set(set),
            None => {
                let unconfirmed = unconfirmed_by_nat(config, flows);
                NewFlows::Derived { each, lcores, unconfirmed }
            }
        }
    }
}

impl fmt::Display for NewFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NewFlows::Set(0) => write!(f, "unlimited ({SETTING} = 0)"),
            NewFlows::Set(each) => write!(f, "at most {each} per second and lcore ({SETTING})"),
            NewFlows::Derived { each, lcores, unconfirmed } => write!(
                f,
                "at most {each} per second and lcore ({lcores} lcores), so that {unconfirmed} \
                 unconfirmed flows are kept for two round trips of 100 ms; set {SETTING} to change \
                 it"
            ),
        }
    }
}
