//! The lcore's clock: a copy of the region's clock, updated once in many iterations.

use std::time::Instant;
use tables::region::Region;
use tables::token_bucket::SECOND_NS;

/// Iterations of the poll loop between two reads of the clock; an iteration takes microseconds.
const ITERATIONS_PER_READ: u32 = 64;

/// The result of a clock update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tick {
    /// The clock was not read.
    Skipped,
    /// The clock was read.
    Read,
    /// The clock was read, and a new second began.
    NewSecond,
}

/// A copy of the region's clock. Its seconds begin with a whole second when it is created, and are
/// therefore up to one second behind the region's.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    base_s: u32,
    iterations: u32,
    base_ms: u64,
    elapsed_us: u64,
    now_s: u32,
}

impl Clock {
    /// Creates a clock that starts at the region's current second.
    pub fn new(region: &Region) -> Clock {
        let (started, base_s) = (Instant::now(), region.now_s());
        let base_ms = region.now_ms();
        Clock { started, base_s, iterations: 0, base_ms, elapsed_us: 0, now_s: base_s }
    }

    /// Updates the clock. Called once per iteration.
    #[inline(always)]
    pub fn tick(&mut self) -> Tick {
        self.iterations += 1;
        if self.iterations < ITERATIONS_PER_READ {
            return Tick::Skipped;
        }
        self.iterations = 0;
        self.set_elapsed(self.started.elapsed().as_micros() as u64)
    }

    /// Advances a simulated clock by `us` microseconds. Must not be mixed with [`Clock::tick`],
    /// which reads the real time.
    pub fn advance_us(&mut self, us: u64) -> Tick {
        self.set_elapsed(self.elapsed_us + us)
    }

    /// Sets the time to `elapsed_us` microseconds after the clock's creation.
    #[inline(always)]
    fn set_elapsed(&mut self, elapsed_us: u64) -> Tick {
        self.elapsed_us = elapsed_us;
        let now_s = self.base_s.wrapping_add((elapsed_us / 1_000_000) as u32);
        let new_second = now_s != self.now_s;
        self.now_s = now_s;
        if new_second { Tick::NewSecond } else { Tick::Read }
    }

    /// Returns the time of the region's clock in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.base_ms + self.elapsed_us / 1000
    }

    /// Returns the microseconds since the clock's creation, as of the last read.
    pub fn elapsed_us(&self) -> u64 {
        self.elapsed_us
    }

    /// Advances the clock by `seconds`, for tests.
    pub fn advance_s(&mut self, seconds: u32) {
        self.base_s = self.base_s.wrapping_add(seconds);
        self.now_s = self.now_s.wrapping_add(seconds);
    }

    /// Returns [`Clock::now_s`] with the fraction of the second, in nanoseconds.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        u64::from(self.base_s) * SECOND_NS + self.elapsed_us * 1000
    }

    /// Returns the time of the region's clock in seconds.
    pub fn now_s(&self) -> u32 {
        self.now_s
    }
}
