//! Metrics of listeners and their connections.

use std::fmt;

use ::listeners::{Counts, Timeout};

use super::family::Family;
use crate::control::listening::Listening;

/// Encodes the metrics of listeners, their connections and their authentication.
pub(super) fn encode(listening: &Listening, family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = listening.counts();
    let each = |part: fn(&Counts) -> u64| {
        counts.iter().map(move |(listener, counts)| ([("listener", *listener)], part(counts)))
    };
    family.gauges(
        "weir_listener_connections",
        "Open connections by the configuration key of the listener.",
        counts.iter().map(|(listener, of)| ([("listener", *listener)], of.open as f64)),
    )?;
    family.counters(
        "weir_listener_accepted",
        "Connections accepted, without those that were closed at once (weir_listener_refused).",
        each(|counts| counts.accepted),
    )?;
    family.counters(
        "weir_listener_evicted",
        "Connections that were idle or had no complete request, closed in favor of new ones.",
        each(|counts| counts.evicted),
    )?;
    let refused = |(listener, of): &(&'static str, Counts)| {
        let (listener, reasons) = (
            *listener,
            [
                ("source", of.refused_source),
                ("full", of.refused_full),
                ("descriptors", of.refused_descriptors),
            ],
        );
        reasons.map(|(reason, n)| ([("listener", listener), ("reason", reason)], n))
    };
    family.counters(
        "weir_listener_refused",
        "New connections closed at once: the limit of the source (source) or of the listener \
         (full) is reached and no connection can be evicted, or no file descriptor is left \
         (descriptors).",
        counts.iter().flat_map(refused),
    )?;
    let timeouts = |(listener, of): &(&'static str, Counts)| {
        let (listener, counts) = (*listener, of.timeouts);
        Timeout::ALL
            .map(|(what, name)| ([("listener", listener), ("what", name)], counts[what as usize]))
    };
    family.counters(
        "weir_listener_timeouts",
        "Connections closed because the TLS handshake, the head or body of a request, or the \
         peer's reading of the response (write) took too long.",
        counts.iter().flat_map(timeouts),
    )?;
    family.counters(
        "weir_listener_accept_errors",
        "Connections that could not be accepted.",
        each(|counts| counts.accept_errors),
    )?;
    let conditions: Vec<(String, String, bool)> = listening
        .conditions()
        .into_iter()
        .map(|one| (one.key, one.address.to_string(), one.error.is_none()))
        .collect();
    family.gauges(
        "weir_listener_up",
        "1 while the listener is open, 0 while opening it fails (`weir status` shows the error).",
        conditions.iter().map(|(key, address, up)| {
            ([("listener", key.as_str()), ("address", address.as_str())], f64::from(u8::from(*up)))
        }),
    )?;
    let auth_failures = listening.auth_failures();
    family.counter(
        "weir_api_auth_failures",
        "API requests with a wrong token, a replaced one after its overlap, or none.",
        auth_failures.failures(),
    )?;
    family.counter(
        "weir_api_auth_limited",
        "API requests rejected because their source failed authentication too often.",
        auth_failures.limited(),
    )
}
