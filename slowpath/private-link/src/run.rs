//! The loop over all objects: several rounds at once, but at most one per object.
//!
//! ```text
//!   new or changed objects           --> due at once
//!   result of the last round         --> due as it requires
//!   invalid object, internal errors  --> due by back-off, 3 s to 30 s
//! ```

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use azure::arm::Arm;
use clouds::asking::{Asking, Ended};
use clouds::retry::{Pause, Policy};
use tokio::sync::watch;

use crate::course::Event;
use crate::lease::{self, Lease, Ownership};
use crate::object::{Object, Status};
use crate::reconcile::{Finalizer, Next, reconcile};
use crate::time::Time;
use crate::turn::{Arms, Settings, Standing, Turn};

/// Maximum number of concurrent rounds.
const AT_ONCE: usize = 8;
/// Delays after internal errors and for invalid objects.
const BACK_OFF: Policy = Policy {
    first: Duration::from_secs(3),
    longest: Duration::from_secs(30),
    whole: Duration::MAX,
};
/// Maximum time between two rounds of an object without changes.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// A write to the store in progress.
pub type Write<'a> = Pin<Box<dyn Future<Output = Result<(), Unsaved>> + Send + 'a>>;

/// The store did not accept a write; it is repeated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsaved(pub String);

/// The store of objects.
pub trait Objects: Send + Sync {
    /// Returns all objects of the kind, including those that are being deleted.
    fn list(&self) -> Vec<Object>;
    /// Resolves when any object has changed since the last `list`, or is urgent; it may resolve
    /// spuriously.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Returns the names of objects for which a round was requested; each request is returned once.
    fn urgent(&self) -> Vec<String> {
        Vec::new()
    }
    /// Stores the status of an object; succeeds also if the object no longer exists.
    fn save<'a>(&'a self, name: &'a str, status: &'a Status) -> Write<'a>;
    /// Adds [`FINALIZER`](crate::object::FINALIZER) to an object, or removes it.
    fn hold<'a>(&'a self, name: &'a str, held: bool) -> Write<'a>;
    /// Publishes an event of an object.
    fn tell(&self, name: &str, event: &Event);
}

/// Dependencies and settings of the loop.
#[derive(Clone)]
pub struct Run {
    /// Store of the objects.
    pub objects: Arc<dyn Objects>,
    /// Azure client of the service side.
    pub service: Arc<dyn Arm>,
    /// Azure client of the consumer side; the same one if one identity has access to both.
    pub endpoint: Arc<dyn Arm>,
    /// Clock for delays.
    pub pause: Arc<dyn Pause>,
    /// Wall clock, for times stored in objects.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// Settings shared by all rounds.
    pub settings: Settings,
    /// Name of this appliance in its fleet.
    pub me: String,
    /// How the owner of the objects is determined.
    pub ownership: Ownership,
}

/// Queue entry of an object.
#[derive(Clone, Debug)]
struct Waiting {
    /// Desired state when the last round began: generation, deletion, finalizer.
    wanted: (u64, bool, bool),
    due: Duration,
    failures: u32,
    running: bool,
    /// The object changed during its round.
    again: bool,
    /// The first round of this process is still to come.
    first: bool,
}

impl Run {
    /// Runs until `cancel` becomes true. Rounds in progress are dropped; the next process continues
    /// from the stored status.
    pub async fn run(self, mut cancel: watch::Receiver<bool>) {
        let now = self.pause.now();
        let (told, standing) = match &self.ownership {
            Ownership::Named(owner) if *owner == self.me => watch::channel(Standing::Owner),
            Ownership::Named(owner) => {
                watch::channel(Standing::Observer { owner: owner.clone(), heir: false })
            }
            Ownership::Lease { zone, period } => {
                watch::channel(Lease::new(&self.me, zone, *period).standing(now))
            }
        };
        let leasing = async {
            if let Ownership::Lease { zone, period } = &self.ownership {
                let lease = Lease::new(&self.me, zone, *period);
                lease::keep(lease, &*self.service, &*self.pause, &told).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = clouds::retry::told_to_stop(&mut cancel) => {}
            () = leasing => {}
            () = self.rounds(standing) => {}
        }
    }

    async fn rounds(&self, mut standing: watch::Receiver<Standing>) {
        let mut queue: BTreeMap<String, Waiting> = BTreeMap::new();
        let mut rounds: Asking<String, (String, Next)> = Asking::default();
        loop {
            let objects = self.objects.list();
            let now = self.pause.now();
            line_up(&mut queue, &objects, now);
            for name in self.objects.urgent() {
                let Some(waiting) = queue.get_mut(&name) else { continue };
                (waiting.due, waiting.again) = (now, waiting.running);
            }
            let stands = standing.borrow_and_update().clone();
            for mut object in objects {
                let Some(waiting) = queue.get_mut(&object.name) else { continue };
                if waiting.running || waiting.due > now {
                    continue;
                }
                if rounds.under_way() == AT_ONCE {
                    break;
                }
                if waiting.first {
                    // The operator may have restarted the process after fixing a problem, so delays
                    // do not apply.
                    object.status.service.held_off = None;
                    object.status.endpoint.held_off = None;
                }
                (waiting.running, waiting.again, waiting.first) = (true, false, false);
                let (run, stands, name) = (self.clone(), stands.clone(), object.name.clone());
                rounds.begin(name, async move {
                    let next = run.round(&object, &stands).await;
                    (object.name, next)
                });
            }
            let idle = rounds.under_way() < AT_ONCE;
            let due = queue.values().filter(|waiting| !waiting.running && idle);
            let due = due.map(|waiting| waiting.due.saturating_sub(now)).min();
            tokio::select! {
                Some(ended) = rounds.next() => {
                    let (name, next) = match ended {
                        Ended::Answered(ended) => ended,
                        Ended::Broken(name, error) => {
                            tracing::error!("private link: {name}: a round broke off: {error}");
                            (name, Next::BackOff)
                        }
                    };
                    finish(&mut queue, &name, next, self.pause.now());
                }
                () = self.pause.wait(due.unwrap_or(LONGEST)) => {}
                () = self.objects.changed() => {}
                Ok(()) = standing.changed() => {
                    // After a change of ownership all objects are reconciled anew.
                    let now = self.pause.now();
                    queue.values_mut().for_each(|waiting| {
                        (waiting.due, waiting.again) = (now, waiting.running);
                    });
                }
            }
        }
    }

    /// Runs a round and stores its result.
    async fn round(&self, object: &Object, standing: &Standing) -> Next {
        let turn = Turn {
            now: (self.clock)(),
            arms: Arms { service: &*self.service, endpoint: &*self.endpoint },
            pause: &*self.pause,
            settings: &self.settings,
            standing,
        };
        let mut round = reconcile(&turn, object).await;
        if let (Standing::Observer { .. }, Next::After(pause)) = (standing, round.next) {
            round.next = Next::After(spread(pause, (&self.me, &object.name, turn.now.0)));
        }
        for event in &round.events {
            self.objects.tell(&object.name, event);
        }
        let saved = async {
            if round.status != object.status || !round.events.is_empty() {
                self.objects.save(&object.name, &round.status).await?;
            }
            match round.finalizer {
                Some(finalizer) => {
                    self.objects.hold(&object.name, finalizer == Finalizer::Hold).await
                }
                None => Ok(()),
            }
        };
        match saved.await {
            Ok(()) => round.next,
            Err(unsaved) => {
                tracing::warn!("private link: {}: its status is not kept: {unsaved}", object.name);
                Next::BackOff
            }
        }
    }
}

/// Returns a delay that is up to a quarter longer, by a hash of appliance, object and time, so that
/// the observers of a fleet do not call Azure at the same moment.
fn spread(pause: Duration, of: (&str, &str, u64)) -> Duration {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    pause + pause.mul_f64((hasher.finish() % 1000) as f64 / 4000.0)
}

/// Makes new and changed objects due, and drops the entries of deleted ones.
fn line_up(queue: &mut BTreeMap<String, Waiting>, objects: &[Object], now: Duration) {
    queue.retain(|name, waiting| {
        waiting.running || objects.iter().any(|object| object.name == *name)
    });
    for object in objects {
        let wanted = (object.generation, object.deletion.is_some(), object.held);
        let waiting = queue.entry(object.name.clone()).or_insert(Waiting {
            wanted,
            due: now,
            failures: 0,
            running: false,
            again: false,
            first: true,
        });
        if waiting.wanted != wanted {
            let again = waiting.running;
            *waiting = Waiting { wanted, due: now, failures: 0, again, ..*waiting };
        }
    }
}

fn finish(queue: &mut BTreeMap<String, Waiting>, name: &str, next: Next, now: Duration) {
    let Some(waiting) = queue.get_mut(name) else { return };
    waiting.running = false;
    let pause = match next {
        Next::Now => Duration::ZERO,
        Next::After(pause) => pause,
        Next::Never => LONGEST,
        Next::BackOff => BACK_OFF.ceiling(waiting.failures),
    };
    waiting.failures = if next == Next::BackOff { waiting.failures + 1 } else { 0 };
    waiting.due = if waiting.again { now } else { now.saturating_add(pause) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_wait_for_what_azure_asks_and_not_all_for_the_same_time() {
        let minute = Duration::from_secs(60);
        let mut all = Vec::new();
        for who in ["weir-1", "weir-2", "weir-3", "weir-4"] {
            for now in 0..100 {
                let pause = spread(minute, (who, "shop/web", now));
                assert!((minute..minute * 5 / 4).contains(&pause), "{pause:?}");
                all.push(pause);
            }
        }
        all.sort();
        all.dedup();
        assert!(all.len() > 100, "{}", all.len());
    }
}
