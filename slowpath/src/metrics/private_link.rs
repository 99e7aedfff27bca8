//! Metrics of private links.

use std::fmt;

use private_link::controller::ObjectStore;
use private_link::status_view::Totals;

use super::family::Family;
use crate::cloud::private_link::PrivateLinkState;

/// Azure's names of connection states.
const STATES: [&str; 4] = ["Pending", "Approved", "Rejected", "Disconnected"];

/// Encodes all metrics of private links.
pub(super) fn encode(state: &PrivateLinkState, family: &mut Family<'_, '_>) -> fmt::Result {
    let totals = Totals::of(&state.links.list());
    let mut gauge = |name: &str, help: &str, value: u64| family.gauge(name, help, value as f64);
    let help = "Private links that are wanted, those that are being deleted included.";
    gauge("weir_private_link_objects", help, totals.objects)?;
    let help = "Private links of which all that is wanted works.";
    gauge("weir_private_link_available", help, totals.available)?;
    let help = "Private links of which nothing is made or changed for now.";
    gauge("weir_private_link_paused", help, totals.paused)?;
    let help = "Private links that are being taken back.";
    gauge("weir_private_link_deleting", help, totals.deleting)?;
    let help = "Private links that another appliance looks after.";
    gauge("weir_private_link_observed", help, totals.observed)?;
    let help = "Operations for private links that go on at Azure.";
    gauge("weir_private_link_operations", help, totals.operations)?;
    let count = |state: &str| totals.connections.get(state).copied().unwrap_or_default() as f64;
    family.gauges(
        "weir_private_link_connections",
        "Connections of endpoints to private link services by state; Pending ones wait for \
         `weir pls approve` or `reject`.",
        STATES.map(|state| ([("state", state)], count(state))),
    )?;
    family.gauges(
        "weir_private_link_not_available",
        "Private links that are not available, by why.",
        totals.reasons.iter().map(|(reason, count)| ([("reason", &**reason)], *count as f64)),
    )?;
    let calls = state.call_counts();
    family.counters(
        "weir_private_link_calls",
        "Requests to Azure for private links by operation and outcome.",
        calls.iter().map(|((operation, outcome), times)| {
            ([("operation", *operation), ("outcome", *outcome)], *times)
        }),
    )
}
