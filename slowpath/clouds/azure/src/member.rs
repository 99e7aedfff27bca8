//! This machine's entries in the pools: read, add, set `Down` and lift it, remove.
//!
//! A write replaces a whole interface or pool. The body that was read is written back with only the
//! intended change, and only if it was not changed since (`If-Match`). It is read again after the
//! write, because a concurrent replacement without the change would undo it without an error.

use std::time::Duration;

use clouds::failure::{Failure, Operation, Setback};
use clouds::retry::{Pause, Policy, Retry, Step};
use config::checked::MadeBy;
use serde_json::Value;

use crate::arm::{Arm, Ask};
use crate::asks;
use crate::balancer::{self, entries};
use crate::life::{Member, Seen};
use crate::long::finish;
use crate::names;
use crate::place::{Place, Pool};
use crate::told::CallError;
use edit::{administer, list, name_pools, unlist};

mod edit;
mod ownership;

pub(crate) use ownership::{own, title};

use ownership::{Change, may_join};

/// Maximum number of writes of one change that other writers may undo before it fails.
const UNDONE: u32 = 8;
/// Retry policy for conflicts with other writers, and time limit for long operations.
pub const PATIENT: Policy = Policy {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
    whole: Duration::from_secs(120),
};
/// The same while leaving.
pub const HURRIED: Policy = Policy { whole: Duration::from_secs(15), ..PATIENT };

/// Access to this machine's entries in the pools.
pub struct Membership<'a> {
    /// Resource Manager client.
    pub arm: &'a dyn Arm,
    /// The machine's place.
    pub place: &'a Place,
    /// How entries are made: by IP configuration or by address.
    pub by: MadeBy,
    /// Clock for the time between attempts.
    pub pause: &'a dyn Pause,
    /// Retry policy for conflicts with other writers, and time limit for long operations.
    pub patience: Policy,
    /// Seed of the retry jitter.
    pub seed: u64,
}

impl Membership<'_> {
    /// Reads the load balancer, whose body contains all pools.
    ///
    /// # Errors
    /// Fails if Azure does not answer.
    pub async fn look(&self) -> Result<Value, CallError> {
        let told = self.arm.get(&asks::balancer(&self.place.balancer)).await;
        told.map(|resource| resource.body).map_err(|setback| setback.error)
    }

    /// Joins all pools; returns true if anything was written. Pools that have an entry already,
    /// made in either way, are not changed.
    ///
    /// # Errors
    /// Fails if a write fails, or if a pool has members of the other kind.
    pub async fn join(&self) -> Result<bool, CallError> {
        let told = self.look().await?;
        let mut wanted = Vec::new();
        for pool in &self.place.pools {
            let entries = entries(the_pool(&told, pool)?);
            if own(&entries, pool).is_none() {
                may_join(self.by, pool, &entries)?;
                wanted.push(pool);
            }
        }
        match self.by {
            _ if wanted.is_empty() => Ok(false),
            MadeBy::Nic => {
                self.may_write()?;
                let written = self.interface(|body| name_pools(body, &wanted, true)).await?;
                for pool in wanted {
                    // There was no entry before, so a `Down` was left by an earlier one and no
                    // longer applies. If it cannot be lifted, the next query reports it.
                    let _ = self.pool(pool, |body| administer(body, pool, false)).await;
                }
                Ok(written)
            }
            MadeBy::Ip => {
                let mut written = false;
                for pool in wanted {
                    let identity = &self.place.identity;
                    // The VM id is unique, so that no other machine's entry is overwritten.
                    let name = format!("{}-{}", identity.name, identity.vm_id);
                    written |= self.pool(pool, |body| list(body, pool, &name)).await?;
                }
                Ok(written)
            }
        }
    }

    /// Sets the administrative state of this machine's entries to `Down`, or changes `Down` to
    /// `None`.
    ///
    /// # Errors
    /// Fails if a write fails, or if the entry in a pool has no such state. The other pools are
    /// written nevertheless.
    pub async fn set_down(&self, down: bool) -> Result<(), CallError> {
        let mut first = Ok(());
        for pool in &self.place.pools {
            let set = self.pool(pool, |body| administer(body, pool, down)).await;
            first = first.and(set.map(drop));
        }
        first
    }

    /// Leaves all pools. Only this machine's entries are removed, however they were made.
    ///
    /// # Errors
    /// Fails if a write fails; the other pools were left nevertheless.
    pub async fn leave(&self) -> Result<(), CallError> {
        let told = self.look().await?;
        let (mut first, mut of_interface) = (Ok(()), Vec::new());
        for pool in &self.place.pools {
            let entries = the_pool(&told, pool).map(entries).unwrap_or_default();
            match own(&entries, pool).map(|entry| entry.by) {
                Some(MadeBy::Nic) => of_interface.push(pool),
                Some(MadeBy::Ip) => {
                    let left = self.pool(pool, |body| Ok(unlist(body, pool))).await;
                    first = first.and(left.map(drop));
                }
                // The interface may name a pool that does not list it yet.
                None if self.by == MadeBy::Nic && !self.place.managed => of_interface.push(pool),
                None => {}
            }
        }
        if of_interface.is_empty() {
            return first;
        }
        self.may_write()?;
        let left = self.interface(|body| name_pools(body, &of_interface, false)).await;
        first.and(left.map(drop))
    }

    /// Fails for the interface of a scale set instance, which only the set's model can change.
    fn may_write(&self) -> Result<(), CallError> {
        if !self.place.managed {
            return Ok(());
        }
        let why = "the interface belongs to a scale set, whose model says in which pools its \
                   instances are: change the model";
        Err(names::INTERFACES_PUT.operation.failed(Failure::Invalid, "ScaleSet", why).error)
    }

    async fn interface(&self, change: impl FnMut(&mut Value) -> Change) -> Result<bool, CallError> {
        let id = &self.place.interface;
        self.change(&asks::interface(id), &asks::put_interface(id), change).await
    }

    async fn pool(
        &self,
        pool: &Pool,
        change: impl FnMut(&mut Value) -> Change,
    ) -> Result<bool, CallError> {
        self.change(&asks::pool(&pool.id), &asks::put_pool(&pool.id), change).await
    }

    /// Repeats reading and writing until nothing is left to change. Returns true if a write was
    /// attempted: if its response was lost, it is unknown whose write took effect.
    async fn change(
        &self,
        get: &Ask,
        put: &Ask,
        mut change: impl FnMut(&mut Value) -> Change,
    ) -> Result<bool, CallError> {
        let mut retry = Retry::new(self.patience, self.seed);
        let (begun, mut tried, mut writes) = (self.pause.now(), false, 0);
        loop {
            let setback = match self.once(get, put, &mut change, &mut tried).await {
                Ok(false) => return Ok(tried),
                Ok(true) if writes < UNDONE => {
                    writes += 1;
                    if writes == 1 {
                        continue;
                    }
                    undone(put.operation)
                }
                Ok(true) => return Err(undone(put.operation).error),
                Err(setback) if setback.error.kind.passes() => setback,
                Err(setback) => return Err(setback.error),
            };
            let since = self.pause.now().saturating_sub(begun);
            match retry.step(since, Failure::Transient, setback.after) {
                Step::Wait(pause) => self.pause.wait(pause).await,
                Step::GiveUp => return Err(setback.error),
            }
        }
    }

    /// Reads once, and writes if a change is needed.
    async fn once(
        &self,
        get: &Ask,
        put: &Ask,
        change: &mut impl FnMut(&mut Value) -> Change,
        tried: &mut bool,
    ) -> Change {
        let mut read = self.arm.get(get).await?;
        if !change(&mut read.body)? {
            return Ok(false);
        }
        *tried = true;
        let begun = self.arm.put(put, &read.body, read.etag.as_deref()).await?;
        finish(self.arm, begun, self.pause, self.patience.whole).await?;
        Ok(true)
    }
}

/// Returns all pools in the form that the lifecycle consumes.
pub fn seen(place: &Place, told: &Value) -> Vec<Seen> {
    let one = |pool: &Pool| match the_pool(told, pool) {
        Ok(document) => Seen {
            family: pool.family,
            member: own(&entries(document), pool).map(|e| Member { by: e.by, admin: e.admin }),
            tunnels: balancer::tunnels(document),
            probed: balancer::rules(told, &pool.id).iter().any(|rule| rule.probe.is_some()),
        },
        Err(gone) => {
            let (member, tunnels) = (None, Err(gone.message));
            Seen { family: pool.family, member, tunnels, probed: false }
        }
    };
    place.pools.iter().map(one).collect()
}

/// Returns the body of a pool from that of its load balancer.
pub(crate) fn the_pool<'a>(told: &'a Value, pool: &Pool) -> Result<&'a Value, CallError> {
    let mut all = balancer::pools(told).iter();
    let found = all.find(|p| balancer::id(p, "/id").as_ref() == Some(&pool.id));
    found.ok_or_else(|| {
        let why = format!("the load balancer has no pool {} any more", pool.id.name());
        names::POOLS_GET.operation.failed(Failure::Absent, "NoPool", why).error
    })
}

/// Returns the error for a change that other writers keep undoing.
fn undone(operation: Operation) -> Setback {
    let why = "what was written was gone again when it was read: somebody else writes the same \
               resource as a whole; see Azure's activity log for who does";
    operation.failed(Failure::Conflict, "Undone", why)
}

#[cfg(test)]
mod tests;
