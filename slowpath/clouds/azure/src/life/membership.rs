//! What is known of our entries in the pools.

use std::time::Instant;

use super::words::{Admin, Seen};

/// What is known of it.
#[derive(Debug)]
pub(super) struct Membership {
    /// As they were told last.
    pub(super) pools: Option<Vec<Seen>>,
    /// They were told after our last write.
    pub(super) fresh: bool,
    /// How many writes were asked for.
    pub(super) epoch: u64,
    /// When no write of ours or of an earlier process can be on its way any more.
    pub(super) settled: Instant,
    /// A member of a pool, or not told: the probe tells our ability.
    pub(super) admitted: bool,
    /// Why we are a member of none.
    pub(super) refused: Option<String>,
    /// We were a member of all, by our doing or found so.
    pub(super) was: bool,
    /// Somebody else took it away.
    pub(super) lost: bool,
    /// What was kept as our own when we asked to join.
    pub(super) joined_before: bool,
}

impl Membership {
    pub(super) fn unknown(settled: Instant) -> Membership {
        Membership {
            pools: None,
            fresh: false,
            epoch: 0,
            settled,
            admitted: false,
            refused: None,
            was: false,
            lost: false,
            joined_before: false,
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Seen> {
        self.pools.iter().flatten().filter(|pool| pool.member.is_some())
    }

    pub(super) fn in_all(&self) -> bool {
        let pools = self.pools.as_deref().unwrap_or_default();
        !pools.is_empty() && pools.iter().all(|pool| pool.member.is_some())
    }

    pub(super) fn in_any(&self) -> bool {
        self.entries().next().is_some()
    }

    /// An entry of ours has this administrative state.
    pub(super) fn any(&self, admin: Admin) -> bool {
        self.entries().any(|pool| pool.member.is_some_and(|member| member.admin == admin))
    }

    /// All entries of ours are held down, or there are none: no new flows come.
    pub(super) fn is_out(&self) -> bool {
        let down = |pool: &Seen| pool.member.is_some_and(|member| member.admin == Admin::Down);
        self.fresh && self.entries().all(down)
    }

    /// An entry of ours is one that an administrative state can hold down.
    pub(super) fn probed(&self) -> bool {
        self.entries().any(|pool| pool.probed)
    }

    /// Not told whether we are a member: our ability alone counts.
    pub(super) fn admit_unknown(&mut self) {
        self.admitted |= self.refused.is_none();
    }

    /// Known to be a member of none.
    pub(super) fn refuse(&mut self, why: String) {
        (self.admitted, self.refused) = (false, Some(why));
    }

    /// A write is asked for: what was seen before says nothing now.
    pub(super) fn writes(&mut self) {
        self.epoch += 1;
        self.fresh = false;
    }

    /// We go by our own doing: nobody takes anything away.
    pub(super) fn goes(&mut self) {
        (self.was, self.lost) = (false, false);
    }

    pub(super) fn gone(&mut self) {
        self.pools = None;
        self.refuse("not a member of the pool: this machine left it".to_owned());
    }
}
