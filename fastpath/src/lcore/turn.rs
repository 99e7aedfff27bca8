//! A turn of an lcore's endless loop.
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

/// In which time all path records are looked at for expiry, whatever the traffic: so much later
/// than its idle time a flow may end.
const SWEEP_US: u64 = 2_000_000;
/// The most that are looked at at once; what is owed beyond that, of a stalled lcore, is let go.
const SWEEP_AT_MOST: u64 = 1024;

/// In how many seconds all scopes are looked at for those that nobody uses.
const SCOPES_S: u32 = 32;

impl Lcore<'_> {
    /// Takes a burst through the journey: counts it in, decides, counts it out, sends.
    #[inline(always)]
    pub fn forward<B: Buffer>(&self, burst: &mut Burst<B>, exits: &mut impl Exits<B>) {
        self.page.count(Counter::Bursts, u64::from(burst.len > 0));
        count_arrivals(burst, self);
        pipeline::run(burst, self);
        dispatch(burst, self, exits);
    }

    /// What happens once a turn, traffic or not: commands, clock, expiry.
    #[inline(always)]
    pub fn turn(&mut self) {
        self.control.turn();
        let turn = self.clock.turn();
        self.tend(turn);
    }

    /// As [`Lcore::turn`] after so many microseconds, for simulations: where this is called, `turn`
    /// must not be, because it looks at real time. A step should be no longer than a turn's work.
    pub fn advance_us(&mut self, us: u64) {
        self.control.turn();
        let turn = self.clock.advance_us(us);
        self.tend(turn);
    }

    /// Does what is due after a turn of the clock.
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

    /// What is kept of scopes is asked for again, and the first lcore releases those that nobody
    /// uses; not before the sweep has met all flows.
    fn tend_scopes(&mut self) {
        if self.clock.now_s().is_multiple_of(KEPT_S / 2) {
            self.forget_scopes();
        }
        if self.place.index == 0 && self.clock.elapsed_us() > 8 * SWEEP_US {
            self.release_scopes(self.scopes.cells().div_ceil(SCOPES_S));
        }
    }

    /// Releases those of the next `n` scopes that were idle for longer than any flow may be.
    pub fn release_scopes(&mut self, n: u32) {
        let idle_for_s = self.control.snapshot().settings.timeouts.longest_s();
        self.scopes.release_idle(&mut self.scope_cursor, n, self.clock.now_s(), idle_for_s);
    }

    fn forget_scopes(&self) {
        self.last_scope.set(NO_SCOPE);
        self.familiar.borrow_mut().forget();
    }

    /// Looks at as many path records as the time since the last look asks for.
    fn sweep_owed(&mut self) {
        let share = u64::from(self.flows.capacity().div_ceil(self.place.count.max(1)));
        let (records, us) = owed(share, self.clock.elapsed_us() - self.swept_us);
        if records > 0 {
            self.swept_us += us;
            self.sweep(records);
        }
    }

    /// Looks at `n` path records of this lcore's share, and ends the flows that idled too long.
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

    /// Sets the clock forward, for tests that wait for timeouts.
    pub fn advance_s(&mut self, seconds: u32) {
        self.clock.advance_s(seconds);
        self.punt_limit.refill();
        if seconds >= KEPT_S / 2 {
            self.forget_scopes();
        }
    }

    /// Reads the commands that are there now, for tests that have no loop.
    pub fn poll_control(&mut self) {
        self.control.turn();
        self.control.second();
    }
}

/// How many records of a share are to be looked at after so many microseconds, and how many of
/// these are paid by that.
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

    /// However often the clock is looked at, each record is looked at once in the time.
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
                // A microsecond is the least that is paid, and of a million half of one is owed.
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
