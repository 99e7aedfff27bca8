//! Metrics of the arms' NICs: what was lost before Weir, incidents, and the drivers' own counters.

use std::fmt;

use state::text::ARMS;
use tables::nic::{Nic, NicState};
use tables::region::Region;

use super::declared as metric;
use super::family::{Family, flag};

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
    let each = || nics.iter().map(|(arm, nic)| ([*arm], nic));
    for (index, metric) in metric::NIC_COUNTERS.iter().enumerate() {
        let samples =
            each().filter_map(|(labels, nic)| Some((labels, nic.counters.named().nth(index)?.2)));
        family.counters(metric, samples)?;
    }
    for (index, metric) in metric::XDP_LOSSES.iter().enumerate() {
        let samples = each().filter_map(|(labels, nic)| Some((labels, nic.xdp_losses[index]?)));
        family.counters(metric, samples)?;
    }
    for (index, metric) in metric::NIC_EVENTS.iter().enumerate() {
        let samples =
            each().filter_map(|(labels, nic)| Some((labels, nic.events.named().nth(index)?.2)));
        family.counters(metric, samples)?;
    }
    let states = nics.iter().flat_map(|(arm, nic)| {
        NicState::ALL.map(|state| ([*arm, state.as_str()], flag(nic.state == state)))
    });
    family.gauges(&metric::NIC_STATE, states)?;
    family.gauges(&metric::NIC_LINK, each().map(|(l, nic)| (l, flag(nic.link_up))))?;
    family.gauges(
        &metric::NIC_SPEED,
        each().map(|(labels, nic)| (labels, f64::from(nic.speed_mbps) * 125_000.0)),
    )?;
    let allowances = nics.iter().flat_map(|(arm, nic)| {
        let value = |name: &str| nic.xstats.iter().find(|(n, _)| n == name).map(|(_, v)| *v);
        ALLOWANCES.iter().filter_map(move |(name, label)| Some(([*arm, *label], value(name)?)))
    });
    family.counters(&metric::NIC_ALLOWANCE, allowances)?;
    let queues = nics.iter().flat_map(|(arm, nic)| {
        nic.xstats.iter().filter_map(move |(name, value)| Some((*arm, rx_queue(name)?, *value)))
    });
    family.counters(&metric::NIC_QUEUE_PACKETS, queues.map(|(arm, queue, n)| ([arm, queue], n)))?;
    family.gauges(
        &metric::NIC_DRIVER_STAT,
        nics.iter().flat_map(|(arm, nic)| {
            let labels = |name| [*arm, name];
            nic.xstats.iter().map(move |(name, value)| (labels(name.as_str()), *value as f64))
        }),
    )
}

/// Returns the number of the queue whose received packets a driver's counter counts. DPDK names
/// them `rx_q0_packets` in all drivers that count them.
fn rx_queue(name: &str) -> Option<&str> {
    let queue = name.strip_prefix("rx_q")?.strip_suffix("_packets")?;
    (!queue.is_empty() && queue.bytes().all(|byte| byte.is_ascii_digit())).then_some(queue)
}

#[cfg(test)]
mod tests {
    use tables::layout::Sizes;

    use super::*;
    use crate::metrics::family::assert_all_sampled;

    #[test]
    fn all_that_planes_and_drivers_count_is_exported() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let names = ["pps_allowance_exceeded", "rx_q3_packets", "rx_q_packets", "odd\"stat"];
        let xstats = names.iter().zip(7..).map(|(name, value)| ((*name).to_owned(), value));
        let nic = Nic { xdp_losses: [Some(1); 4], xstats: xstats.collect(), ..Nic::default() };
        region.nics().publish(0, &nic);
        let text = assert_all_sampled("weir_nic_", move |family| encode(&region, 1, family));
        for line in [
            "weir_nic_allowance_exceeded_total{arm=\"ingress\",allowance=\"packets\"} 7",
            "weir_nic_queue_received_packets_total{arm=\"ingress\",queue=\"3\"} 8",
            "weir_nic_driver_stat{arm=\"ingress\",stat=\"rx_q_packets\"} 9",
            "weir_nic_driver_stat{arm=\"ingress\",stat=\"odd\\\"stat\"} 10",
            "weir_nic_state{arm=\"ingress\",state=\"unknown\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("queue=\"\""), "{text}");
    }
}
