//! Scheduling of calls: at most one of each kind is in progress, and at most one write in all.

use std::time::{Duration, Instant};

use super::event::Call;
use super::{Effect, Membership, POOLS_INTERVAL_UNSETTLED, TUNNELS_INTERVAL_UNKNOWN};

/// The calls that change this machine's entries.
const WRITES: [Call; 4] = [Call::Join, Call::Down, Call::Up, Call::Leave];

impl Membership {
    pub(super) fn is_in_progress(&self, call: Call) -> bool {
        self.calls[call as usize].in_progress
    }

    pub(super) fn is_writing(&self) -> bool {
        WRITES.into_iter().any(|call| self.is_in_progress(call))
    }

    /// Sets the earliest time of the next call of this kind.
    pub(super) fn schedule_call(&mut self, call: Call, at: Instant) {
        self.calls[call as usize].not_before = Some(at);
    }

    /// Returns true if the call may be started now.
    pub(super) fn is_due(&self, now: Instant, call: Call) -> bool {
        let state = self.calls[call as usize];
        !state.in_progress && state.not_before.is_none_or(|at| now >= at)
    }

    /// Starts a call unless one of its kind is in progress or its delay has not passed.
    pub(super) fn start(&mut self, now: Instant, call: Call) {
        if !self.is_due(now, call) {
            return;
        }
        if call.is_write() {
            self.observed.start_write();
        }
        let epoch = self.observed.epoch;
        let state = &mut self.calls[call as usize];
        (state.in_progress, state.started, state.epoch) = (true, Some(now), epoch);
        state.expedited = false;
        self.effects.push(Effect::Call(call));
    }

    /// Queries the membership, unless a write is in progress: the response could show the state
    /// before or after the write.
    pub(super) fn query_pools(&mut self, now: Instant) {
        if !self.is_writing() {
            self.start(now, Call::ReadPools);
        }
    }

    /// Queries the tunnels sooner, because packets of unknown tunnels have arrived.
    pub(super) fn expedite_tunnels(&mut self) {
        self.expedite(Call::ReadTunnels, TUNNELS_INTERVAL_UNKNOWN);
        if !self.tunnel_reports.imds_reports_all() {
            self.expedite(Call::ReadPools, POOLS_INTERVAL_UNSETTLED);
        }
    }

    /// Repeats a call no later than `gap` after its last start. The delay of a failed call is not
    /// shortened.
    pub(super) fn expedite(&mut self, call: Call, gap: Duration) {
        let state = &mut self.calls[call as usize];
        state.expedited = true;
        if let Some(started) = state.started.filter(|_| !state.failed) {
            state.not_before = state.not_before.map(|at| at.min(started + gap));
        }
    }
}
