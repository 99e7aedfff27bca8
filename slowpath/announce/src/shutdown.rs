//! Shutdown of BGP: either final, which withdraws all routes first, or for a restart, which sends
//! nothing. A state machine without a clock: the time is an argument.

use std::time::{Duration, Instant};

use bgp::peer::Stop;

use crate::apply::PolicyApplier;

/// How BGP is shut down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShutdownMode {
    /// Final shutdown: all routes are withdrawn, routers get time to move traffic, and each session
    /// ends with a Cease, as a hard reset (RFC 8538) where graceful restart would keep the routes.
    Stop {
        /// Maximum time for withdrawals to be sent.
        timeout: Duration,
        /// Time for routers to move traffic after that.
        settle: Duration,
    },
    /// Restart: nothing is sent, so that neighbors with graceful restart keep the routes.
    Restart,
}

impl ShutdownMode {
    /// Returns the reason with which sessions end.
    pub(crate) fn stop(&self) -> Stop {
        match self {
            ShutdownMode::Stop { .. } => Stop::Shutdown("appliance shutdown".to_owned()),
            ShutdownMode::Restart => Stop::Restart,
        }
    }
}

/// Progress of the shutdown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Withdrawals are in progress; call again at this time at the latest.
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

    /// Advances the shutdown.
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
