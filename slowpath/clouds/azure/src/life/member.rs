//! Our entries in the pools: found or made, lost, held down.
//!
//! `adminState` `Down` is ours where [`Kept`] says so, else somebody else's, who is left alone. It
//! is kept before Azure is asked for it, and until a look shows it gone that began when nothing of
//! ours could still bring it: so whoever comes back after a kill or a reboot undoes it.
//!
//! A membership is ours where nobody had made one when we joined. A mix (one pool by somebody
//! else, one by us) counts as somebody else's: it is left when we leave.

use std::time::Instant;

use config::checked::OnLost;

use super::words::{Admin, Call, Seen};
use super::{LOOK, LOOK_OPEN, Life, SETTLES, findings};
use crate::told::{CallError, Failure};

impl Life {
    /// Looks, joins, and lifts what held us down.
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

    /// A look that began when `epoch` writes had been asked for.
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

    /// What the pools that were just told mean.
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

    /// A write that could bring what is kept as ours came to nothing, for all that is known.
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
                // Without permission or pool it can't have taken effect.
                match error.kind {
                    Failure::Denied | Failure::Absent => self.keep(|kept| kept.joined = before),
                    _ => self.unsettled(now),
                }
                self.member.refused = Some(format!("not a member of the pool: {error}"));
            }
        }
    }

    /// We are in no pool any more, unless a join that nobody answered is still on its way.
    pub(super) fn out_of_pools(&mut self, now: Instant) {
        self.member.gone();
        let settled = now >= self.member.settled;
        self.keep(|kept| kept.joined &= !settled);
    }
}
