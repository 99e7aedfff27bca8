//! When what is asked: of each kind of call at most one at once, and of the writes one in all.

use std::time::{Duration, Instant};

use super::words::Call;
use super::{Effect, LOOK_OPEN, Life, TUNNELS_STRANGE};

/// All that change our entries.
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

    /// May be asked now.
    pub(super) fn is_due(&self, now: Instant, call: Call) -> bool {
        let asking = self.calls[call as usize];
        !asking.under_way && asking.not_before.is_none_or(|at| now >= at)
    }

    /// Begins a call unless one is under way or it is too early.
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

    /// Looks, unless a write is under way: what that will have done, no look can know.
    pub(super) fn look(&mut self, now: Instant) {
        if !self.is_writing() {
            self.ask(now, Call::Look);
        }
    }

    /// Packets came in tunnels that we don't know.
    pub(super) fn hurry_for_tunnels(&mut self) {
        self.sooner(Call::AskTunnels, TUNNELS_STRANGE);
        if !self.following.imds_tells() {
            self.sooner(Call::Look, LOOK_OPEN);
        }
    }

    /// No longer than `gap` after the last one; what failed has its own pause.
    pub(super) fn sooner(&mut self, call: Call, gap: Duration) {
        let asking = &mut self.calls[call as usize];
        asking.hurried = true;
        if let Some(begun) = asking.begun.filter(|_| !asking.failed) {
            asking.not_before = asking.not_before.map(|at| at.min(begun + gap));
        }
    }
}
