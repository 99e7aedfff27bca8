//! This machine's entries in the pools: read, add, set to `Down` or back to `None`, remove.
//!
//! A write replaces a whole interface or pool. The body that was read is written back with only the
//! intended change, and only if the resource was not changed since (`If-Match`). After the write
//! the resource is read again, because another writer may have replaced it by a body without the
//! change, and Azure reports no error for that.

use std::time::Duration;

use clouds::failure::{AttemptError, Failure, Operation};
use clouds::retry::{Pause, Policy, Retry, Step};
use config::checked::MembershipMode;
use serde_json::Value;

use crate::arm::{Arm, ArmRequest};
use crate::balancer::{self, entries};
use crate::location::{Location, Pool};
use crate::long_running::finish;
use crate::membership::{Member, PoolState};
use crate::operations;
use crate::requests;
use crate::types::CallError;
use edit::{add_address, remove_address, set_admin_state, set_pool_references};

mod edit;
mod ownership;

pub(crate) use ownership::{display_name, own_entry};

use ownership::{Change, check_membership_mode};

/// Maximum number of writes of one change that other writers may undo before the change fails.
const MAX_LOST_WRITES: u32 = 8;
/// Retry policy for conflicts with other writers; `max_elapsed` also limits the wait for a
/// long-running operation.
pub const CONFLICT_POLICY: Policy = Policy {
    first_pause: Duration::from_millis(500),
    max_pause: Duration::from_secs(10),
    max_elapsed: Duration::from_secs(120),
};
/// Policy while leaving: like [`CONFLICT_POLICY`], for at most 15 s.
pub const DRAIN_POLICY: Policy = Policy { max_elapsed: Duration::from_secs(15), ..CONFLICT_POLICY };

/// Access to this machine's entries in the pools.
pub struct PoolEntries<'a> {
    /// Resource Manager client.
    pub arm: &'a dyn Arm,
    /// The machine's location at Azure.
    pub location: &'a Location,
    /// How entries are made: by IP configuration or by address.
    pub mode: MembershipMode,
    /// Clock for the time between attempts.
    pub pause: &'a dyn Pause,
    /// Retry policy for conflicts with other writers; `max_elapsed` also limits the wait for a
    /// long-running operation.
    pub policy: Policy,
    /// Seed of the retry jitter.
    pub seed: u64,
}

impl PoolEntries<'_> {
    /// Reads the load balancer, whose body contains all pools.
    ///
    /// # Errors
    /// Fails if Azure does not answer.
    pub async fn read_balancer(&self) -> Result<Value, CallError> {
        let response = self.arm.get(&requests::balancer(&self.location.balancer)).await;
        response.map(|resource| resource.body).map_err(|failed| failed.error)
    }

    /// Joins all pools; returns true if anything was written. Pools that already have an entry of
    /// this machine, by IP configuration or by address, are not changed.
    ///
    /// # Errors
    /// Fails if a write fails, or if a pool has members of the other kind.
    pub async fn join(&self) -> Result<bool, CallError> {
        let balancer = self.read_balancer().await?;
        let mut to_join = Vec::new();
        for pool in &self.location.pools {
            let entries = entries(find_pool(&balancer, pool)?);
            if own_entry(&entries, pool).is_none() {
                check_membership_mode(self.mode, pool, &entries)?;
                to_join.push(pool);
            }
        }
        match self.mode {
            _ if to_join.is_empty() => Ok(false),
            MembershipMode::Nic => {
                self.check_writable()?;
                let written =
                    self.change_interface(|body| set_pool_references(body, &to_join, true)).await?;
                for pool in to_join {
                    // There was no entry before, so a `Down` is left from an earlier entry and no
                    // longer applies. If it cannot be lifted, the next query reports it.
                    let _ = self.change_pool(pool, |body| set_admin_state(body, pool, false)).await;
                }
                Ok(written)
            }
            MembershipMode::Ip => {
                let mut written = false;
                for pool in to_join {
                    let identity = &self.location.identity;
                    // The VM id makes the name unique, so no other machine's entry is overwritten.
                    let name = format!("{}-{}", identity.name, identity.vm_id);
                    written |=
                        self.change_pool(pool, |body| add_address(body, pool, &name)).await?;
                }
                Ok(written)
            }
        }
    }

    /// Sets the administrative state of this machine's entries to `Down`, or if `down` is false
    /// changes `Down` to `None`.
    ///
    /// # Errors
    /// Fails if a write fails, or if the entry in a pool has no such state. The other pools are
    /// written nevertheless.
    pub async fn set_down(&self, down: bool) -> Result<(), CallError> {
        let mut first = Ok(());
        for pool in &self.location.pools {
            let set = self.change_pool(pool, |body| set_admin_state(body, pool, down)).await;
            first = first.and(set.map(drop));
        }
        first
    }

    /// Leaves all pools: removes this machine's entries, by interface and by address.
    ///
    /// # Errors
    /// Fails if Azure does not answer, if a write fails, or if a scale set's model owns the
    /// interface. Once the load balancer was read, entries by address are removed nevertheless.
    pub async fn leave(&self) -> Result<(), CallError> {
        let balancer = self.read_balancer().await?;
        let (mut first, mut of_interface) = (Ok(()), Vec::new());
        for pool in &self.location.pools {
            let entries = find_pool(&balancer, pool).map(entries).unwrap_or_default();
            match own_entry(&entries, pool).map(|entry| entry.mode) {
                Some(MembershipMode::Nic) => of_interface.push(pool),
                Some(MembershipMode::Ip) => {
                    let left = self.change_pool(pool, |body| Ok(remove_address(body, pool))).await;
                    first = first.and(left.map(drop));
                }
                // The interface may refer to a pool whose body does not list the interface yet.
                None if self.mode == MembershipMode::Nic && !self.location.managed => {
                    of_interface.push(pool)
                }
                None => {}
            }
        }
        if of_interface.is_empty() {
            return first;
        }
        self.check_writable()?;
        let remove = |body: &mut Value| set_pool_references(body, &of_interface, false);
        let left = self.change_interface(remove).await;
        first.and(left.map(drop))
    }

    /// Fails for the interface of a scale set instance, which only the set's model can change.
    fn check_writable(&self) -> Result<(), CallError> {
        if !self.location.managed {
            return Ok(());
        }
        let why = "the interface belongs to a scale set, whose model determines the pools of its \
                   instances: change the model";
        Err(operations::INTERFACES_PUT.operation.failed(Failure::Invalid, "ScaleSet", why).error)
    }

    async fn change_interface(
        &self,
        change: impl FnMut(&mut Value) -> Change,
    ) -> Result<bool, CallError> {
        let id = &self.location.interface;
        self.change(&requests::interface(id), &requests::put_interface(id), change).await
    }

    async fn change_pool(
        &self,
        pool: &Pool,
        change: impl FnMut(&mut Value) -> Change,
    ) -> Result<bool, CallError> {
        self.change(&requests::pool(&pool.id), &requests::put_pool(&pool.id), change).await
    }

    /// Repeats reading and writing until nothing is left to change. Returns true if any write was
    /// attempted, because a write whose response was lost may have made the change.
    async fn change(
        &self,
        get: &ArmRequest,
        put: &ArmRequest,
        mut change: impl FnMut(&mut Value) -> Change,
    ) -> Result<bool, CallError> {
        let mut retry = Retry::new(self.policy, self.seed);
        let (started, mut attempted, mut writes) = (self.pause.now(), false, 0);
        loop {
            let failed = match self.attempt(get, put, &mut change, &mut attempted).await {
                Ok(false) => return Ok(attempted),
                Ok(true) if writes < MAX_LOST_WRITES => {
                    writes += 1;
                    if writes == 1 {
                        continue;
                    }
                    overwritten(put.operation)
                }
                Ok(true) => return Err(overwritten(put.operation).error),
                Err(failed) if failed.error.kind.is_temporary() => failed,
                Err(failed) => return Err(failed.error),
            };
            let since = self.pause.now().saturating_sub(started);
            match retry.step(since, Failure::Transient, failed.after) {
                Step::Wait(pause) => self.pause.wait(pause).await,
                Step::GiveUp => return Err(failed.error),
            }
        }
    }

    /// Reads once, and writes if a change is needed. Returns true if a write was made.
    async fn attempt(
        &self,
        get: &ArmRequest,
        put: &ArmRequest,
        change: &mut impl FnMut(&mut Value) -> Change,
        attempted: &mut bool,
    ) -> Change {
        let mut read = self.arm.get(get).await?;
        if !change(&mut read.body)? {
            return Ok(false);
        }
        *attempted = true;
        let outcome = self.arm.put(put, &read.body, read.etag.as_deref()).await?;
        finish(self.arm, outcome, self.pause, self.policy.max_elapsed).await?;
        Ok(true)
    }
}

/// Returns all pools as the state machine consumes them.
pub fn pool_states(location: &Location, balancer: &Value) -> Vec<PoolState> {
    let one = |pool: &Pool| match find_pool(balancer, pool) {
        Ok(document) => PoolState {
            family: pool.family,
            member: own_entry(&entries(document), pool)
                .map(|e| Member { mode: e.mode, admin: e.admin }),
            tunnels: balancer::tunnels(document),
            probed: balancer::rules(balancer, &pool.id).iter().any(|rule| rule.probe.is_some()),
        },
        Err(gone) => {
            let (member, tunnels) = (None, Err(gone.message));
            PoolState { family: pool.family, member, tunnels, probed: false }
        }
    };
    location.pools.iter().map(one).collect()
}

/// Returns the body of a pool from that of its load balancer.
pub(crate) fn find_pool<'a>(balancer: &'a Value, pool: &Pool) -> Result<&'a Value, CallError> {
    let mut all = balancer::pools(balancer).iter();
    let found = all.find(|p| balancer::id(p, "/id").as_ref() == Some(&pool.id));
    found.ok_or_else(|| {
        let why = format!("the load balancer no longer has pool {}", pool.id.name());
        operations::POOLS_GET.operation.failed(Failure::Absent, "NoPool", why).error
    })
}

/// Returns the error for a change that another writer has undone.
fn overwritten(operation: Operation) -> AttemptError {
    let why = "the change was overwritten: another party writes the same resource as a whole; find \
               it in Azure's activity log";
    operation.failed(Failure::Conflict, "Incomplete", why)
}

#[cfg(test)]
mod tests;
