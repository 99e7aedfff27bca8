//! Measurements that slowpath takes of its own work, for the metrics: durations, sizes, and times.
//!
//! Recording a measurement never waits for a client: a scrape holds a lock only while it reads what
//! the lock protects (the list of tables, the times of sources, the buckets of a histogram). Each
//! duration is an observation of a histogram, and a span if traces are exported.

mod nat_ports;
mod plain;
mod requests;
mod scraper;
mod spans;
mod stages;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};
use state::name::Source;
use tables::writer::TableUse;

pub use nat_ports::NatPortCounts;
pub use plain::plain;
pub use requests::Requests;
pub use scraper::{ScrapeError, ScrapeText, Scraper};
pub use spans::{Signal, Span, Spans, Work};
pub use stages::{Generation, Stage, Stages};

/// Measurements of this process.
#[derive(Debug)]
pub struct Measurements {
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
    /// NAT ports in use by backend.
    nat_ports: Mutex<NatPortCounts>,
    /// Time of the last commit in milliseconds since 1970; 0 before the first one.
    committed_ms: AtomicU64,
    /// Times of the last complete lists in seconds since 1970, by source.
    lists_s: Mutex<BTreeMap<String, f64>>,
    /// Size of the store's objects on disk in bytes, as of its last write.
    store_bytes: AtomicU64,
    /// Time at which the process began to measure, in seconds since 1970.
    started_s: f64,
}

impl Default for Measurements {
    fn default() -> Measurements {
        Measurements {
            stages: Stages::default(),
            requests: Requests::default(),
            spans: Spans::default(),
            scraper: Scraper::default(),
            table_uses: Mutex::default(),
            nat_ports: Mutex::default(),
            committed_ms: AtomicU64::default(),
            lists_s: Mutex::default(),
            store_bytes: AtomicU64::default(),
            started_s: since_1970(SystemTime::now()).as_secs_f64(),
        }
    }
}

impl Measurements {
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

    /// Locks and returns the NAT ports in use by backend, for a scrape.
    pub fn nat_ports(&self) -> MutexGuard<'_, NatPortCounts> {
        self.nat_ports.lock()
    }

    /// Records that a source gave a complete list.
    pub fn set_listed(&self, source: &str, now: SystemTime) {
        self.lists_s.lock().insert(source.to_owned(), since_1970(now).as_secs_f64());
    }

    /// Returns the times of the last complete lists of existing sources in seconds since 1970.
    /// `in_store` are the sources with an object of their own: until such a source has given a
    /// list, its time is that of the start. `of_files` are the appliance's own sources.
    pub fn lists_s<'s>(
        &self,
        in_store: impl Iterator<Item = &'s str>,
        of_files: &[Source],
    ) -> BTreeMap<String, f64> {
        let mut all: BTreeMap<String, f64> =
            in_store.map(|source| (source.to_owned(), self.started_s)).collect();
        for (source, at) in &*self.lists_s.lock() {
            if all.contains_key(source) || of_files.iter().any(|of| of.as_str() == source) {
                all.insert(source.clone(), *at);
            }
        }
        all
    }

    /// Records the size of the store's objects on disk.
    pub fn set_store_bytes(&self, bytes: u64) {
        self.store_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the size of the store's objects on disk in bytes; 0 without a store.
    pub fn store_bytes(&self) -> u64 {
        self.store_bytes.load(Ordering::Relaxed)
    }

    /// Records the time of a commit.
    pub fn set_committed(&self, now: SystemTime) {
        let ms = u64::try_from(since_1970(now).as_millis()).unwrap_or(u64::MAX);
        self.committed_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the time of the last commit in seconds since 1970; 0 before the first one.
    pub fn committed_s(&self) -> f64 {
        self.committed_ms.load(Ordering::Relaxed) as f64 / 1000.0
    }
}

fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_sources_have_a_time() {
        let measurements = Measurements::default();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        for source in ["file", "gone", "inventory"] {
            measurements.set_listed(source, at(7));
        }
        let files = [Source::new("file"), Source::new("kubernetes-file")];
        let times = || measurements.lists_s(["inventory", "silent"].into_iter(), &files);
        let names = |times: &BTreeMap<String, f64>| times.keys().cloned().collect::<Vec<_>>();
        let first = times();
        assert_eq!(names(&first), ["file", "inventory", "silent"]);
        assert_eq!((first["file"], first["silent"]), (7.0, measurements.started_s));
        measurements.set_listed("silent", at(9));
        assert_eq!(times()["silent"], 9.0);
    }
}
