//! Shutdown of BGP: either final, which withdraws all routes first, or for a restart, which sends
//! nothing. A state machine without a clock: the time is an argument.

use std::time::Instant;

use crate::apply::{PolicyApplier, ShutdownMode};

/// Progress of the shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Withdrawals are in progress, or routers move traffic; call again at this time at the latest.
    Wait(Instant),
    /// The shutdown is complete.
    Done,
}

/// State machine of the shutdown.
#[derive(Debug)]
pub struct Shutdown {
    mode: ShutdownMode,
    /// Until when to wait for withdrawals to be sent; `None` before the first step.
    deadline: Option<Instant>,
    /// Until when to wait for routers to move traffic; `None` until withdrawals were sent.
    settled: Option<Instant>,
    done: bool,
}

impl Shutdown {
    /// Creates the state machine; nothing happens before the first step.
    pub fn new(mode: ShutdownMode) -> Shutdown {
        Shutdown { mode, deadline: None, settled: None, done: false }
    }

    /// Advances the shutdown: withdraws all routes at the first call, and closes all sessions at
    /// the last.
    pub fn step(&mut self, now: Instant, applier: &mut impl PolicyApplier) -> Step {
        if self.done {
            return Step::Done;
        }
        if let ShutdownMode::Stop { timeout, settle } = self.mode {
            let first = self.deadline.is_none();
            // Without peers there is nothing to wait for.
            if first && !applier.withdraw() {
                self.settled = Some(now);
            }
            let deadline = *self.deadline.get_or_insert(now + timeout);
            if self.settled.is_none() && now < deadline && !applier.is_withdrawn() {
                return Step::Wait(deadline);
            }
            let settled = *self.settled.get_or_insert(now + settle);
            if now < settled {
                return Step::Wait(settled);
            }
        }
        applier.end(self.mode.clone());
        self.done = true;
        Step::Done
    }
}
