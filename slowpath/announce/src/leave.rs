//! How we go: for good, with everything withdrawn first, or to come back, with nothing said.
//! A machine without a clock: times are arguments.

use std::time::{Duration, Instant};

use bgp::peer::Stop;

use crate::routers::Routers;

/// How we go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leave {
    /// For good: all is withdrawn, peers are told, routers move the traffic, and each session is
    /// ended by a Cease, a hard reset (RFC 8538) where graceful restart would keep our routes.
    Stop {
        /// So long, at most, until peers were told.
        patience: Duration,
        /// So long after that.
        settle: Duration,
    },
    /// To come back: nobody is told, so that neighbors of graceful restart keep our routes.
    Restart,
}

impl Leave {
    /// What sessions end with.
    pub(crate) fn said(&self) -> Stop {
        match self {
            Leave::Stop { .. } => Stop::Shutdown("this appliance leaves".to_owned()),
            Leave::Restart => Stop::Restart,
        }
    }
}

/// How far that has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Peers are being told; look again at this moment at the latest.
    Wait(Instant),
    /// We are gone.
    Done,
}

/// The machine.
#[derive(Debug)]
pub struct Leaving {
    leave: Leave,
    /// Until when peers have time; none before the first step.
    deadline: Option<Instant>,
    /// Until when routers have time; none before peers were told.
    settled: Option<Instant>,
    done: bool,
}

impl Leaving {
    /// Has done nothing yet.
    pub fn new(leave: Leave) -> Leaving {
        Leaving { leave, deadline: None, settled: None, done: false }
    }

    /// Goes on.
    pub fn step(&mut self, now: Instant, routers: &mut impl Routers) -> Step {
        if self.done {
            return Step::Done;
        }
        if let Leave::Stop { patience, settle } = self.leave {
            let first = self.deadline.is_none();
            // Without peers there is nobody to wait for.
            if first && !routers.withdraw() {
                self.settled = Some(now);
            }
            let deadline = *self.deadline.get_or_insert(now + patience);
            if self.settled.is_none() && now < deadline && !routers.is_withdrawn() {
                return Step::Wait(deadline);
            }
            let settled = *self.settled.get_or_insert(now + settle);
            if now < settled {
                return Step::Wait(settled);
            }
        }
        routers.end(self.leave.clone());
        self.done = true;
        Step::Done
    }
}
