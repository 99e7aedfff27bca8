//! How we go: for good, with everything withdrawn first, or to come back, with nothing said.
//! A machine without a clock: times are arguments.

use std::time::Instant;

use crate::routers::{Leave, Routers};

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
