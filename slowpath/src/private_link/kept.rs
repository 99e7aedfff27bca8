//! Private links in the store: what is wanted of them, and what became of them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use config::checked::Config;
use parking_lot::Mutex;
use private_link::Event;
use private_link::object::{FINALIZER, Object as Link, Status, Truth};
use private_link::run::{Objects, Unsaved, Write};
use private_link::time::Time;
use serde::{Deserialize, Serialize};
use state::name::Precedence;
use state::object::{self, Change, Key, Kind, Object, Spec, Why};
use tokio::sync::watch;

use crate::desired::{self, Store};

/// Events of an object that are remembered.
const EVENTS: usize = 16;

/// What is remembered of an object beside its status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Memory {
    /// When it was first looked at.
    created: Option<Time>,
    status: Status,
    events: Vec<Told>,
}

/// Something that happened to an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// When.
    pub at: Time,
    /// Somebody may have to do something.
    pub warning: bool,
    /// One word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// Private links as the store has them.
pub struct Kept {
    store: Arc<Store>,
    precedence: Precedence,
    /// The revision that was listed last.
    seen: Mutex<watch::Receiver<u64>>,
    /// Events of this process, by object.
    told: Mutex<BTreeMap<String, Vec<Told>>>,
}

/// All private links; of those of one name the one that counts.
pub fn read(objects: &object::Objects, precedence: &Precedence) -> Vec<Link> {
    let mut chosen: BTreeMap<&str, &Arc<Object>> = BTreeMap::new();
    // What is being taken back ends before another source's takes its place.
    let rank = |object: &Object| (!is_held(object), precedence.of(&object.source));
    for object in objects.of_kind(Kind::PrivateLinkService) {
        let there = chosen.entry(object.name.as_str()).or_insert(object);
        if rank(object) < rank(there) {
            *there = object;
        }
    }
    chosen.into_values().filter_map(|object| link(object)).collect()
}

fn is_held(object: &Object) -> bool {
    object.life().finalizers.iter().any(|name| **name == *FINALIZER)
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
        // By names and tags everything is found again.
        tracing::error!("{}: what was remembered is not understood: {error}", object.key());
        Memory::default()
    })
}

impl Kept {
    /// Those of a store; the configuration says whose word counts.
    pub fn new(config: &Config, store: Arc<Store>) -> Kept {
        let (precedence, seen) = (desired::precedence(config), Mutex::new(store.watch()));
        Kept { store, precedence, seen, told: Mutex::default() }
    }

    /// The object of a name, as it is kept.
    pub fn object(&self, name: &str) -> Option<Arc<Object>> {
        let objects = self.store.objects();
        let named = objects.of_kind(Kind::PrivateLinkService);
        let named = named.filter(|object| object.name.as_str() == name);
        named.min_by_key(|o| (!is_held(o), self.precedence.of(&o.source))).cloned()
    }

    /// What happened to an object, the oldest first: what is kept, and what is still to be.
    pub fn events(&self, object: &Object) -> Vec<Told> {
        let new = self.told.lock().get(object.name.as_str()).cloned().unwrap_or_default();
        let mut events = memory(object).events;
        events.extend(new);
        let old = events.len().saturating_sub(EVENTS);
        events.split_off(old)
    }

    /// Makes a change of an object where it is still there.
    async fn change(&self, name: &str, change: impl FnOnce(Key) -> Change) -> Result<(), Unsaved> {
        let Some(object) = self.object(name) else { return Ok(()) };
        let (store, batch) = (Arc::clone(&self.store), vec![change(object.key())]);
        let written = tokio::task::spawn_blocking(move || store.change(batch, SystemTime::now()));
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

/// A status as every object has one.
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
        read(&self.store.objects(), &self.precedence)
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut seen = self.seen.lock().clone();
        Box::pin(async move {
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
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
        };
        let mut all = self.told.lock();
        let events = all.entry(name.to_owned()).or_default();
        events.push(told);
        let old = events.len().saturating_sub(EVENTS);
        events.drain(..old);
    }
}
