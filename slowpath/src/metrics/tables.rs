//! Metrics of the region's tables: generation, occupancy and capacity.

use std::fmt;

use super::declared as metric;
use super::family::Family;
use crate::control::report::Status;
use crate::live::Live;

/// Encodes the metrics of the tables, of which the control loop published `status`.
pub(super) fn encode(live: &Live, status: &Status, family: &mut Family<'_, '_>) -> fmt::Result {
    let flows = live.flows_in_use();
    family.gauge(&metric::GENERATION, f64::from(status.generation))?;
    let uses = live.shared().measured.table_uses();
    let all = || {
        let others = uses.iter().map(|one| (one.table, u64::from(one.used), one.capacity.into()));
        std::iter::once(("flows", flows.used, flows.max)).chain(others)
    };
    family.gauges(&metric::TABLE_ENTRIES, all().map(|(table, used, _)| ([table], used as f64)))?;
    family.gauges(&metric::TABLE_CAPACITY, all().map(|(table, _, max)| ([table], max as f64)))?;
    let hops = &status.next_hops;
    let unresolved = hops.needed.saturating_sub(hops.known);
    family.gauges(
        &metric::NEXT_HOPS,
        [(["resolved"], hops.known as f64), (["unresolved"], unresolved as f64)],
    )
}
