//! Metrics of private links.

use std::fmt;

use private_link::controller::ObjectStore;
use private_link::status_view::Totals;

use super::family::Family;
use crate::cloud::private_link::PrivateLinkState;

/// Azure's names of connection states.
const STATES: [&str; 4] = ["Pending", "Approved", "Rejected", "Disconnected"];

/// Encodes the metrics of private links and of their requests to Azure.
pub(super) fn encode(state: &PrivateLinkState, family: &mut Family<'_, '_>) -> fmt::Result {
    let totals = Totals::of(&state.links.list());
    let mut gauge = |name: &str, help: &str, value: u64| family.gauge(name, help, value as f64);
    let help = "Private links, including those being deleted.";
    gauge("weir_private_link_objects", help, totals.objects)?;
    let help = "Private links whose desired resources are all ready.";
    gauge("weir_private_link_available", help, totals.available)?;
    let help = "Private links whose reconciliation is paused.";
    gauge("weir_private_link_paused", help, totals.paused)?;
    let help = "Private links being deleted.";
    gauge("weir_private_link_deleting", help, totals.deleting)?;
    let help = "Private links managed by another appliance.";
    gauge("weir_private_link_observed", help, totals.observed)?;
    let help = "Long operations for private links in progress at Azure.";
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
        "Private links that are not available, by reason.",
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
