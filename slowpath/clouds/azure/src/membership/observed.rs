//! What is known about this machine's pool entries.

use std::time::Instant;

use super::event::{AdminState, PoolState};

/// What is known about this machine's pool entries.
#[derive(Debug)]
pub(super) struct ObservedEntries {
    /// Pools as last reported; `None` before the first report, and after leaving.
    pub(super) pools: Option<Vec<PoolState>>,
    /// The query for `pools` began after the last write.
    pub(super) fresh: bool,
    /// Number of writes started.
    pub(super) epoch: u64,
    /// Time from which no failed write, and no write of an earlier process, can take effect.
    pub(super) settled: Instant,
    /// The machine is a member of a pool, or its membership is unknown: the probe reflects the
    /// appliance's ability.
    pub(super) admitted: bool,
    /// Why the machine is in no pool.
    pub(super) not_member_reason: Option<String>,
    /// A query of this process has shown the machine in all pools.
    pub(super) was_member: bool,
    /// An entry was removed by another party.
    pub(super) lost: bool,
    /// Value of `PersistedState::joined` before the last join, restored if that wrote nothing.
    pub(super) joined_before: bool,
}

impl ObservedEntries {
    /// Returns the state before the first query.
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

    /// Returns the reported pools in which this machine has an entry.
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

    /// Returns true if the report is newer than the last write and shows no entry, or all entries
    /// `Down`: no new flows arrive.
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

    /// Records that the machine is known to be in no pool.
    pub(super) fn set_not_member(&mut self, reason: String) {
        (self.admitted, self.not_member_reason) = (false, Some(reason));
    }

    /// Records that a write was started, which makes earlier reports outdated.
    pub(super) fn start_write(&mut self) {
        self.epoch += 1;
        self.fresh = false;
    }

    /// Records that Weir removes the membership, so that it does not count as lost.
    pub(super) fn expect_removal(&mut self) {
        (self.was_member, self.lost) = (false, false);
    }

    /// Records that the machine has left its pools.
    pub(super) fn clear(&mut self) {
        self.pools = None;
        self.set_not_member("not a member of the pool: this machine left it".to_owned());
    }
}
