//! Metrics of lcores: load, progress, and counters that are summed over all lcores.

use std::fmt;

use ::tables::counters::{
    ArmCounter, BURST_BUCKETS, Counter, ITERATION_BOUNDS_NS, ITERATIONS_PER_SAMPLE,
};
use ::tables::region::Region;
use state::text::ARMS;

use config::checked::Plane;

use super::declared as metric;
use super::family::{Family, flag};
use crate::control::report::Status;

/// Number of iterations that a sampled one stands for.
const SAMPLE_WEIGHT: f64 = ITERATIONS_PER_SAMPLE as f64;

/// Encodes the metrics of the lcores. `status` is the one that the control loop published last, and
/// `arms` the number of arms.
pub(super) fn encode(
    region: &Region,
    (plane, arms): (Plane, usize),
    status: &Status,
    family: &mut Family<'_, '_>,
) -> fmt::Result {
    let counters = region.counters();
    for (metric, counter) in metric::LCORE_SUMS.iter().zip(metric::summed()) {
        family.counter(metric, counters.sum(|page| page.lcore_count(counter)))?;
    }
    let names: Vec<String> = status.lcores.iter().map(|lcore| lcore.id.to_string()).collect();
    let each = || status.lcores.iter().zip(&names).map(|(lcore, name)| (lcore, name.as_str()));
    family.gauges(
        &metric::LCORE_POLLING,
        each().map(|(lcore, name)| ([name], flag(lcore.polling))),
    )?;
    family.gauges(
        &metric::LCORE_LAG,
        each().map(|(lcore, name)| {
            ([name], f64::from(status.generation.saturating_sub(lcore.acknowledged)))
        }),
    )?;
    let pages: Vec<_> = counters.pages().collect();
    let paged =
        || each().filter_map(|(lcore, name)| Some((lcore, name, pages.get(lcore.id as usize)?)));
    family.counters(
        &metric::LCORE_RECEIVED,
        paged().flat_map(|(_, name, page)| {
            let arms = ARMS.into_iter().zip(0u8..).take(arms);
            arms.map(move |(arm, n)| ([name, arm], page.arm_count(n, ArmCounter::RxPackets)))
        }),
    )?;
    if plane == Plane::Xdp {
        // The packet loop is the kernel's, which calls the programs for one packet at a time.
        return Ok(());
    }
    family.gauges(&metric::LCORE_BUSY, each().map(|(lcore, name)| ([name], lcore.busy)))?;
    family.counters(
        &metric::LCORE_ITERATIONS,
        each().filter_map(|(lcore, name)| {
            Some(([name], region.lcores().get(lcore.id as usize)?.tick()))
        }),
    )?;
    family.counters(
        &metric::LCORE_BURSTS,
        paged().map(|(_, name, page)| ([name], page.lcore_count(Counter::Bursts))),
    )?;
    family.counters(
        &metric::LCORE_TIME,
        paged().flat_map(|(_, name, page)| {
            let [idle, busy] = page.iteration_ns().map(|ns| seconds(ns) * SAMPLE_WEIGHT);
            [([name, "idle"], idle), ([name, "busy"], busy)]
        }),
    )?;
    family.buckets(
        &metric::LCORE_BURST_PACKETS,
        paged().map(|(_, name, page)| {
            let of = |counter| [0, 1].map(|arm| page.arm_count(arm, counter)).iter().sum::<u64>();
            let packets = of(ArmCounter::RxPackets) + of(ArmCounter::FromKernelPackets);
            let bounds = (0..BURST_BUCKETS as i32 - 1).map(|n| 2_f64.powi(n));
            let buckets = bounds.chain([f64::INFINITY]).zip(page.burst_counts()).collect();
            ([name], (packets as f64, buckets))
        }),
    )?;
    family.buckets(
        &metric::LCORE_ITERATION,
        paged().map(|(_, name, page)| {
            let bounds = ITERATION_BOUNDS_NS.into_iter().map(seconds);
            let buckets = bounds.chain([f64::INFINITY]).zip(page.iteration_counts()).collect();
            ([name], (seconds(page.iteration_ns()[1]), buckets))
        }),
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
