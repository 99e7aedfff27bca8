//! The lcore's clock: a copy of the region's clock, updated once in many iterations.

use std::time::Instant;
use tables::counters::ITERATIONS_PER_SAMPLE;
use tables::region::Region;
use tables::token_bucket::SECOND_NS;

/// Iterations of the poll loop between two reads of the clock; an iteration takes microseconds.
const ITERATIONS_PER_READ: u32 = 64;

/// The number of clock reads per sampled iteration. A sample reads the time twice more, which takes
/// as long as many bursts where the machine has no fast clock.
const READS_PER_SAMPLE: u32 = ITERATIONS_PER_SAMPLE / ITERATIONS_PER_READ;

/// The number of the sampled iteration, counted from the preceding clock read. The iteration that
/// reads the clock is not sampled: it also does periodic work.
const SAMPLED: u32 = 1;

/// The result of a clock update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tick {
    /// The clock was not read.
    Skipped,
    /// The clock was read.
    Read,
    /// The clock was read, and a new second began.
    NewSecond,
    /// The sampled iteration begins.
    SampleBegins,
    /// The sampled iteration has ended, after this many nanoseconds.
    Sampled(u64),
}

/// A copy of the region's clock. Its seconds begin with a whole second when it is created, and are
/// therefore up to one second behind the region's.
#[derive(Debug)]
pub struct Clock {
    /// When the clock was created.
    started: Instant,
    /// Seconds of the region's clock at that time.
    base_s: u32,
    /// Number of iterations since the last read.
    iterations: u32,
    /// Number of iterations at which the clock is read next.
    due: u32,
    /// Number of reads of the clock since the last sample.
    reads: u32,
    /// When the sampled iteration began.
    sampled: Instant,
    /// Milliseconds of the region's clock when this clock was created.
    base_ms: u64,
    /// Microseconds since then, as of the last read.
    elapsed_us: u64,
    now_s: u32,
}

impl Clock {
    /// Creates a clock that starts at the region's current second.
    pub fn new(region: &Region) -> Clock {
        let (started, base_s) = (Instant::now(), region.now_s());
        let base_ms = region.now_ms();
        Clock {
            started,
            base_s,
            iterations: 0,
            due: ITERATIONS_PER_READ,
            reads: 0,
            sampled: started,
            base_ms,
            elapsed_us: 0,
            now_s: base_s,
        }
    }

    /// Updates the clock. Called once per iteration.
    #[inline(always)]
    pub fn tick(&mut self) -> Tick {
        self.iterations += 1;
        if self.iterations < self.due {
            return Tick::Skipped;
        }
        self.read()
    }

    /// Reads the time: of the clock, or at the beginning or end of the sampled iteration.
    fn read(&mut self) -> Tick {
        let now = Instant::now();
        match self.iterations {
            SAMPLED => {
                (self.due, self.sampled) = (SAMPLED + 1, now);
                Tick::SampleBegins
            }
            ITERATIONS_PER_READ => {
                self.reads += 1;
                self.iterations = 0;
                if self.reads == READS_PER_SAMPLE {
                    (self.reads, self.due) = (0, SAMPLED);
                }
                self.set_elapsed(now.duration_since(self.started).as_micros() as u64)
            }
            _ => {
                self.due = ITERATIONS_PER_READ;
                Tick::Sampled(now.duration_since(self.sampled).as_nanos() as u64)
            }
        }
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

    /// Returns the time of the region's clock in milliseconds, as of the last read.
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

    /// Returns the time of the region's clock in seconds, as of the last read and up to one second
    /// behind.
    pub fn now_s(&self) -> u32 {
        self.now_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::layout::Sizes;

    #[test]
    fn one_iteration_in_1024_is_sampled_and_none_with_other_work() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let mut clock = Clock::new(&region);
        let ticks: Vec<Tick> = (0..2 + 5 * ITERATIONS_PER_SAMPLE).map(|_| clock.tick()).collect();
        let at = |is: fn(&Tick) -> bool| -> Vec<usize> {
            let all = ticks.iter().enumerate().filter(move |(_, tick)| is(tick));
            all.map(|(n, _)| n + 1).collect()
        };
        let every = |step, count: usize, after| -> Vec<usize> {
            (1..=count).map(|n| n * step + after).collect()
        };
        assert_eq!(at(|t| matches!(t, Tick::Read | Tick::NewSecond)), every(64, 80, 0));
        assert_eq!(at(|t| *t == Tick::SampleBegins), every(1024, 5, 1));
        assert_eq!(at(|t| matches!(t, Tick::Sampled(_))), every(1024, 5, 2));
    }
}
