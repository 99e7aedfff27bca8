//! Scheduling of calls: at most one of each kind is in progress, and at most one write in all.

use std::time::{Duration, Instant};

use super::words::Call;
use super::{Effect, LOOK_OPEN, Life, TUNNELS_STRANGE};

/// The calls that change this machine's entries.
const WRITES: [Call; 4] = [Call::Join, Call::Down, Call::Up, Call::Leave];

impl Life {
    pub(super) fn is_under_way(&self, call: Call) -> bool {
        self.calls[call as usize].under_way
    }

    pub(super) fn is_writing(&self) -> bool {
        WRITES.into_iter().any(|call| self.is_under_way(call))
    }

    pub(super) fn later(&mut self, call: Call, at: Instant) {
        self.calls[call as usize].not_before = Some(at);
    }

    /// Returns true if the call may be started now.
    pub(super) fn is_due(&self, now: Instant, call: Call) -> bool {
        let asking = self.calls[call as usize];
        !asking.under_way && asking.not_before.is_none_or(|at| now >= at)
    }

    /// Starts a call unless one of its kind is in progress or its delay has not passed.
    pub(super) fn ask(&mut self, now: Instant, call: Call) {
        if !self.is_due(now, call) {
            return;
        }
        if call.is_write() {
            self.member.writes();
        }
        let epoch = self.member.epoch;
        let asking = &mut self.calls[call as usize];
        (asking.under_way, asking.begun, asking.epoch) = (true, Some(now), epoch);
        asking.hurried = false;
        self.effects.push(Effect::Call(call));
    }

    /// Queries the membership, unless a write is in progress, whose result a query would not
    /// reliably see.
    pub(super) fn look(&mut self, now: Instant) {
        if !self.is_writing() {
            self.ask(now, Call::Look);
        }
    }

    /// Packets of unknown tunnels arrived: query the tunnels sooner.
    pub(super) fn hurry_for_tunnels(&mut self) {
        self.sooner(Call::AskTunnels, TUNNELS_STRANGE);
        if !self.following.imds_tells() {
            self.sooner(Call::Look, LOOK_OPEN);
        }
    }

    /// Repeats a call no later than `gap` after its last start; a failed call keeps its own delay.
    pub(super) fn sooner(&mut self, call: Call, gap: Duration) {
        let asking = &mut self.calls[call as usize];
        asking.hurried = true;
        if let Some(begun) = asking.begun.filter(|_| !asking.failed) {
            asking.not_before = asking.not_before.map(|at| at.min(begun + gap));
        }
    }
}
