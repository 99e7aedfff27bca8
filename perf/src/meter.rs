//! The rate of a program of ours, told once a second on its standard output as the C peer does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A count that one polling thread writes, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Count(AtomicU64);

impl Count {
    /// A count at 0, to be shared with the polling thread.
    pub fn new() -> Arc<Count> {
        Arc::default()
    }

    /// Adds to it; for its one writer.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Prints `Mpps <millions a second>` once a second, for so many seconds.
pub fn tell(count: &Count, seconds: u64) {
    let (mut last, mut then) = (count.get(), Instant::now());
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        let (now, at) = (count.get(), Instant::now());
        println!("{}", line((now - last) as f64 / (at - then).as_secs_f64() / 1e6));
        (last, then) = (now, at);
    }
}

/// How a rate is told.
pub fn line(mpps: f64) -> String {
    format!("Mpps {mpps:.3}")
}

/// The rate that a line tells, when it tells one.
pub fn read(line: &str) -> Option<f64> {
    line.strip_prefix("Mpps ")?.trim().parse().ok()
}
