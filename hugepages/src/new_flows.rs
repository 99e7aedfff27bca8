//! How many flows may begin in a second, as far as that comes from what the machine holds.

use std::fmt;
use std::path::Path;

use config::Config;
use config::checked::Plane;
use tables::flow::budget;
use tables::new_flow_limit::derived;
use tables::record::NewFlowLimits;

use crate::machine::online_cpus;

/// The setting of the limit by NAT.
const SETTING: &str = "flows.nat_new_per_s";

/// How many lcores take packets: those that poll, and with XDP each CPU that is online.
pub fn forwarding_lcores(config: &Config, root: &Path) -> u32 {
    match config.plane {
        Plane::Dpdk => config.fastpath.lcores.len() as u32,
        Plane::Xdp => online_cpus(root).unwrap_or(1),
    }
}

/// How many unconfirmed flows by NAT the appliance holds for certain: their budget of the flow
/// table, and the ports of one backend, which a flood of one service can be all for. A port is one
/// of each NAT address of the backend's family; the family with fewer addresses decides.
pub fn unconfirmed_by_nat(config: &Config, flows: u32) -> u32 {
    let nat = &config.nat;
    let v4 = nat.addresses.iter().filter(|address| address.addr.is_ipv4()).count();
    let families = [v4, nat.addresses.len() - v4];
    let addresses = families.into_iter().filter(|addresses| *addresses > 0).min();
    let range = u32::from(nat.last_port.saturating_sub(nat.first_port)) + 1;
    // Without NAT there are flows to proxies, which take no port.
    let ports = addresses.map_or(u32::MAX, |addresses| range.saturating_mul(addresses as u32));
    budget(flows, config.region.unconfirmed_percent[0]).min(ports)
}

/// The limits of new flows of an appliance with room for so many `flows` and so many `lcores`: the
/// one place that maps the configuration to them.
pub fn new_flow_limits(config: &Config, flows: u32, lcores: u32) -> NewFlowLimits {
    let of_nat = || derived(unconfirmed_by_nat(config, flows), lcores);
    NewFlowLimits {
        translated: config.flows.nat_new_per_s.unwrap_or_else(of_nat),
        tunnelled: config.flows.tunnel_new_per_s,
    }
}

/// The limit by NAT and where it comes from, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewFlows {
    /// From the configuration; 0 for no limit.
    Set(u32),
    /// Derived.
    Derived {
        /// Per second and lcore.
        each: u32,
        /// How many lcores.
        lcores: u32,
        /// Unconfirmed flows that are held at once.
        unconfirmed: u32,
    },
}

impl NewFlows {
    /// Of an appliance with room for so many flows.
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
            NewFlows::Set(0) => write!(f, "without limit, as {SETTING} = 0 says"),
            NewFlows::Set(each) => {
                write!(f, "at most {each} per second and lcore, as {SETTING} says")
            }
            NewFlows::Derived { each, lcores, unconfirmed } => write!(
                f,
                "at most {each} per second and lcore ({lcores} of them), so that {unconfirmed} \
                 unconfirmed flows are kept for two round trips of 100 ms; {SETTING} sets another \
                 number"
            ),
        }
    }
}
