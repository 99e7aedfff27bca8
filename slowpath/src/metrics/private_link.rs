//! Metrics of private links.

use std::fmt;

use private_link::run::Objects;
use private_link::told::Numbers;

use super::family::Family;
use crate::cloud::private_link::Desk;

/// Azure's names of connection states.
const STATES: [&str; 4] = ["Pending", "Approved", "Rejected", "Disconnected"];

/// Encodes all metrics of private links.
pub(super) fn encode(desk: &Desk, family: &mut Family<'_, '_>) -> fmt::Result {
    let numbers = Numbers::of(&desk.kept.list());
    let mut gauge = |name: &str, help: &str, value: u64| family.gauge(name, help, value as f64);
    let help = "Private links that are wanted, those that are being deleted included.";
    gauge("weir_private_link_objects", help, numbers.objects)?;
    let help = "Private links of which all that is wanted works.";
    gauge("weir_private_link_available", help, numbers.available)?;
    let help = "Private links of which nothing is made or changed for now.";
    gauge("weir_private_link_paused", help, numbers.paused)?;
    let help = "Private links that are being taken back.";
    gauge("weir_private_link_deleting", help, numbers.deleting)?;
    let help = "Private links that another appliance looks after.";
    gauge("weir_private_link_observed", help, numbers.observed)?;
    let help = "Operations for private links that go on at Azure.";
    gauge("weir_private_link_operations", help, numbers.operations)?;
    let count = |state: &str| numbers.connections.get(state).copied().unwrap_or_default() as f64;
    family.gauges(
        "weir_private_link_connections",
        "Connections of endpoints to private link services by state; Pending ones wait for \
         `weir pls approve` or `reject`.",
        STATES.map(|state| ([("state", state)], count(state))),
    )?;
    family.gauges(
        "weir_private_link_not_available",
        "Private links that are not available, by why.",
        numbers.reasons.iter().map(|(reason, count)| ([("reason", &**reason)], *count as f64)),
    )?;
    let asked = desk.asked();
    family.counters(
        "weir_private_link_calls",
        "Requests to Azure for private links by operation and outcome.",
        asked.iter().map(|((operation, outcome), times)| {
            ([("operation", *operation), ("outcome", *outcome)], *times)
        }),
    )
}
