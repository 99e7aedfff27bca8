//! Known state of this machine's pool entries.

use std::time::Instant;

use super::event::{AdminState, PoolState};

/// Known state of this machine's pool entries.
#[derive(Debug)]
pub(super) struct ObservedEntries {
    /// Pools as last reported.
    pub(super) pools: Option<Vec<PoolState>>,
    /// The report is newer than the last write.
    pub(super) fresh: bool,
    /// Number of writes started.
    pub(super) epoch: u64,
    /// When no write of this or an earlier process can be in progress any more.
    pub(super) settled: Instant,
    /// A member of a pool, or membership unknown: the probe reflects the appliance's ability.
    pub(super) admitted: bool,
    /// Why the machine is in no pool.
    pub(super) not_member_reason: Option<String>,
    /// The machine was a member of all pools, by this process or before.
    pub(super) was_member: bool,
    /// An entry was removed by another party.
    pub(super) lost: bool,
    /// Value of `PersistedState::joined` when the join was started.
    pub(super) joined_before: bool,
}

impl ObservedEntries {
    pub(super) fn unknown(settled: Instant) -> ObservedEntries {
        ObservedEntries {
            pools: None,
            fresh: false,
            epoch: 0,
            settled,
            admitted: false,
            not_member_reason: None,
            was_member: false,
            lost: false,
            joined_before: false,
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &PoolState> {
        self.pools.iter().flatten().filter(|pool| pool.member.is_some())
    }

    pub(super) fn in_all(&self) -> bool {
        let pools = self.pools.as_deref().unwrap_or_default();
        !pools.is_empty() && pools.iter().all(|pool| pool.member.is_some())
    }

    pub(super) fn in_any(&self) -> bool {
        self.entries().next().is_some()
    }

    /// Returns true if one of the entries has this administrative state.
    pub(super) fn has_state(&self, admin: AdminState) -> bool {
        self.entries().any(|pool| pool.member.is_some_and(|member| member.admin == admin))
    }

    /// Returns true if a report newer than the last write shows all entries `Down`, or none: no new
    /// flows arrive.
    pub(super) fn takes_no_new_flows(&self) -> bool {
        let down =
            |pool: &PoolState| pool.member.is_some_and(|member| member.admin == AdminState::Down);
        self.fresh && self.entries().all(down)
    }

    /// Returns true if one of the entries can be set `Down` with effect.
    pub(super) fn probed(&self) -> bool {
        self.entries().any(|pool| pool.probed)
    }

    /// Lets the appliance's ability alone decide the probe, unless the machine is known to be in no
    /// pool.
    pub(super) fn admit_unknown(&mut self) {
        self.admitted |= self.not_member_reason.is_none();
    }

    /// Notes that the machine is known to be in no pool.
    pub(super) fn set_not_member(&mut self, reason: String) {
        (self.admitted, self.not_member_reason) = (false, Some(reason));
    }

    /// Notes that a write was started, which makes earlier reports outdated.
    pub(super) fn start_write(&mut self) {
        self.epoch += 1;
        self.fresh = false;
    }

    /// Notes that the machine leaves by itself, so that the membership does not count as lost.
    pub(super) fn expect_removal(&mut self) {
        (self.was_member, self.lost) = (false, false);
    }

    pub(super) fn clear(&mut self) {
        self.pools = None;
        self.set_not_member("not a member of the pool: this machine left it".to_owned());
    }
}
