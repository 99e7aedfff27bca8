//! The loop over all objects: whose turn it is, several at once, each one's rounds in a row.
//!
//! ```text
//!   objects that are new or changed --> due at once
//!   what the last round said        --> due then
//!   our own errors                  --> due by back-off, 3 s to 30 s
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

/// Objects that are looked after at the same time.
const AT_ONCE: usize = 8;
/// Pauses after errors of our own.
const BACK_OFF: Policy = Policy {
    first: Duration::from_secs(3),
    longest: Duration::from_secs(30),
    whole: Duration::MAX,
};
/// Without news, nobody waits for longer.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// A write to the store on its way.
pub type Write<'a> = Pin<Box<dyn Future<Output = Result<(), Unsaved>> + Send + 'a>>;

/// The store did not take a write. It is tried again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unsaved(pub String);

/// Where objects are kept.
pub trait Objects: Send + Sync {
    /// All objects of the kind, those as well that are being deleted.
    fn list(&self) -> Vec<Object>;
    /// Resolves when any of them is another than when they were last listed, or is urgent; it may
    /// do so for nothing.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
    /// Objects that somebody wants to be looked at now, each told once.
    fn urgent(&self) -> Vec<String> {
        Vec::new()
    }
    /// Keeps an object's status; well as well where the object is gone.
    fn save<'a>(&'a self, name: &'a str, status: &'a Status) -> Write<'a>;
    /// Puts [`FINALIZER`](crate::object::FINALIZER) on an object, or takes it off.
    fn hold<'a>(&'a self, name: &'a str, held: bool) -> Write<'a>;
    /// Something happened to an object.
    fn tell(&self, name: &str, event: &Event);
}

/// All that the loop needs.
#[derive(Clone)]
pub struct Run {
    /// Where objects are kept.
    pub objects: Arc<dyn Objects>,
    /// Azure for the service's side.
    pub service: Arc<dyn Arm>,
    /// Azure for the consumers' side; the same where one identity may do both.
    pub endpoint: Arc<dyn Arm>,
    /// How time passes.
    pub pause: Arc<dyn Pause>,
    /// The machine's clock, for what objects store.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// What all rounds have alike.
    pub settings: Settings,
    /// This appliance's name among those of its fleet.
    pub me: String,
    /// Who of them looks after the objects.
    pub ownership: Ownership,
}

/// An object in the queue.
#[derive(Clone, Debug)]
struct Waiting {
    /// What was wanted when its last round began.
    wanted: (u64, bool, bool),
    due: Duration,
    failures: u32,
    running: bool,
    /// It changed while a round went on.
    again: bool,
    /// Its first round of this process is still to come.
    first: bool,
}

impl Run {
    /// Until `cancel` says true. What is under way then is dropped: the next process goes on from
    /// what was kept.
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
                    // Whoever restarts us has mended something, and wants to see it.
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
                    // Who became the owner, or is it no longer, looks at everything anew.
                    let now = self.pause.now();
                    queue.values_mut().for_each(|waiting| {
                        (waiting.due, waiting.again) = (now, waiting.running);
                    });
                }
            }
        }
    }

    /// A round, and what it said kept.
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

/// A pause that is up to a quarter longer, by who waits for what and since when: the observers of a
/// fleet that began together don't ask Azure together.
fn spread(pause: Duration, of: (&str, &str, u64)) -> Duration {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    pause + pause.mul_f64((hasher.finish() % 1000) as f64 / 4000.0)
}

/// What is new or changed is due, what is gone is forgotten.
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
