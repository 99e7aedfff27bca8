//! Metrics of lcores: load, progress, and counters that are summed over all lcores.

use std::fmt;

use ::tables::counters::{ArmCounter, Counter};
use ::tables::region::Region;
use state::text::ARMS;

use super::declared as metric;
use super::family::Family;
use crate::control::report::Status;

/// Encodes the metrics of the lcores, of which the control loop published `status`.
pub(super) fn encode(
    region: &Region,
    arms: usize,
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
        each().map(|(lcore, name)| ([name], f64::from(u8::from(lcore.polling)))),
    )?;
    family.gauges(&metric::LCORE_BUSY, each().map(|(lcore, name)| ([name], lcore.busy)))?;
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
    family.counters(
        &metric::LCORE_ITERATIONS,
        each().filter_map(|(lcore, name)| {
            Some(([name], region.lcores().get(lcore.id as usize)?.tick()))
        }),
    )?;
    family.counters(
        &metric::LCORE_BURSTS,
        paged().map(|(_, name, page)| ([name], page.lcore_count(Counter::Bursts))),
    )
}
