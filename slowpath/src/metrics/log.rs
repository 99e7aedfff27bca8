//! Metrics of the log and of the history of events.

use std::fmt;

use events::history::history;
use events::log::log;

use super::family::Family;

/// Encodes what log and history left out.
pub(super) fn encode(family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = log().map(|log| log.counts()).unwrap_or_default();
    let suppressed = counts.suppressed.iter();
    family.counters(
        "weir_log_suppressed",
        "Log lines left out because they exceeded `log.limit`, by event.",
        suppressed.map(|(event, lines)| ([("event", event.as_str())], *lines)),
    )?;
    family.counter(
        "weir_log_lost_lines",
        "Log lines lost because the reader of the log did not accept them in time.",
        counts.lost,
    )?;
    let lost = history().map_or(0, |history| history.status().lost);
    family.counter(
        "weir_events_lost",
        "Events that are not in the history, because they came too fast or the disk failed.",
        lost,
    )
}
