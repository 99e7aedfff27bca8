//! The lcore's idea of time: whole seconds of the region's clock, read once in many turns.

use std::time::Instant;
use tables::region::Region;
use tables::token_bucket::SECOND_NS;

/// Turns of the poll loop between two looks at the clock; a turn takes microseconds at most.
const TURNS: u32 = 64;

/// What a turn of the clock brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Nothing: the clock was not looked at.
    Quick,
    /// A look at the clock.
    Looked,
    /// A look, and a new second.
    Second,
}

/// Seconds of the region's clock, good to a few milliseconds.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    base_s: u32,
    turns: u32,
    base_ms: u64,
    elapsed_us: u64,
    now_s: u32,
}

impl Clock {
    /// A clock that agrees with the region's.
    pub fn new(region: &Region) -> Clock {
        let (started, base_s) = (Instant::now(), region.now_s());
        let base_ms = region.now_ms();
        Clock { started, base_s, turns: 0, base_ms, elapsed_us: 0, now_s: base_s }
    }

    /// To be called once a turn.
    #[inline(always)]
    pub fn turn(&mut self) -> Turn {
        self.turns += 1;
        if self.turns < TURNS {
            return Turn::Quick;
        }
        self.turns = 0;
        self.at(self.started.elapsed().as_micros() as u64)
    }

    /// Moves a clock on that is driven by its user: nothing else may have it look at real time.
    pub fn advance_us(&mut self, us: u64) -> Turn {
        self.at(self.elapsed_us + us)
    }

    /// So many microseconds have passed since the clock began.
    #[inline(always)]
    fn at(&mut self, elapsed_us: u64) -> Turn {
        self.elapsed_us = elapsed_us;
        let now_s = self.base_s.wrapping_add((elapsed_us / 1_000_000) as u32);
        let second = now_s != self.now_s;
        self.now_s = now_s;
        if second { Turn::Second } else { Turn::Looked }
    }

    /// Milliseconds of the region's clock.
    pub fn now_ms(&self) -> u64 {
        self.base_ms + self.elapsed_us / 1000
    }

    /// Microseconds since the clock began, as of the last look.
    pub fn elapsed_us(&self) -> u64 {
        self.elapsed_us
    }

    /// Sets the clock forward.
    pub fn advance_s(&mut self, seconds: u32) {
        self.base_s = self.base_s.wrapping_add(seconds);
        self.now_s = self.now_s.wrapping_add(seconds);
    }

    /// The same in nanoseconds, as of the last look.
    #[inline(always)]
    pub fn now_ns(&self) -> u64 {
        u64::from(self.base_s) * SECOND_NS + self.elapsed_us * 1000
    }

    /// Seconds of the region's clock.
    pub fn now_s(&self) -> u32 {
        self.now_s
    }
}
