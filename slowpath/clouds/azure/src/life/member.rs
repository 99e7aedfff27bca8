//! This machine's entries in the pools: found, made, lost, or set `Down`.
//!
//! An `adminState` of `Down` was set by Weir if [`Kept`] records it; any other `Down` is left
//! alone. The flag is written before Azure is called. It is cleared by a query that shows the state
//! gone and that began when no write of Weir's could still set it. A process that starts after a
//! kill or a reboot therefore undoes it.
//!
//! A membership is Weir's own if the machine was in no pool when it joined. A mix (one pool by
//! another party, one by Weir) counts as another party's, and is not removed on leaving.

use std::time::Instant;

use config::checked::OnLost;

use super::words::{Admin, Call, Seen};
use super::{LOOK, LOOK_OPEN, Life, SETTLES, findings};
use crate::told::{CallError, Failure};

impl Life {
    /// Queries the membership, joins the pools, and lifts a `Down` that Weir set.
    pub(super) fn stay(&mut self, now: Instant) {
        let calm = !self.managed && !self.is_writing() && !self.is_under_way(Call::Look);
        if calm && self.informed && self.member.fresh {
            let wanted = !self.member.lost || self.settings.on_lost == OnLost::Repair;
            if !self.member.in_all() && self.able.is_ok() && wanted {
                self.join(now);
            } else if self.member.any(Admin::Down) && self.kept.down {
                self.ask(now, Call::Up);
            }
        }
        self.look(now);
    }

    fn join(&mut self, now: Instant) {
        if !self.is_due(now, Call::Join) {
            return;
        }
        self.member.joined_before = self.kept.joined;
        let nobodys = !self.member.in_any();
        self.keep(|kept| kept.joined |= nobodys);
        self.ask(now, Call::Join);
    }

    /// Processes a membership answer; `epoch` is the number of writes when the query began.
    pub(super) fn looked(
        &mut self,
        now: Instant,
        epoch: u64,
        result: Result<Vec<Seen>, CallError>,
    ) {
        let pools = match result {
            Ok(pools) => pools,
            Err(error) if error.kind == Failure::Absent && self.member.pools.is_none() => {
                return self.member.refuse(format!("not a member of the pool: {error}"));
            }
            Err(_) => return self.member.admit_unknown(),
        };
        self.following.arm(now, &pools);
        if epoch != self.member.epoch {
            return self.later(Call::Look, now);
        }
        (self.member.pools, self.member.fresh) = (Some(pools), true);
        self.sort_out();
        let began_settled =
            self.calls[Call::Look as usize].begun.is_some_and(|at| at >= self.member.settled);
        let (none, free) = (!self.member.in_any(), !self.member.any(Admin::Down));
        self.keep(|kept| {
            kept.joined &= !(none && began_settled);
            kept.down &= !(free && began_settled);
        });
        let out = !self.member.in_all() || self.member.any(Admin::Down);
        let open = out || self.kept.down || self.following.is_open();
        self.later(Call::Look, now + if open { LOOK_OPEN } else { LOOK });
    }

    /// Draws the conclusions from newly reported pools.
    fn sort_out(&mut self) {
        let (all, any, leaving) =
            (self.member.in_all(), self.member.in_any(), self.leaving.is_some());
        if any {
            (self.member.admitted, self.member.refused) = (true, None);
        } else if self.member.admitted || self.member.refused.is_none() {
            self.member.refuse("not a member of the pool".to_owned());
        }
        if all {
            (self.member.was, self.member.lost) = (true, false);
        } else if self.member.was && !self.member.lost {
            self.member.lost = true;
            if !self.managed {
                self.find(findings::lost(self.settings.on_lost));
            }
        }
        let lacks = self.managed && !all;
        let down = self.member.any(Admin::Down) && !leaving && (self.managed || !self.kept.down);
        let up = self.member.any(Admin::Up);
        self.stand(findings::NOT_IN_MODEL, || lacks.then(findings::not_in_model));
        self.stand(findings::ADMIN_DOWN, || down.then(findings::admin_down));
        self.stand(findings::ADMIN_UP, || up.then(findings::admin_up));
    }

    /// Notes that a failed write may still take effect.
    pub(super) fn unsettled(&mut self, now: Instant) {
        self.member.settled = now + SETTLES;
    }

    pub(super) fn joined(&mut self, now: Instant, result: Result<bool, CallError>) {
        self.later(Call::Look, now);
        let before = self.member.joined_before;
        match result {
            Ok(written) => {
                (self.member.admitted, self.member.refused) = (true, None);
                if !written {
                    self.keep(|kept| kept.joined = before);
                }
            }
            Err(error) => {
                // Without permission or pool the write cannot have taken effect.
                match error.kind {
                    Failure::Denied | Failure::Absent => self.keep(|kept| kept.joined = before),
                    _ => self.unsettled(now),
                }
                self.member.refused = Some(format!("not a member of the pool: {error}"));
            }
        }
    }

    /// Notes that the machine is in no pool, unless an unanswered join may still take effect.
    pub(super) fn out_of_pools(&mut self, now: Instant) {
        self.member.gone();
        let settled = now >= self.member.settled;
        self.keep(|kept| kept.joined &= !settled);
    }
}
