//! Measurements that slowpath takes of its own work, for the metrics: durations, sizes, and times.
//!
//! Everything here is written without waiting: a histogram takes a lock for some nanoseconds, which
//! a scrape holds while it copies its buckets. A duration is measured once: it is an observation of
//! a histogram, and a span if traces are exported.

mod requests;
mod scraper;
mod spans;
mod stages;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tables::writer::TableUse;

pub use requests::Requests;
pub use scraper::Scraper;
pub use spans::{Signal, Span, Spans, Work};
pub use stages::{Generation, Stage, Stages};

/// Measurements of this process.
#[derive(Debug, Default)]
pub struct Measured {
    /// Durations of changes by stage.
    pub stages: Stages,
    /// Durations of API requests.
    pub requests: Requests,
    /// Spans that wait for their export.
    pub spans: Spans,
    /// The scrapes of the metrics.
    pub scraper: Scraper,
    /// Occupancy of the region's tables, as of the control loop's last check.
    table_uses: Mutex<Vec<TableUse>>,
    /// Time of the last commit in milliseconds since 1970; 0 before the first one.
    committed_ms: AtomicU64,
    /// Times of the last complete lists in seconds since 1970, by source.
    lists_s: Mutex<BTreeMap<String, f64>>,
    /// Size of the store's files in bytes, as of its last write.
    store_bytes: AtomicU64,
}

impl Measured {
    /// Records a stage of a change, with the generation if it is known.
    pub fn record_stage(
        &self,
        stage: Stage,
        (began, took): (Instant, Duration),
        generation: Option<u32>,
    ) {
        self.stages.record(stage, took, generation);
        self.spans.push(Span { work: Work::Stage(stage, generation), began, took });
    }

    /// Records a request to the API that ends now. `route` is the pattern that its path matched, if
    /// any.
    pub fn record_request(&self, method: &str, route: Option<&str>, status: u16, began: Instant) {
        let took = began.elapsed();
        self.requests.record(method, route, status, took);
        let (method, route) = (requests::method_label(method), route.unwrap_or("none").to_owned());
        self.spans.push(Span { work: Work::Request(method, route, status), began, took });
    }

    /// Records the occupancy of the region's tables.
    pub fn set_table_uses(&self, uses: Vec<TableUse>) {
        *self.table_uses.lock() = uses;
    }

    /// Returns the recorded occupancy of the region's tables.
    pub fn table_uses(&self) -> Vec<TableUse> {
        self.table_uses.lock().clone()
    }

    /// Records that a source gave a complete list.
    pub fn set_listed(&self, source: &str, now: SystemTime) {
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        self.lists_s.lock().insert(source.to_owned(), seconds);
    }

    /// Returns the times of the last complete lists in seconds since 1970, by source.
    pub fn lists_s(&self) -> BTreeMap<String, f64> {
        self.lists_s.lock().clone()
    }

    /// Records the size of the files in the store's folder. Reads the folder, which a disk may
    /// block.
    pub fn measure_store(&self, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let files = entries.flatten().filter_map(|entry| entry.metadata().ok());
        let bytes = files.filter(|about| about.is_file()).map(|about| about.len()).sum();
        self.store_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the size of the store's files in bytes; 0 without a store.
    pub fn store_bytes(&self) -> u64 {
        self.store_bytes.load(Ordering::Relaxed)
    }

    /// Records the time of a commit.
    pub fn set_committed(&self, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.committed_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the time of the last commit in seconds since 1970; 0 before the first one.
    pub fn committed_s(&self) -> f64 {
        self.committed_ms.load(Ordering::Relaxed) as f64 / 1000.0
    }
}

/// Returns the number of observations in a histogram, which only its encoding shows.
#[cfg(test)]
fn observations(histogram: &prometheus_client::metrics::histogram::Histogram) -> u64 {
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register("observed", "A histogram.", histogram.clone());
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("observed_count "));
    count.and_then(|count| count.parse().ok()).unwrap_or(u64::MAX)
}
