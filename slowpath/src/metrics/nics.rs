//! Metrics of the arms' NICs: what was lost before Weir, troubles, and the drivers' own counters.

use std::fmt;

use state::text::ARMS;
use tables::nic::{Nic, NicState, XdpLoss};
use tables::region::Region;

use super::family::Family;

/// ENA's counters of traffic that AWS dropped or delayed because the instance exceeded an
/// allowance, with the label under which they are exported. The names are those of the driver in
/// the kernel (`ethtool -S`) and in DPDK (xstats).
const ALLOWANCES: [(&str, &str); 5] = [
    ("bw_in_allowance_exceeded", "bandwidth_in"),
    ("bw_out_allowance_exceeded", "bandwidth_out"),
    ("pps_allowance_exceeded", "packets"),
    ("conntrack_allowance_exceeded", "conntrack"),
    ("linklocal_allowance_exceeded", "linklocal"),
];

/// Encodes the metrics of the NICs of the first `arms` arms.
pub(super) fn encode(region: &Region, arms: usize, family: &mut Family<'_, '_>) -> fmt::Result {
    let read = |(number, arm): (usize, &&'static str)| Some((*arm, region.nics().read(number)?));
    let nics: Vec<(&'static str, Nic)> =
        ARMS.iter().enumerate().take(arms).filter_map(read).collect();
    let each = || nics.iter().map(|(arm, nic)| ([("arm", *arm)], nic));
    let flag = |on: bool| f64::from(u8::from(on));
    // The lists are the same for all NICs.
    let empty = Nic::default();
    for (index, (name, help, _)) in empty.counters.named().enumerate() {
        let samples =
            each().filter_map(|(labels, nic)| Some((labels, nic.counters.named().nth(index)?.2)));
        family.counters(&format!("weir_nic_{name}"), help, samples)?;
    }
    for (index, loss) in XdpLoss::ALL.into_iter().enumerate() {
        let samples = each().filter_map(|(labels, nic)| Some((labels, nic.xdp_losses[index]?)));
        family.counters(&format!("weir_nic_{}", loss.name()), loss.help(), samples)?;
    }
    for (index, (name, help, _)) in empty.events.named().enumerate() {
        let samples =
            each().filter_map(|(labels, nic)| Some((labels, nic.events.named().nth(index)?.2)));
        family.counters(&format!("weir_nic_{name}"), help, samples)?;
    }
    let states = nics.iter().flat_map(|(arm, nic)| {
        NicState::ALL
            .map(|state| ([("arm", *arm), ("state", state.as_str())], flag(nic.state == state)))
    });
    let help = "1 for the state of the arm's NIC, 0 for the others.";
    family.gauges("weir_nic_state", help, states)?;
    let help = "1 if the link of the arm's NIC is up, else 0.";
    family.gauges("weir_nic_link_up", help, each().map(|(l, nic)| (l, flag(nic.link_up))))?;
    family.gauges(
        "weir_nic_speed_bytes",
        "Speed of the link in bytes per second; 0 if the driver does not report it.",
        each().map(|(labels, nic)| (labels, f64::from(nic.speed_mbps) * 125_000.0)),
    )?;
    let allowances = nics.iter().flat_map(|(arm, nic)| {
        let value = |name: &str| nic.xstats.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        ALLOWANCES.iter().filter_map(move |(name, label)| {
            Some(([("arm", *arm), ("allowance", *label)], value(name)?))
        })
    });
    family.counters(
        "weir_nic_allowance_exceeded",
        "Packets that AWS queued or dropped before or after the NIC because the instance exceeded \
         an allowance. bandwidth_in, bandwidth_out, packets: use a larger instance or more \
         appliances. conntrack: allow all traffic in the security groups, so that it is not \
         tracked. linklocal: too many requests to DNS, metadata or time.",
        allowances,
    )?;
    family.gauges(
        "weir_nic_driver_counter",
        "Counter of the NIC's driver by its own name; may start again from 0.",
        nics.iter().flat_map(|(arm, nic)| {
            let labels = |name| [("arm", *arm), ("counter", name)];
            nic.xstats.iter().map(move |(name, value)| (labels(name.as_str()), *value as f64))
        }),
    )
}
