//! Measured durations with their begin, which wait for the export of traces, and the number of
//! spans and data points that were lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::stages::Stage;

/// Maximum number of spans that wait for the exporter, which takes them each second.
const WAITING_MAX: usize = 8_192;

/// A part of slowpath's work that was measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The work.
    pub work: Work,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

impl Span {
    /// Returns when the work ended.
    pub fn ended(&self) -> Instant {
        self.began + self.took
    }
}

/// The work of a span. Its texts are from fixed lists, never from a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// A stage of a change, with the generation that it led to if it is known.
    Stage(Stage, Option<u32>),
    /// A request to the API: method, pattern of the path (`none` without one), and status.
    Request(&'static str, String, u16),
    /// An attempt of a call to a cloud: operation and outcome.
    CloudCall(&'static str, &'static str),
}

/// The signals that are exported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Data points of metrics.
    Metrics,
}

impl Signal {
    /// All signals.
    pub const ALL: [Signal; 2] = [Signal::Traces, Signal::Metrics];

    /// Name in metrics, events and the collector's URLs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Signal::Traces => "traces",
            Signal::Metrics => "metrics",
        }
    }
}

/// The queue of spans for the exporter. Without an exporter it stays empty.
#[derive(Debug, Default)]
pub struct Spans {
    is_exported: AtomicBool,
    waiting: Mutex<Vec<Span>>,
    lost: [AtomicU64; Signal::ALL.len()],
}

impl Spans {
    /// Keeps spans from now on, for an exporter that calls [`Spans::take`].
    pub fn enable(&self) {
        self.is_exported.store(true, Ordering::Relaxed);
    }

    /// Appends a span, or counts it as lost if the queue is full.
    pub fn push(&self, span: Span) {
        if !self.is_exported.load(Ordering::Relaxed) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push(span);
        } else {
            self.count_lost(Signal::Traces, 1);
        }
    }

    /// Removes all waiting spans and returns them.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Counts spans or data points that are not exported.
    pub fn count_lost(&self, signal: Signal, count: usize) {
        self.lost[signal as usize].fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns the number of lost spans and data points.
    pub fn lost(&self) -> [(Signal, u64); Signal::ALL.len()] {
        Signal::ALL.map(|signal| (signal, self.lost[signal as usize].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_counts_what_it_loses() {
        let spans = Spans::default();
        let work = Work::CloudCall("Describe", "ok");
        let span = Span { work, began: Instant::now(), took: Duration::from_millis(1) };
        spans.push(span.clone());
        assert_eq!(spans.take(), [], "nothing is kept without an exporter");
        spans.enable();
        (0..WAITING_MAX + 3).for_each(|_| spans.push(span.clone()));
        assert_eq!(spans.take().len(), WAITING_MAX);
        assert_eq!(spans.lost(), [(Signal::Traces, 3), (Signal::Metrics, 0)]);
        spans.push(span);
        assert_eq!(spans.take().len(), 1);
    }
}
