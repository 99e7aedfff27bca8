//! The client traffic of the tests, and the durations of their steps.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tests::lab::client::{ClientStats, Load};
use tests::lab::topology::{AWS_CLIENTS, FRONTEND};

/// Returns the load of a client with four workers, each of which makes 50 requests per connection.
pub fn load(requests: u64) -> Load {
    let mut load = Load::new(SocketAddr::from((FRONTEND, 80)), requests);
    load.sources = AWS_CLIENTS.map(Into::into).to_vec();
    load.workers = 4;
    load.per_connection = 50;
    load.pause = Duration::from_millis(5);
    load
}

/// Prints what a client observed, and panics if a request failed or a flow moved.
#[track_caller]
pub fn assert_undisturbed(phase: &str, stats: &ClientStats) {
    println!("{phase}: {stats}");
    assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{phase}: {stats}");
}

/// Prints the duration of each step.
pub struct Steps(Instant);

impl Steps {
    /// Begins the first step.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Prints the duration of the step that ends here; the next one begins.
    pub fn done(&mut self, step: &str) {
        println!("{:5.1} s  {step}", self.0.elapsed().as_secs_f64());
        self.0 = Instant::now();
    }
}
