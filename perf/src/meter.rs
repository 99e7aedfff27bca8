//! The rate of a program, printed once a second on its standard output as the C loop does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A count that one polling thread writes, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Count(AtomicU64);

impl Count {
    /// Creates a count of 0, to be shared with the polling thread.
    pub fn new() -> Arc<Count> {
        Arc::default()
    }

    /// Adds `n`; only for the single writer.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Prints `Mpps <millions per second>` once a second, for `seconds` seconds, while `check`
/// succeeds.
///
/// # Errors
/// The error of `check`.
pub fn print_rates(
    count: &Arc<Count>,
    seconds: u64,
    check: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    for _ in 0..seconds {
        let rates = rates(std::slice::from_ref(count));
        check()?;
        rates.iter().for_each(|mpps| println!("{}", line(*mpps)));
    }
    Ok(())
}

/// Counts for one second and returns the rates in millions per second.
pub fn rates(counts: &[Arc<Count>]) -> Vec<f64> {
    let all = || counts.iter().map(|count| count.get()).collect::<Vec<_>>();
    let (before, then) = (all(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (after, took) = (all(), then.elapsed().as_secs_f64());
    after.iter().zip(before).map(|(after, before)| (after - before) as f64 / took / 1e6).collect()
}

/// Formats a rate.
pub fn line(mpps: f64) -> String {
    format!("Mpps {mpps:.3}")
}

/// Parses the rate of a line, if it has one.
pub fn read(line: &str) -> Option<f64> {
    line.strip_prefix("Mpps ")?.trim().parse().ok()
}
