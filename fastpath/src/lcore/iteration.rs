//! One iteration of an lcore's poll loop.
//!
//! ```text
//!   control -> receive -> pipeline -> dispatch -> sweep a little -> again
//! ```

use super::{Lcore, NO_SCOPE};
use crate::burst::Burst;
use crate::capture::record;
use crate::clock::Tick;
use crate::dispatch::{Exits, count_arrivals, dispatch};
use crate::pipeline;
use crate::port::Buffer;
use tables::counters::Counter;
use tables::scope::CACHE_MAX_S;

/// The period of a complete sweep of path records in microseconds, independent of traffic: a flow
/// may end up to this much later than its idle timeout.
const SWEEP_US: u64 = 2_000_000;
/// The maximum number of records per sweep. After a stall the sweep does not catch up: it continues
/// where it stopped, and the current pass takes longer.
const MAX_SWEEP: u64 = 1024;

/// The period in seconds of a complete check for unused scopes.
const SCOPE_SWEEP_S: u32 = 32;

impl Lcore<'_> {
    /// Processes a burst: counts its arrival, runs the pipeline, counts and sends the packets.
    #[inline(always)]
    pub fn forward<B: Buffer>(&self, burst: &mut Burst<B>, exits: &mut impl Exits<B>) {
        if burst.len > 0 {
            self.page.burst(burst.len);
        }
        count_arrivals(burst, self);
        if self.is_capturing() {
            record::run(burst, self);
        } else {
            pipeline::run(burst, self);
        }
        dispatch(burst, self, exits);
    }

    /// Runs the periodic work of each iteration: commands, clock, expiry.
    #[inline(always)]
    pub fn run_periodic(&mut self) {
        self.control.process_command();
        let tick = self.clock.tick();
        self.handle_tick(tick);
    }

    /// Like [`Lcore::run_periodic`], but advances the clock by `us` microseconds, for simulations.
    /// `run_periodic` reads the real time and must not be mixed with it. A step should not exceed
    /// the duration of an iteration.
    pub fn advance_us(&mut self, us: u64) {
        self.control.process_command();
        let tick = self.clock.advance_us(us);
        self.handle_tick(tick);
    }

    /// Performs the work that is due after the clock advanced.
    #[inline(always)]
    fn handle_tick(&mut self, tick: Tick) {
        match tick {
            Tick::Skipped => {}
            Tick::SampleBegins => self.sampled_bursts = self.page.lcore_count(Counter::Bursts),
            Tick::Sampled(ns) => {
                let is_busy = self.page.lcore_count(Counter::Bursts) != self.sampled_bursts;
                self.page.iteration(ns, is_busy);
            }
            Tick::Read => {
                self.control.status().note_polled(self.clock.now_ms());
                self.sweep_due();
            }
            Tick::NewSecond => {
                self.control.run_each_second();
                self.punt_limit.refill();
                self.expire_scopes();
                self.page.count(Counter::EventsLost, self.control.take_lost_events());
                self.page.count(Counter::TableSwitches, self.control.take_switches());
            }
        }
    }

    /// Invalidates cached scopes every `CACHE_MAX_S / 2` seconds. On the first lcore, also releases
    /// unused scopes, once the sweep has visited all flows and thereby marked the scopes in use.
    fn expire_scopes(&mut self) {
        if self.clock.now_s().is_multiple_of(CACHE_MAX_S / 2) {
            self.invalidate_scope_caches();
        }
        if self.config.index == 0 && self.clock.elapsed_us() > 8 * SWEEP_US {
            self.release_scopes(self.scopes.cells().div_ceil(SCOPE_SWEEP_S));
        }
    }

    /// Releases those of the next `n` scopes that have been idle longer than any flow may be.
    pub fn release_scopes(&mut self, n: u32) {
        let idle_for_s = self.control.snapshot().settings.timeouts.longest_s();
        self.scopes.release_idle(&mut self.scope_cursor, n, self.clock.now_s(), idle_for_s);
    }

    fn invalidate_scope_caches(&self) {
        self.last_scope.set(NO_SCOPE);
        self.header_cache.borrow_mut().invalidate();
        self.template_cache.borrow_mut().clear();
    }

    /// Sweeps as many path records as the time since the last sweep requires.
    fn sweep_due(&mut self) {
        let share = u64::from(self.flows.capacity().div_ceil(self.config.count.max(1)));
        let (records, us) = due_records(share, self.clock.elapsed_us() - self.swept_us);
        if records > 0 {
            self.swept_us += us;
            self.sweep(records);
        }
    }

    /// Sweeps `n` path records of this lcore's share, and ends flows that exceeded their idle
    /// timeout.
    pub fn sweep(&mut self, n: u32) {
        let timeouts = &self.control.snapshot().settings.timeouts;
        let (page, config) = (self.page, self.config);
        let (flows, now_s) = (self.flows, self.clock.now_s());
        flows.sweep(
            &mut self.sweep_cursor,
            n,
            config.index,
            config.count,
            now_s,
            timeouts,
            |flow| {
                page.flow_ended(flow.forward.service, flow.forward.backend);
            },
        );
    }

    /// Advances the clock by `seconds`, for tests of timeouts. Refills the punt limits, and
    /// invalidates cached scopes as [`Lcore::run_periodic`] would. Sweeps nothing.
    pub fn advance_s(&mut self, seconds: u32) {
        self.clock.advance_s(seconds);
        self.punt_limit.refill();
        if seconds >= CACHE_MAX_S / 2 {
            self.invalidate_scope_caches();
        }
    }

    /// Processes one command and runs the per-second work of [`Control`](crate::control::Control),
    /// for tests without a loop.
    pub fn poll_control(&mut self) {
        self.control.process_command();
        self.control.run_each_second();
    }
}

/// Returns how many records of a share are due after `since_us` microseconds, and how many of these
/// microseconds they account for.
fn due_records(share: u64, since_us: u64) -> (u32, u64) {
    let records = share.saturating_mul(since_us) / SWEEP_US;
    match records {
        0 => (0, 0),
        1..=MAX_SWEEP => (records as u32, (records * SWEEP_US).div_ceil(share)),
        _ => (MAX_SWEEP as u32, since_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each record is visited about once per period, however often the clock is read.
    #[test]
    fn sweep_rate_is_independent_of_traffic() {
        for share in [1, 64, 65_536, 1_048_576] {
            for step_us in [1, 7, 100, 1_000] {
                let (mut swept_us, mut visited) = (0, 0);
                for now_us in (0..10 * SWEEP_US).step_by(step_us) {
                    let (records, us) = due_records(share, now_us - swept_us);
                    (swept_us, visited) = (swept_us + us, visited + u64::from(records));
                    assert!(swept_us <= now_us && u64::from(records) <= MAX_SWEEP);
                }
                // Time is accounted in whole microseconds, of which a share of a million records
                // owes half of one.
                let passes = visited as f64 / share as f64;
                assert!((5.0..=10.0).contains(&passes), "{share} by {step_us} us: {passes} passes");
                let exact = share <= 65_536 || step_us >= 100;
                assert!(!exact || passes >= 9.0, "{share} by {step_us} us: {passes} passes");
            }
        }
    }

    #[test]
    fn sweep_after_a_stall_is_bounded() {
        assert_eq!(due_records(1_048_576, 60 * SWEEP_US), (MAX_SWEEP as u32, 60 * SWEEP_US));
        assert_eq!(due_records(u64::from(u32::MAX), u64::MAX), (MAX_SWEEP as u32, u64::MAX));
    }
}
