//! Metrics of the log and of the history of events.

use std::fmt;

use events::history::history;
use events::log::{LogCounts, log};

use super::declared as metric;
use super::family::Family;

/// Encodes what log and history left out.
pub(super) fn encode(family: &mut Family<'_, '_>) -> fmt::Result {
    let counts = log().map(|log| log.counts()).unwrap_or_default();
    let lost = history().map_or(0, |history| history.status().lost);
    encode_counts(&counts, lost, family)
}

fn encode_counts(counts: &LogCounts, lost_events: u64, family: &mut Family<'_, '_>) -> fmt::Result {
    let suppressed = counts.suppressed.iter();
    let suppressed = suppressed.map(|(event, lines)| ([event.as_str()], *lines));
    family.counters(&metric::LOG_SUPPRESSED, suppressed)?;
    family.counter(&metric::LOG_LOST, counts.lost)?;
    family.counter(&metric::EVENTS_LOST, lost_events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::family::assert_all_sampled;

    #[test]
    fn lines_left_out_are_counted_by_event() {
        let suppressed = vec![("accept_failed".to_owned(), 14)];
        let counts = LogCounts { suppressed, lost: 3 };
        let text = assert_all_sampled("weir_log_", move |family| encode_counts(&counts, 5, family));
        let line = "weir_log_suppressed_total{event=\"accept_failed\"} 14";
        assert!(text.contains(line) && text.contains("weir_events_lost_total 5"), "{text}");
    }
}
