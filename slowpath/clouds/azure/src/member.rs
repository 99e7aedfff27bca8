//! Our entries in the pools: read, made, taken down and up, and removed.
//!
//! A write replaces the whole of an interface or a pool. So what was read is what is written, with
//! our change and all else as it was, and only if nobody wrote since (`If-Match`). What was written
//! is read again: somebody's replacement that knew nothing of ours would undo it without an error.

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

/// Writes of one change that others undid, at most: then people should know.
const UNDONE: u32 = 8;
/// With others who write the same, and with an operation that goes on at Azure.
pub const PATIENT: Policy = Policy {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
    whole: Duration::from_secs(120),
};
/// The same for who leaves.
pub const HURRIED: Policy = Policy { whole: Duration::from_secs(15), ..PATIENT };

/// Our entries in the pools.
pub struct Membership<'a> {
    /// Whom to ask.
    pub arm: &'a dyn Arm,
    /// Where we belong.
    pub place: &'a Place,
    /// How we are to be in the pools.
    pub by: MadeBy,
    /// How time passes.
    pub pause: &'a dyn Pause,
    /// With others who write the same, and with operations that go on at Azure.
    pub patience: Policy,
    /// Of jitter.
    pub seed: u64,
}

impl Membership<'_> {
    /// The load balancer's document, which tells of all pools.
    ///
    /// # Errors
    /// Azure didn't tell.
    pub async fn look(&self) -> Result<Value, CallError> {
        let told = self.arm.get(&asks::balancer(&self.place.balancer)).await;
        told.map(|resource| resource.body).map_err(|setback| setback.error)
    }

    /// Is in all pools afterwards; whether anything had to be written. Where we are in one already,
    /// however, nothing is touched.
    ///
    /// # Errors
    /// Azure refused, or others are in a pool by the other way.
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
                    // Before there was no entry, so a `Down` is what an earlier one left: nobody
                    // means it now. One that can't be lifted is told by the next look.
                    let _ = self.pool(pool, |body| administer(body, pool, false)).await;
                }
                Ok(written)
            }
            MadeBy::Ip => {
                let mut written = false;
                for pool in wanted {
                    let identity = &self.place.identity;
                    // Unique for ever: who is there by the same name would be overwritten.
                    let name = format!("{}-{}", identity.name, identity.vm_id);
                    written |= self.pool(pool, |body| list(body, pool, &name)).await?;
                }
                Ok(written)
            }
        }
    }

    /// Our entries' administrative state is `Down` afterwards, whatever it was; or `Down` no more.
    ///
    /// # Errors
    /// Azure refused, or a pool lists us in no way that has such a state. The other pools are
    /// written all the same.
    pub async fn set_down(&self, down: bool) -> Result<(), CallError> {
        let mut first = Ok(());
        for pool in &self.place.pools {
            let set = self.pool(pool, |body| administer(body, pool, down)).await;
            first = first.and(set.map(drop));
        }
        first
    }

    /// Is in no pool afterwards. Only our entries are removed, by whichever way they are there.
    ///
    /// # Errors
    /// Azure refused; we have left all other pools.
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
                // The interface may name a pool that doesn't list it yet.
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

    /// An interface of a scale set is its model's.
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

    /// Reads and writes until there is nothing left to change. True when we tried to write: an
    /// answer that was lost doesn't tell whose work it is that is there now.
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

    /// One reading, and one write where it was not as wanted.
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

/// All pools as the lifecycle sees them.
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

/// A pool's document in its load balancer's.
pub(crate) fn the_pool<'a>(told: &'a Value, pool: &Pool) -> Result<&'a Value, CallError> {
    let mut all = balancer::pools(told).iter();
    let found = all.find(|p| balancer::id(p, "/id").as_ref() == Some(&pool.id));
    found.ok_or_else(|| {
        let why = format!("the load balancer has no pool {} any more", pool.id.name());
        names::POOLS_GET.operation.failed(Failure::Absent, "NoPool", why).error
    })
}

/// Others' writes undo ours, again and again.
fn undone(operation: Operation) -> Setback {
    let why = "what was written was gone again when it was read: somebody else writes the same \
               resource as a whole; see Azure's activity log for who does";
    operation.failed(Failure::Conflict, "Undone", why)
}

#[cfg(test)]
mod tests;
