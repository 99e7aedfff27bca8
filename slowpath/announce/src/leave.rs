//! How we go: for good, with everything withdrawn first, or to come back, with nothing said.
//! A machine without a clock: times are arguments.

use std::time::{Duration, Instant};

use bgp::peer::Stop;

use crate::routers::Routers;

/// How we go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leave {
    /// For good: all is withdrawn and, when peers were told or so much time is over, each session
    /// ended by a Cease, a hard reset (RFC 8538) where graceful restart would keep our routes.
    Stop(Duration),
    /// To come back: nobody is told, so that neighbors of graceful restart keep our routes.
    Restart,
}

impl Leave {
    /// What sessions end with.
    pub(crate) fn said(&self) -> Stop {
        match self {
            Leave::Stop(_) => Stop::Shutdown("this appliance leaves".to_owned()),
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
    done: bool,
}

impl Leaving {
    /// Has done nothing yet.
    pub fn new(leave: Leave) -> Leaving {
        Leaving { leave, deadline: None, done: false }
    }

    /// Goes on.
    pub fn step(&mut self, now: Instant, routers: &mut impl Routers) -> Step {
        if self.done {
            return Step::Done;
        }
        if let Leave::Stop(patience) = self.leave {
            let deadline = *self.deadline.get_or_insert_with(|| {
                routers.withdraw();
                now + patience
            });
            if now < deadline && !routers.is_withdrawn() {
                return Step::Wait(deadline);
            }
        }
        routers.end(self.leave.clone());
        self.done = true;
        Step::Done
    }
}
