//! Metrics of private links.

use std::fmt;

use private_link::controller::ObjectStore;
use private_link::status_view::Totals;

use super::declared as metric;
use super::declared::Metric;
use super::family::Family;
use crate::cloud::private_link::PrivateLinkState;

/// Azure's names of connection states.
const STATES: [&str; 4] = ["Pending", "Approved", "Rejected", "Disconnected"];

/// Encodes the metrics of private links and of their requests to Azure.
pub(super) fn encode(state: &PrivateLinkState, family: &mut Family<'_, '_>) -> fmt::Result {
    let totals = Totals::of(&state.links.list());
    let mut gauge = |metric: &Metric<0>, value: u64| family.gauge(metric, value as f64);
    gauge(&metric::LINKS, totals.objects)?;
    gauge(&metric::LINKS_AVAILABLE, totals.available)?;
    gauge(&metric::LINKS_PAUSED, totals.paused)?;
    gauge(&metric::LINKS_DELETING, totals.deleting)?;
    gauge(&metric::LINKS_OBSERVED, totals.observed)?;
    gauge(&metric::LINK_OPERATIONS, totals.operations)?;
    let count = |state: &str| totals.connections.get(state).copied().unwrap_or_default() as f64;
    family.gauges(&metric::LINK_CONNECTIONS, STATES.map(|state| ([state], count(state))))?;
    family.gauges(
        &metric::LINKS_NOT_AVAILABLE,
        totals.reasons.iter().map(|(reason, count)| ([&**reason], *count as f64)),
    )?;
    let calls = state.call_counts();
    family.counters(
        &metric::LINK_CALLS,
        calls.iter().map(|((operation, outcome), calls)| ([*operation, *outcome], calls.times)),
    )?;
    family.buckets(
        &metric::LINK_CALL_DURATION,
        calls.iter().map(|((operation, outcome), calls)| {
            ([*operation, *outcome], (calls.seconds, calls.bounded()))
        }),
    )
}
