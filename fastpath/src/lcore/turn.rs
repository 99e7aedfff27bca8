//! One iteration of an lcore's poll loop.
//!
//! ```text
//!   control -> receive -> pipeline -> dispatch -> sweep a little -> again
//! ```

use super::{Lcore, NO_SCOPE};
use crate::burst::Burst;
use crate::clock::Turn;
use crate::dispatch::{Exits, count_arrivals, dispatch};
use crate::pipeline;
use crate::port::Buffer;
use tables::counters::Counter;
use tables::scope::KEPT_S;

/// The period of a complete sweep of path records in microseconds, independent of traffic: a flow
/// may end up to this much later than its idle timeout.
const SWEEP_US: u64 = 2_000_000;
/// The maximum number of records per sweep. What a stalled lcore owes beyond that is skipped.
const SWEEP_AT_MOST: u64 = 1024;

/// The period in seconds of a complete check for unused scopes.
const SCOPES_S: u32 = 32;

impl Lcore<'_> {
    /// Processes a burst: counts its arrival, runs the pipeline, counts and sends the packets.
    #[inline(always)]
    pub fn forward<B: Buffer>(&self, burst: &mut Burst<B>, exits: &mut impl Exits<B>) {
        self.page.count(Counter::Bursts, u64::from(burst.len > 0));
        count_arrivals(burst, self);
        pipeline::run(burst, self);
        dispatch(burst, self, exits);
    }

    /// Runs the periodic work of each iteration: commands, clock, expiry.
    #[inline(always)]
    pub fn turn(&mut self) {
        self.control.turn();
        let turn = self.clock.turn();
        self.tend(turn);
    }

    /// Like [`Lcore::turn`], but advances the clock by `us` microseconds, for simulations. `turn`
    /// reads the real time and must not be mixed with it. A step should not exceed the duration of
    /// an iteration.
    pub fn advance_us(&mut self, us: u64) {
        self.control.turn();
        let turn = self.clock.advance_us(us);
        self.tend(turn);
    }

    /// Performs the work that is due after the clock advanced.
    #[inline(always)]
    fn tend(&mut self, turn: Turn) {
        match turn {
            Turn::Quick => {}
            Turn::Looked => {
                self.control.status().note_polled(self.clock.now_ms());
                self.sweep_owed();
            }
            Turn::Second => {
                self.control.second();
                self.punt_limit.refill();
                self.tend_scopes();
                self.page.count(Counter::EventsLost, self.control.take_lost_events());
                self.page.count(Counter::Switches, self.control.take_switches());
            }
        }
    }

    /// Invalidates cached scopes regularly, and releases unused scopes on the first lcore, once the
    /// sweep has visited all flows.
    fn tend_scopes(&mut self) {
        if self.clock.now_s().is_multiple_of(KEPT_S / 2) {
            self.forget_scopes();
        }
        if self.place.index == 0 && self.clock.elapsed_us() > 8 * SWEEP_US {
            self.release_scopes(self.scopes.cells().div_ceil(SCOPES_S));
        }
    }

    /// Releases those of the next `n` scopes that have been idle longer than any flow may be.
    pub fn release_scopes(&mut self, n: u32) {
        let idle_for_s = self.control.snapshot().settings.timeouts.longest_s();
        self.scopes.release_idle(&mut self.scope_cursor, n, self.clock.now_s(), idle_for_s);
    }

    fn forget_scopes(&self) {
        self.last_scope.set(NO_SCOPE);
        self.familiar.borrow_mut().forget();
        self.prepared.borrow_mut().forget();
    }

    /// Sweeps as many path records as the time since the last sweep requires.
    fn sweep_owed(&mut self) {
        let share = u64::from(self.flows.capacity().div_ceil(self.place.count.max(1)));
        let (records, us) = owed(share, self.clock.elapsed_us() - self.swept_us);
        if records > 0 {
            self.swept_us += us;
            self.sweep(records);
        }
    }

    /// Sweeps `n` path records of this lcore's share, and ends flows that exceeded their idle
    /// timeout.
    pub fn sweep(&mut self, n: u32) {
        let timeouts = &self.control.snapshot().settings.timeouts;
        let (page, place) = (self.page, self.place);
        let (flows, now_s) = (self.flows, self.clock.now_s());
        flows.sweep(
            &mut self.sweep_cursor,
            n,
            place.index,
            place.count,
            now_s,
            timeouts,
            |ended| {
                page.flow_ended(ended.forward.service, ended.forward.backend);
            },
        );
    }

    /// Advances the clock by `seconds`, for tests of timeouts.
    pub fn advance_s(&mut self, seconds: u32) {
        self.clock.advance_s(seconds);
        self.punt_limit.refill();
        if seconds >= KEPT_S / 2 {
            self.forget_scopes();
        }
    }

    /// Processes pending commands, for tests without a loop.
    pub fn poll_control(&mut self) {
        self.control.turn();
        self.control.second();
    }
}

/// Returns how many records of a share are due after `since_us` microseconds, and how many of these
/// microseconds they account for.
fn owed(share: u64, since_us: u64) -> (u32, u64) {
    let records = share.saturating_mul(since_us) / SWEEP_US;
    match records {
        0 => (0, 0),
        1..=SWEEP_AT_MOST => (records as u32, (records * SWEEP_US).div_ceil(share)),
        _ => (SWEEP_AT_MOST as u32, since_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each record is visited once per period, however often the clock is read.
    #[test]
    fn a_sweep_takes_its_time_whatever_the_traffic() {
        for share in [1, 64, 65_536, 1_048_576] {
            for step_us in [1, 7, 100, 1_000] {
                let (mut swept_us, mut looked) = (0, 0);
                for now_us in (0..10 * SWEEP_US).step_by(step_us) {
                    let (records, us) = owed(share, now_us - swept_us);
                    (swept_us, looked) = (swept_us + us, looked + u64::from(records));
                    assert!(swept_us <= now_us && u64::from(records) <= SWEEP_AT_MOST);
                }
                // Time is accounted in whole microseconds, of which a share of a million records
                // owes half of one.
                let passes = looked as f64 / share as f64;
                assert!((5.0..=10.0).contains(&passes), "{share} by {step_us} us: {passes} passes");
                let exact = share <= 65_536 || step_us >= 100;
                assert!(!exact || passes >= 9.0, "{share} by {step_us} us: {passes} passes");
            }
        }
    }

    #[test]
    fn what_a_stalled_lcore_owes_is_bounded() {
        assert_eq!(owed(1_048_576, 60 * SWEEP_US), (SWEEP_AT_MOST as u32, 60 * SWEEP_US));
        assert_eq!(owed(u64::from(u32::MAX), u64::MAX), (SWEEP_AT_MOST as u32, u64::MAX));
    }
}
