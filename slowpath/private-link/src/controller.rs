//! The loop over all objects: several rounds at once, but at most one per object.
//!
//! ```text
//!   new or changed object, requested round, new owner  --> due at once
//!   result of the last round                           --> due after the delay that it requires
//!   invalid object, failed write to the store, panic   --> due after a back-off, 3 s to 30 s
//! ```

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use azure::arm::Arm;
use clouds::calls::{CompletedCall, PendingCalls};
use clouds::retry::{Pause, Policy};
use tokio::sync::watch;

use crate::context::{ArmClients, Role, RoundContext, Settings};
use crate::lease::{self, Lease, Ownership};
use crate::object::{Object, Status};
use crate::reconcile::{Finalizer, Next, reconcile};
use crate::round::Event;
use crate::time::Time;

/// Maximum number of concurrent rounds.
const MAX_CONCURRENT_ROUNDS: usize = 8;
/// Back-off after a round that panicked, whose result was not stored, or whose object is invalid.
const BACKOFF: Policy = Policy {
    first_pause: Duration::from_secs(3),
    max_pause: Duration::from_secs(30),
    max_elapsed: Duration::MAX,
};
/// Delay of the next round of an object for which nothing is left to do, and maximum time that the
/// loop waits.
const MAX_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// A write to the store in progress.
pub type StoreFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send + 'a>>;

/// The store did not accept a write; the round is repeated after a back-off delay.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// The store of objects.
pub trait ObjectStore: Send + Sync {
    /// Returns all objects of the kind, including those that are being deleted.
    fn list(&self) -> Vec<Object>;
    /// Resolves when any object has changed since the last `list`, or a round was requested. May
    /// resolve without cause.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Returns the names of objects for which a round was requested; each request is returned once.
    fn take_urgent(&self) -> Vec<String> {
        Vec::new()
    }
    /// Stores the status of an object; succeeds also if the object no longer exists.
    fn save_status<'a>(&'a self, name: &'a str, status: &'a Status) -> StoreFuture<'a>;
    /// Adds [`FINALIZER`](crate::object::FINALIZER) to an object, or removes it.
    fn set_finalizer<'a>(&'a self, name: &'a str, has_finalizer: bool) -> StoreFuture<'a>;
    /// Publishes an event of an object.
    fn record_event(&self, name: &str, event: &Event);
}

/// Dependencies and settings of the loop.
#[derive(Clone)]
pub struct Controller {
    /// Store of the objects.
    pub objects: Arc<dyn ObjectStore>,
    /// Azure client of the service side.
    pub service: Arc<dyn Arm>,
    /// Azure client of the consumer side; the same as `service` if one identity has access to both
    /// sides.
    pub endpoint: Arc<dyn Arm>,
    /// Clock for delays.
    pub pause: Arc<dyn Pause>,
    /// Wall clock, for times stored in objects.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// Settings shared by all rounds.
    pub settings: Settings,
    /// Name of this appliance in its fleet.
    pub appliance: String,
    /// How the owner of the objects is determined.
    pub ownership: Ownership,
}

/// Queue entry of an object.
#[derive(Clone, Debug)]
struct QueueEntry {
    /// Desired state as last listed: generation, and whether the object is being deleted and has
    /// the finalizer.
    desired: (u64, bool, bool),
    /// When the next round is due, on the clock of [`Controller::pause`].
    due: Duration,
    /// Number of consecutive rounds that ended with [`Next::BackOff`].
    failures: u32,
    running: bool,
    /// A round became due during the one in progress, and starts right after it.
    again: bool,
    /// This process has started no round of the object yet.
    first: bool,
}

impl Controller {
    /// Runs until `cancel` becomes true. Rounds in progress are dropped; the next process continues
    /// from the stored status.
    pub async fn run(self, mut cancel: watch::Receiver<bool>) {
        let now = self.pause.now();
        let (role_sender, role) = match &self.ownership {
            Ownership::Named(owner) if *owner == self.appliance => watch::channel(Role::Owner),
            Ownership::Named(owner) => {
                watch::channel(Role::Observer { owner: owner.clone(), candidate: false })
            }
            Ownership::Lease { zone, period } => {
                watch::channel(Lease::new(&self.appliance, zone, *period).role(now))
            }
        };
        let lease_task = async {
            if let Ownership::Lease { zone, period } = &self.ownership {
                let lease = Lease::new(&self.appliance, zone, *period);
                lease::run(lease, &*self.service, &*self.pause, &role_sender).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = clouds::retry::cancelled(&mut cancel) => {}
            () = lease_task => {}
            () = self.rounds(role) => {}
        }
    }

    /// Runs rounds as they are due; does not return.
    async fn rounds(&self, mut role: watch::Receiver<Role>) {
        let mut queue: BTreeMap<String, QueueEntry> = BTreeMap::new();
        let mut rounds: PendingCalls<String, (String, Next)> = PendingCalls::default();
        loop {
            let objects = self.objects.list();
            let now = self.pause.now();
            update_queue(&mut queue, &objects, now);
            for name in self.objects.take_urgent() {
                let Some(entry) = queue.get_mut(&name) else { continue };
                (entry.due, entry.again) = (now, entry.running);
            }
            let current_role = role.borrow_and_update().clone();
            for mut object in objects {
                let Some(entry) = queue.get_mut(&object.name) else { continue };
                if entry.running || entry.due > now {
                    continue;
                }
                if rounds.in_progress() == MAX_CONCURRENT_ROUNDS {
                    break;
                }
                if entry.first {
                    // The operator may have restarted the process after fixing a problem, so delays
                    // do not apply.
                    object.status.service.backoff = None;
                    object.status.endpoint.backoff = None;
                }
                (entry.running, entry.again, entry.first) = (true, false, false);
                let (controller, current_role, name) =
                    (self.clone(), current_role.clone(), object.name.clone());
                rounds.start(name, async move {
                    let next = controller.round(&object, &current_role).await;
                    (object.name, next)
                });
            }
            let has_capacity = rounds.in_progress() < MAX_CONCURRENT_ROUNDS;
            let due = queue.values().filter(|entry| !entry.running && has_capacity);
            let due = due.map(|entry| entry.due.saturating_sub(now)).min();
            tokio::select! {
                Some(ended) = rounds.next() => {
                    let (name, next) = match ended {
                        CompletedCall::Answered(ended) => ended,
                        CompletedCall::Panicked(name, error) => {
                            tracing::error!(
                                event = "private_link_panicked",
                                object = %name,
                                %error,
                                "private link round panicked"
                            );
                            (name, Next::BackOff)
                        }
                    };
                    finish(&mut queue, &name, next, self.pause.now());
                }
                () = self.pause.wait(due.unwrap_or(MAX_INTERVAL)) => {}
                () = self.objects.changed() => {}
                Ok(()) = role.changed() => {
                    // After a change of ownership all objects are reconciled anew.
                    let now = self.pause.now();
                    queue.values_mut().for_each(|entry| {
                        (entry.due, entry.again) = (now, entry.running);
                    });
                }
            }
        }
    }

    /// Runs a round and stores its result. Returns when the next round is due.
    async fn round(&self, object: &Object, role: &Role) -> Next {
        let context = RoundContext {
            now: (self.clock)(),
            clients: ArmClients { service: &*self.service, endpoint: &*self.endpoint },
            pause: &*self.pause,
            settings: &self.settings,
            role,
        };
        let mut round = reconcile(&context, object).await;
        if let (Role::Observer { .. }, Next::After(pause)) = (role, round.next) {
            round.next =
                Next::After(jittered(pause, (&self.appliance, &object.name, context.now.0)));
        }
        for event in &round.events {
            self.objects.record_event(&object.name, event);
        }
        let saved = async {
            if round.status != object.status || !round.events.is_empty() {
                self.objects.save_status(&object.name, &round.status).await?;
            }
            match round.finalizer {
                Some(finalizer) => {
                    self.objects.set_finalizer(&object.name, finalizer == Finalizer::Add).await
                }
                None => Ok(()),
            }
        };
        match saved.await {
            Ok(()) => round.next,
            Err(error) => {
                tracing::warn!(
                    event = "private_link_unstored",
                    object = %object.name,
                    %error,
                    "private link status not stored"
                );
                Next::BackOff
            }
        }
    }
}

/// Returns a delay that is up to a quarter longer, by a hash of appliance, object and time, so that
/// the observers of a fleet do not call Azure at the same moment.
fn jittered(pause: Duration, of: (&str, &str, u64)) -> Duration {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    pause + pause.mul_f64((hasher.finish() % 1000) as f64 / 4000.0)
}

/// Makes new and changed objects due, and drops the entries of deleted ones.
fn update_queue(queue: &mut BTreeMap<String, QueueEntry>, objects: &[Object], now: Duration) {
    queue.retain(|name, entry| entry.running || objects.iter().any(|object| object.name == *name));
    for object in objects {
        let desired = (object.generation, object.deletion.is_some(), object.has_finalizer);
        let entry = queue.entry(object.name.clone()).or_insert(QueueEntry {
            desired,
            due: now,
            failures: 0,
            running: false,
            again: false,
            first: true,
        });
        if entry.desired != desired {
            let again = entry.running;
            *entry = QueueEntry { desired, due: now, failures: 0, again, ..*entry };
        }
    }
}

/// Sets when the next round of an object is due, after a round has ended.
fn finish(queue: &mut BTreeMap<String, QueueEntry>, name: &str, next: Next, now: Duration) {
    let Some(entry) = queue.get_mut(name) else { return };
    entry.running = false;
    let pause = match next {
        Next::Now => Duration::ZERO,
        Next::After(pause) => pause,
        Next::Never => MAX_INTERVAL,
        Next::BackOff => BACKOFF.ceiling(entry.failures),
    };
    entry.failures = if next == Next::BackOff { entry.failures + 1 } else { 0 };
    entry.due = if entry.again { now } else { now.saturating_add(pause) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observer_delays_have_jitter_above_the_minimum() {
        let minute = Duration::from_secs(60);
        let mut all = Vec::new();
        for appliance in ["weir-1", "weir-2", "weir-3", "weir-4"] {
            for now in 0..100 {
                let pause = jittered(minute, (appliance, "shop/web", now));
                assert!((minute..minute * 5 / 4).contains(&pause), "{pause:?}");
                all.push(pause);
            }
        }
        all.sort();
        all.dedup();
        assert!(all.len() > 100, "{}", all.len());
    }
}
