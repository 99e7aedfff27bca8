//! Private link objects in the store: desired state, status and events.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use config::checked::Config;
use config::private_link::Home;
use parking_lot::Mutex;
use private_link::Event;
use private_link::object::{FINALIZER, Object as Link, Status, Truth};
use private_link::run::{Objects, Unsaved, Write};
use private_link::time::Time;
use serde::{Deserialize, Serialize};
use state::name::Precedence;
use state::object::{self, Change, Key, Object, Spec, Why};
use state::store::Order;
use tokio::sync::{Notify, watch};

use super::shadowed::{self, heard, is_held};
use crate::sources::desired::{self, Store};

/// Maximum number of events stored with an object.
const EVENTS: usize = 16;

/// State stored with an object beside its status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Memory {
    /// When the object was first reconciled.
    created: Option<Time>,
    status: Status,
    events: Vec<Told>,
}

/// An event of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// Time of the event.
    pub at: Time,
    /// Whether an operator may have to act.
    pub warning: bool,
    /// Reason in one word, for programs.
    pub reason: String,
    /// Description in a sentence, for people.
    pub message: String,
    /// Number of consecutive occurrences; `at` is the time of the last one.
    #[serde(default = "once")]
    pub times: u64,
}

fn once() -> u64 {
    1
}

/// Appends an event. A repetition of the last one increments its count instead.
fn add(events: &mut Vec<Told>, new: Told) {
    match events.last_mut() {
        Some(last) if (&last.reason, &last.message) == (&new.reason, &new.message) => {
            (last.at, last.times) = (new.at, last.times + new.times);
        }
        _ => events.push(new),
    }
    let old = events.len().saturating_sub(EVENTS);
    events.drain(..old);
}

/// The private link objects of the store.
pub struct Kept {
    store: Arc<Store>,
    precedence: Precedence,
    /// Defaults for fields that objects may omit.
    home: Home,
    /// Receiver of store revisions, marked as seen at the last listing.
    seen: Mutex<watch::Receiver<u64>>,
    /// Events of this process that are not stored yet, by object.
    told: Mutex<BTreeMap<String, Vec<Told>>>,
    /// Names of objects to reconcile immediately.
    urgent: Mutex<BTreeSet<String>>,
    hurry: Notify,
}

fn link(object: &Object) -> Option<Link> {
    let Spec::PrivateLinkService(spec) = &object.spec else { return None };
    let memory = memory(object);
    Some(Link {
        name: object.name.as_str().to_owned(),
        generation: object.generation,
        created: memory.created.unwrap_or_else(Time::now),
        spec: (**spec).clone(),
        status: memory.status,
        deletion: object.life().deletion.map(Time::from),
        held: is_held(object),
    })
}

fn memory(object: &Object) -> Memory {
    let Some(kept) = &object.life().progress else { return Memory::default() };
    Memory::deserialize(&**kept).unwrap_or_else(|error| {
        // The reconciler finds all resources again by their names and tags.
        tracing::error!("{}: what was remembered is not understood: {error}", object.key());
        Memory::default()
    })
}

impl Kept {
    /// Creates the view of a store. The configuration decides which source takes precedence.
    pub fn new(config: &Config, store: Arc<Store>) -> Kept {
        let (precedence, seen) = (desired::precedence(config), Mutex::new(store.watch()));
        let home = config.private_link.as_ref().map(|settings| settings.home.clone());
        let home = home.unwrap_or_default();
        let (told, urgent, hurry) = (Mutex::default(), Mutex::default(), Notify::new());
        Kept { store, precedence, home, seen, told, urgent, hurry }
    }

    /// Returns the object of this name from the source that takes precedence.
    pub fn object(&self, name: &str) -> Option<Arc<Object>> {
        heard(&self.store.objects(), &self.precedence).get(name).copied().cloned()
    }

    /// Sets the condition of objects shadowed by another source's object of the same name, and
    /// clears it when they no longer are. Never returns.
    pub async fn tell_shadowed(&self) {
        let mut seen = self.store.watch();
        loop {
            seen.borrow_and_update();
            let now = SystemTime::now();
            let batch = shadowed::news(&self.store.objects(), &self.precedence, now);
            if !batch.is_empty() {
                let (_, written) = self.store.request(Order::new(batch, now));
                if let Ok(Err(refusal)) = written.await {
                    tracing::debug!("private links: who is not heard is not noted: {refusal}");
                }
            }
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Requests immediate reconciliation of an object after it was changed at Azure.
    pub fn hurry(&self, name: &str) {
        self.urgent.lock().insert(name.to_owned());
        self.hurry.notify_one();
    }

    /// Returns the events of an object, oldest first, stored ones and those not stored yet.
    pub fn events(&self, object: &Object) -> Vec<Told> {
        let new = self.told.lock().get(object.name.as_str()).cloned().unwrap_or_default();
        let mut events = memory(object).events;
        new.into_iter().for_each(|new| add(&mut events, new));
        events
    }

    /// Writes a change of an object to the store, unless the object no longer exists.
    async fn change(&self, name: &str, change: impl FnOnce(Key) -> Change) -> Result<(), Unsaved> {
        let Some(object) = self.object(name) else { return Ok(()) };
        let batch = vec![change(object.key())];
        let (_, written) = self.store.request(Order::new(batch, SystemTime::now()));
        match written.await.map_err(|broken| Unsaved(broken.to_string()))? {
            Err(refusal) if refusal.why != Why::Absent => Err(Unsaved(refusal.to_string())),
            _ => Ok(()),
        }
    }

    async fn keep(&self, name: &str, status: &Status) -> Result<(), Unsaved> {
        let Some(object) = self.object(name) else { return Ok(()) };
        let created = memory(&object).created.or_else(|| Some(Time::now()));
        let events = self.events(&object);
        let memory = Memory { created, status: status.clone(), events };
        let progress = serde_json::to_value(&memory).map_err(|e| Unsaved(e.to_string()))?;
        let progress = Arc::new(progress);
        let status = told(status);
        self.change(name, |key| Change::Progress { key, status, progress }).await?;
        self.told.lock().remove(name);
        Ok(())
    }
}

/// Converts a status to the form common to all objects.
fn told(status: &Status) -> object::Status {
    let condition = |condition: &private_link::object::Condition| object::Condition {
        aspect: condition.aspect.as_str().into(),
        status: match condition.status {
            Truth::True => object::Truth::True,
            Truth::False => object::Truth::False,
        },
        reason: condition.reason.as_str().into(),
        message: condition.message.as_str().into(),
        since: condition.since.into(),
    };
    let conditions = status.conditions.iter().map(condition).collect();
    object::Status { observed: status.observed, conditions }
}

impl Objects for Kept {
    fn list(&self) -> Vec<Link> {
        self.seen.lock().borrow_and_update();
        let objects = self.store.objects();
        let heard = heard(&objects, &self.precedence).into_values();
        let mut links: Vec<Link> = heard.filter_map(|object| link(object)).collect();
        links.iter_mut().for_each(|link| self.home.fill(&mut link.spec));
        links
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut seen = self.seen.lock().clone();
        Box::pin(async move {
            tokio::select! {
                changed = seen.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
                () = self.hurry.notified() => {}
            }
        })
    }

    fn urgent(&self) -> Vec<String> {
        std::mem::take(&mut *self.urgent.lock()).into_iter().collect()
    }

    fn save<'a>(&'a self, name: &'a str, status: &'a Status) -> Write<'a> {
        Box::pin(self.keep(name, status))
    }

    fn hold<'a>(&'a self, name: &'a str, held: bool) -> Write<'a> {
        let finalizer = move |key| Change::Finalizer { key, name: FINALIZER.into(), held };
        Box::pin(self.change(name, finalizer))
    }

    fn tell(&self, name: &str, event: &Event) {
        let Event { warning, reason, message } = event;
        match warning {
            true => tracing::warn!("private link {name}: {reason}: {message}"),
            false => tracing::info!("private link {name}: {reason}: {message}"),
        }
        let told = Told {
            at: Time::now(),
            warning: *warning,
            reason: (*reason).to_owned(),
            message: message.clone(),
            times: 1,
        };
        add(self.told.lock().entry(name.to_owned()).or_default(), told);
    }
}
