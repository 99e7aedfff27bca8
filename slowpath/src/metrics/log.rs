//! Metrics of the log and of the history of events.

use std::fmt;

use events::history::history;
use events::log::log;

use super::declared as metric;
use super::family::Family;

/// Encodes what log and history left out.
pub(super) fn encode(family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = log().map(|log| log.counts()).unwrap_or_default();
    let suppressed = counts.suppressed.iter();
    let suppressed = suppressed.map(|(event, lines)| ([event.as_str()], *lines));
    family.counters(&metric::LOG_SUPPRESSED, suppressed)?;
    family.counters(&metric::LOG_LOST, [([], counts.lost)])?;
    let lost = history().map_or(0, |history| history.status().lost);
    family.counters(&metric::EVENTS_LOST, [([], lost)])
}
