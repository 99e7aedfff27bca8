//! Metrics of private links.

use std::fmt;

use clouds::requests::Counts;
use private_link::status_view::Totals;

use super::declared as metric;
use super::declared::Metric;
use super::family::Family;

/// Azure's names of connection states.
const STATES: [&str; 4] = ["Pending", "Approved", "Rejected", "Disconnected"];

/// Encodes the metrics of private links and of their requests to Azure.
pub(super) fn encode(totals: &Totals, calls: &Counts, family: &mut Family<'_, '_>) -> fmt::Result {
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
    let each = || calls.iter().map(|((operation, outcome), of)| ([*operation, *outcome], of));
    family.counters(&metric::LINK_CALLS, each().map(|(labels, of)| (labels, of.times())))?;
    family.buckets(
        &metric::LINK_CALL_DURATION,
        each().map(|(labels, of)| (labels, (of.seconds, of.bounded()))),
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clouds::requests::AttemptStats;

    use super::*;
    use crate::metrics::family::assert_all_sampled;

    #[test]
    fn totals_and_requests_are_exported() {
        let mut attempts = AttemptStats::default();
        attempts.record(Duration::from_secs(60));
        let calls = Counts::from([(("PrivateLinkServices_Get", "denied"), attempts)]);
        let totals = Totals {
            objects: 3,
            connections: [("Pending".to_owned(), 2)].into(),
            reasons: [("NotFound".to_owned(), 1)].into(),
            ..Totals::default()
        };
        let families = move |family: &mut Family<'_, '_>| encode(&totals, &calls, family);
        let text = assert_all_sampled("weir_private_link_", families);
        let call = "operation=\"PrivateLinkServices_Get\",outcome=\"denied\"";
        for line in [
            "weir_private_link_objects 3",
            "weir_private_link_connections{state=\"Pending\"} 2",
            "weir_private_link_connections{state=\"Approved\"} 0",
            "weir_private_link_not_available{reason=\"NotFound\"} 1",
            &format!("weir_private_link_call_duration_seconds_bucket{{le=\"20.0\",{call}}} 0"),
            &format!("weir_private_link_call_duration_seconds_sum{{{call}}} 60.0"),
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
