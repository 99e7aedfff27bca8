//! Metrics of packets by arm, verdict and drop reason.

use std::fmt;

use ::tables::counters::{ArmCounter, Counter, VerdictCounter};
use ::tables::reason::DropReason;
use ::tables::region::Region;
use state::text::ARMS;

use super::declared as metric;
use super::family::Family;

/// Reasons for which the first packet of a flow is dropped because the flow gets no entry.
const INSERT_FAILURES: [DropReason; 5] = [
    DropReason::FlowTableFull,
    DropReason::FlowContended,
    DropReason::FlowAmbiguous,
    DropReason::NatPortsExhausted,
    DropReason::NewFlowLimited,
];

/// Encodes the counters of the first `arms` arms, summed over all lcores.
pub(super) fn encode(region: &Region, arms: usize, family: &mut Family<'_, '_>) -> fmt::Result {
    use ArmCounter as C;
    let counters = region.counters();
    let arms = || ARMS.into_iter().zip(0u8..).take(arms);
    let of = |arm, counter| counters.sum(|page| page.arm_count(arm, counter));
    let packets = [
        ("rx", C::RxPackets, C::RxBytes),
        ("tx", C::TxPackets, C::TxBytes),
        ("from_kernel", C::FromKernelPackets, C::FromKernelBytes),
        ("to_kernel", C::ToKernelPackets, C::ToKernelBytes),
        ("originated", C::OriginatedPackets, C::OriginatedBytes),
    ];
    let all = || arms().flat_map(|arm| packets.iter().map(move |row| (arm, row)));
    family.counters(
        &metric::PACKETS,
        all().map(|((arm, n), (name, packets, _))| ([arm, *name], of(n, *packets))),
    )?;
    family.counters(
        &metric::BYTES,
        all().map(|((arm, n), (name, _, bytes))| ([arm, *name], of(n, *bytes))),
    )?;
    let lost = arms().map(|(arm, n)| ([arm], of(n, C::KernelLost)));
    family.counters(&metric::KERNEL_LOST, lost)?;
    family.counters(
        &metric::VERDICTS,
        VerdictCounter::ALL.iter().map(|verdict| {
            let count = counters.sum(|page| page.verdict_count(*verdict));
            ([verdict.name()], count)
        }),
    )?;
    let untracked = counters.sum(|page| page.lcore_count(Counter::FlowsUntracked));
    let dropped = INSERT_FAILURES.iter().map(|reason| {
        let count = counters.sum(|page| page.dropped(0, *reason) + page.dropped(1, *reason));
        ([reason.name()], count)
    });
    family.counters(&metric::INSERT_FAILURES, dropped.chain([(["untracked"], untracked)]))?;
    let all = arms().flat_map(|arm| DropReason::ALL.iter().map(move |reason| (arm, *reason)));
    family.counters(
        &metric::DROPS,
        all.map(|((arm, number), reason)| {
            let count = counters.sum(|page| page.dropped(number, reason));
            ([arm, reason.name()], count)
        }),
    )
}
