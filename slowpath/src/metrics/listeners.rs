//! Metrics of listeners and their connections.

use std::fmt;

use ::listeners::{Counts, Timeout};

use super::declared as metric;
use super::family::{Family, flag};
use crate::control::listening::Listening;

/// Encodes the metrics of listeners, their connections and their authentication.
pub(super) fn encode(listening: &Listening, family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = listening.counts();
    let each = |part: fn(&Counts) -> u64| {
        counts.iter().map(move |(listener, counts)| ([*listener], part(counts)))
    };
    family.gauges(
        &metric::LISTENER_CONNECTIONS,
        counts.iter().map(|(listener, of)| ([*listener], of.open as f64)),
    )?;
    family.counters(&metric::LISTENER_ACCEPTED, each(|counts| counts.accepted))?;
    family.counters(&metric::LISTENER_EVICTED, each(|counts| counts.evicted))?;
    let refused = |(listener, of): &(&'static str, Counts)| {
        let (listener, reasons) = (
            *listener,
            [
                ("source", of.refused_source),
                ("full", of.refused_full),
                ("descriptors", of.refused_descriptors),
            ],
        );
        reasons.map(|(reason, n)| ([listener, reason], n))
    };
    family.counters(&metric::LISTENER_REFUSED, counts.iter().flat_map(refused))?;
    let timeouts = |(listener, of): &(&'static str, Counts)| {
        let (listener, counts) = (*listener, of.timeouts);
        Timeout::ALL.map(|(what, name)| ([listener, name], counts[what as usize]))
    };
    family.counters(&metric::LISTENER_TIMEOUTS, counts.iter().flat_map(timeouts))?;
    family.counters(&metric::LISTENER_ERRORS, each(|counts| counts.accept_errors))?;
    let conditions: Vec<(String, String, bool)> = listening
        .conditions()
        .into_iter()
        .map(|one| (one.key, one.address.to_string(), one.error.is_none()))
        .collect();
    family.gauges(
        &metric::LISTENER_UP,
        conditions.iter().map(|(key, address, up)| ([key.as_str(), address.as_str()], flag(*up))),
    )?;
    let auth_failures = listening.auth_failures();
    family.counter(&metric::AUTH_FAILURES, auth_failures.failures())?;
    family.counter(&metric::AUTH_LIMITED, auth_failures.limited())
}
