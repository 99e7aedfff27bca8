//! This machine's entries in the pools: found, made, lost, or set `Down`.
//!
//! Weir lifts a `Down` (changes `adminState` back to `None`) only if it has set the `Down` itself.
//! `PersistedState::down` is written before the call that sets `Down`, so that the process after a
//! kill or a reboot lifts it. The flag is cleared by a query that shows no `Down` and that began
//! when no write of Weir's could set `Down` any more.
//!
//! A membership is Weir's own if the machine was in no pool when it joined. If another party added
//! the machine to one pool and Weir to the other, both memberships count as the other party's: with
//! `remove = "own"` they are not removed on leaving.

use std::time::Instant;

use config::checked::OnLost;

use super::event::{AdminState, Call, PoolState};
use super::{Membership, POOLS_INTERVAL, POOLS_INTERVAL_UNSETTLED, WRITE_SETTLE_TIME, findings};
use crate::types::{CallError, Failure};

impl Membership {
    /// Queries the membership, joins the pools, and lifts a `Down` that Weir set.
    pub(super) fn maintain(&mut self, now: Instant) {
        let idle = !self.managed && !self.is_writing() && !self.is_in_progress(Call::ReadPools);
        if idle && self.imds_checked && self.observed.fresh {
            let permitted = !self.observed.lost || self.settings.on_lost == OnLost::Repair;
            if !self.observed.in_all() && self.able.is_ok() && permitted {
                self.join(now);
            } else if self.observed.has_state(AdminState::Down) && self.persisted.down {
                self.start(now, Call::Up);
            }
        }
        self.query_pools(now);
    }

    fn join(&mut self, now: Instant) {
        if !self.is_due(now, Call::Join) {
            return;
        }
        self.observed.joined_before = self.persisted.joined;
        let unowned = !self.observed.in_any();
        self.persist(|state| state.joined |= unowned);
        self.start(now, Call::Join);
    }

    /// Processes a membership answer; `epoch` is the number of writes started before the query. If
    /// a write was started since, the answer may be outdated, and the query is repeated.
    pub(super) fn handle_pools(
        &mut self,
        now: Instant,
        epoch: u64,
        result: Result<Vec<PoolState>, CallError>,
    ) {
        let pools = match result {
            Ok(pools) => pools,
            Err(error) if error.kind == Failure::Absent && self.observed.pools.is_none() => {
                return self.observed.set_not_member(format!("not a member of the pool: {error}"));
            }
            Err(_) => return self.observed.admit_unknown(),
        };
        self.tunnel_reports.record_arm(now, &pools);
        if epoch != self.observed.epoch {
            return self.schedule_call(Call::ReadPools, now);
        }
        (self.observed.pools, self.observed.fresh) = (Some(pools), true);
        self.update_conditions();
        let began_settled = self.calls[Call::ReadPools as usize]
            .started
            .is_some_and(|at| at >= self.observed.settled);
        let (none, free) = (!self.observed.in_any(), !self.observed.has_state(AdminState::Down));
        self.persist(|state| {
            state.joined &= !(none && began_settled);
            state.down &= !(free && began_settled);
        });
        let out_of_service = !self.observed.in_all() || self.observed.has_state(AdminState::Down);
        let unsettled = out_of_service || self.persisted.down || self.tunnel_reports.is_unsettled();
        self.schedule_call(
            Call::ReadPools,
            now + if unsettled { POOLS_INTERVAL_UNSETTLED } else { POOLS_INTERVAL },
        );
    }

    /// Updates what is known about the membership, and the findings, from the newly reported pools.
    fn update_conditions(&mut self) {
        let (all, any, leaving) =
            (self.observed.in_all(), self.observed.in_any(), self.drain.is_some());
        if any {
            (self.observed.admitted, self.observed.not_member_reason) = (true, None);
        } else if self.observed.admitted || self.observed.not_member_reason.is_none() {
            self.observed.set_not_member("not a member of the pool".to_owned());
        }
        if all {
            (self.observed.was_member, self.observed.lost) = (true, false);
        } else if self.observed.was_member && !self.observed.lost {
            self.observed.lost = true;
            if !self.managed {
                self.report(findings::lost(self.settings.on_lost));
            }
        }
        let lacks = self.managed && !all;
        let down = self.observed.has_state(AdminState::Down)
            && !leaving
            && (self.managed || !self.persisted.down);
        let up = self.observed.has_state(AdminState::Up);
        self.set_finding(findings::NOT_IN_MODEL, || lacks.then(findings::not_in_model));
        self.set_finding(findings::ADMIN_DOWN, || down.then(findings::admin_down));
        self.set_finding(findings::ADMIN_UP, || up.then(findings::admin_up));
    }

    /// Records that a failed write may still take effect.
    pub(super) fn mark_unsettled(&mut self, now: Instant) {
        self.observed.settled = now + WRITE_SETTLE_TIME;
    }

    pub(super) fn handle_joined(&mut self, now: Instant, result: Result<bool, CallError>) {
        self.schedule_call(Call::ReadPools, now);
        let before = self.observed.joined_before;
        match result {
            Ok(written) => {
                (self.observed.admitted, self.observed.not_member_reason) = (true, None);
                if !written {
                    self.persist(|state| state.joined = before);
                }
            }
            Err(error) => {
                // Without the permission or the pool, the write cannot take effect.
                match error.kind {
                    Failure::Denied | Failure::Absent => {
                        self.persist(|state| state.joined = before)
                    }
                    _ => self.mark_unsettled(now),
                }
                self.observed.not_member_reason =
                    Some(format!("not a member of the pool: {error}"));
            }
        }
    }

    /// Records that the machine has left its pools. `PersistedState::joined` stays set while a
    /// failed join may still take effect.
    pub(super) fn mark_left(&mut self, now: Instant) {
        self.observed.clear();
        let settled = now >= self.observed.settled;
        self.persist(|state| state.joined &= !settled);
    }
}
