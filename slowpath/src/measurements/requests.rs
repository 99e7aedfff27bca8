//! Durations of API requests by operation and class of the status.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Methods that have a label value of their own. Any other that a client sends counts as `other`.
const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"];

/// Returns the label value of a method.
pub(super) fn method_label(method: &str) -> &'static str {
    METHODS.into_iter().find(|label| *label == method).unwrap_or("other")
}

/// An operation and the class of its responses' status. The route is a declared one, so the number
/// of keys is bounded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Operation {
    /// Method, or `other`.
    pub method: &'static str,
    /// Pattern of the path, or `none` if no route matches.
    pub route: String,
    /// `2xx` and so on.
    pub status: &'static str,
}

/// Durations of API requests.
#[derive(Debug, Default)]
pub struct Requests(Mutex<BTreeMap<Operation, Histogram>>);

impl Requests {
    /// Records a request. `route` is the pattern that its path matched, if any.
    pub fn record(&self, method: &str, route: Option<&str>, status: u16, took: Duration) {
        let status = match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        let (method, route) = (method_label(method), route.unwrap_or("none").to_owned());
        let mut all = self.0.lock();
        let histogram = all.entry(Operation { method, route, status }).or_insert_with(|| {
            // 0.5 ms to 33 s: from a read to a write that waits until it is in force.
            Histogram::new(exponential_buckets(0.0005, 4.0, 9))
        });
        histogram.observe(took.as_secs_f64());
    }

    /// Returns the histograms of all operations so far.
    pub fn all(&self) -> Vec<(Operation, Histogram)> {
        self.0.lock().iter().map(|(operation, one)| (operation.clone(), one.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::observations;

    #[test]
    fn clients_cannot_add_label_values() {
        let requests = Requests::default();
        for n in 0..1000 {
            let method = format!("M{n}");
            requests.record(&method, None, 400 + n % 100, Duration::from_millis(1));
        }
        let all = requests.all();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(
            (all[0].0.method, all[0].0.status, observations(&all[0].1)),
            ("other", "4xx", 1000)
        );
    }
}
