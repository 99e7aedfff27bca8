//! Private link objects in the store: desired state, status and events.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use config::checked::Config;
use config::private_link::SpecDefaults;
use parking_lot::Mutex;
use private_link::Event;
use private_link::controller::{ObjectStore, StoreError, StoreFuture};
use private_link::object::{ConditionStatus, FINALIZER, Object as Link, Status};
use private_link::time::Time;
use serde::{Deserialize, Serialize};
use state::name::Precedence;
use state::object::{self, Change, ErrorClass, Key, Object, Spec};
use state::store::WriteRequest;
use tokio::sync::{Notify, watch};

use super::shadowed::{self, has_finalizer, preferred};
use crate::sources::desired::{self, Store};

/// Maximum number of events stored with an object.
const MAX_EVENTS: usize = 16;

/// State of the controller that is stored with an object, beside the conditions of all kinds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LinkProgress {
    /// When the object was first reconciled.
    created: Option<Time>,
    status: Status,
    events: Vec<LinkEvent>,
}

/// An event of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEvent {
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
fn add(events: &mut Vec<LinkEvent>, new: LinkEvent) {
    match events.last_mut() {
        Some(last) if (&last.reason, &last.message) == (&new.reason, &new.message) => {
            (last.at, last.times) = (new.at, last.times + new.times);
        }
        _ => events.push(new),
    }
    let old = events.len().saturating_sub(MAX_EVENTS);
    events.drain(..old);
}

/// The private link objects of the store, as the controller reads and writes them.
pub struct StoredLinks {
    store: Arc<Store>,
    precedence: Precedence,
    /// Defaults for fields that objects may omit.
    defaults: SpecDefaults,
    /// Receiver of store revisions, marked as seen at the last listing.
    revision: Mutex<watch::Receiver<u64>>,
    /// Events of this process that are not stored yet, by name of the object.
    unsaved: Mutex<BTreeMap<String, Vec<LinkEvent>>>,
    /// Names of objects to reconcile immediately.
    urgent: Mutex<BTreeSet<String>>,
    /// Wakes the controller for urgent objects; changes of the store wake it through `revision`.
    changed: Notify,
}

fn link(object: &Object) -> Option<Link> {
    let Spec::PrivateLinkService(spec) = &object.spec else { return None };
    let progress = progress(object);
    Some(Link {
        name: object.name.as_str().to_owned(),
        generation: object.generation,
        created: progress.created.unwrap_or_else(Time::now),
        spec: (**spec).clone(),
        status: progress.status,
        deletion: object.lifecycle().deletion.map(Time::from),
        has_finalizer: has_finalizer(object),
    })
}

fn progress(object: &Object) -> LinkProgress {
    let Some(stored) = &object.lifecycle().progress else { return LinkProgress::default() };
    LinkProgress::deserialize(&**stored).unwrap_or_else(|error| {
        // Nothing is lost: the controller finds the resources at Azure by their names and tags.
        let key = object.key();
        tracing::error!(
            event = "private_link_status_invalid",
            object = %key,
            %error,
            "stored private link status invalid, starting anew"
        );
        LinkProgress::default()
    })
}

impl StoredLinks {
    /// Creates the view of a store. The configuration decides which source takes precedence.
    pub fn new(config: &Config, store: Arc<Store>) -> StoredLinks {
        let (precedence, revision) = (desired::precedence(config), Mutex::new(store.watch()));
        let defaults = config.private_link.as_ref().map(|settings| settings.defaults.clone());
        let defaults = defaults.unwrap_or_default();
        let (unsaved, urgent, changed) = (Mutex::default(), Mutex::default(), Notify::new());
        StoredLinks { store, precedence, defaults, revision, unsaved, urgent, changed }
    }

    /// Returns the object of this name from the source that takes precedence.
    pub fn object(&self, name: &str) -> Option<Arc<Object>> {
        preferred(&self.store.objects(), &self.precedence).get(name).copied().cloned()
    }

    /// Sets the condition of objects shadowed by another source's object of the same name, and
    /// clears it when they no longer are. Never returns.
    pub async fn record_shadowed(&self) {
        let mut revision = self.store.watch();
        loop {
            revision.borrow_and_update();
            let now = SystemTime::now();
            let batch = shadowed::status_changes(&self.store.objects(), &self.precedence, now);
            if !batch.is_empty() {
                let (_, written) = self.store.request(WriteRequest::new(batch, now));
                if let Ok(Err(error)) = written.await {
                    tracing::debug!(
                        event = "private_link_conditions_unstored",
                        %error,
                        "conditions of shadowed private links not stored"
                    );
                }
            }
            if revision.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Requests immediate reconciliation of an object whose connections an operator has changed.
    pub fn mark_urgent(&self, name: &str) {
        self.urgent.lock().insert(name.to_owned());
        self.changed.notify_one();
    }

    /// Returns the events of an object, oldest first, stored ones and those not stored yet.
    pub fn events(&self, object: &Object) -> Vec<LinkEvent> {
        let new = self.unsaved.lock().get(object.name.as_str()).cloned().unwrap_or_default();
        let mut events = progress(object).events;
        new.into_iter().for_each(|new| add(&mut events, new));
        events
    }

    /// Writes a change of an object to the store, unless the object no longer exists.
    async fn change(
        &self,
        name: &str,
        change: impl FnOnce(Key) -> Change,
    ) -> Result<(), StoreError> {
        let Some(object) = self.object(name) else { return Ok(()) };
        let batch = vec![change(object.key())];
        let (_, written) = self.store.request(WriteRequest::new(batch, SystemTime::now()));
        match written.await.map_err(|error| StoreError(error.to_string()))? {
            Err(error) if error.class != ErrorClass::NotFound => Err(StoreError(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Stores the status of an object together with its events. If the object no longer exists, its
    /// events are dropped, so that a later object of the same name does not show them.
    async fn persist(&self, name: &str, status: &Status) -> Result<(), StoreError> {
        let Some(object) = self.object(name) else {
            self.unsaved.lock().remove(name);
            return Ok(());
        };
        let created = progress(&object).created.or_else(|| Some(Time::now()));
        let events = self.events(&object);
        let progress = LinkProgress { created, status: status.clone(), events };
        let progress = serde_json::to_value(&progress).map_err(|e| StoreError(e.to_string()))?;
        let progress = Arc::new(progress);
        let status = object_status(status);
        self.change(name, |key| Change::Progress { key, status, progress }).await?;
        self.unsaved.lock().remove(name);
        Ok(())
    }
}

/// Converts a status to the form common to all objects.
fn object_status(status: &Status) -> object::Status {
    let condition = |condition: &private_link::object::Condition| object::Condition {
        aspect: condition.aspect.as_str().into(),
        status: match condition.status {
            ConditionStatus::True => object::ConditionStatus::True,
            ConditionStatus::False => object::ConditionStatus::False,
        },
        reason: condition.reason.as_str().into(),
        message: condition.message.as_str().into(),
        since: condition.since.into(),
    };
    let conditions = status.conditions.iter().map(condition).collect();
    object::Status { observed: status.observed, conditions }
}

impl ObjectStore for StoredLinks {
    fn list(&self) -> Vec<Link> {
        self.revision.lock().borrow_and_update();
        let objects = self.store.objects();
        let preferred = preferred(&objects, &self.precedence).into_values();
        let mut links: Vec<Link> = preferred.filter_map(|object| link(object)).collect();
        links.iter_mut().for_each(|link| self.defaults.fill(&mut link.spec));
        links
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut revision = self.revision.lock().clone();
        Box::pin(async move {
            tokio::select! {
                changed = revision.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
                () = self.changed.notified() => {}
            }
        })
    }

    fn take_urgent(&self) -> Vec<String> {
        std::mem::take(&mut *self.urgent.lock()).into_iter().collect()
    }

    fn save_status<'a>(&'a self, name: &'a str, status: &'a Status) -> StoreFuture<'a> {
        Box::pin(self.persist(name, status))
    }

    fn set_finalizer<'a>(&'a self, name: &'a str, present: bool) -> StoreFuture<'a> {
        let finalizer = move |key| Change::Finalizer { key, name: FINALIZER.into(), present };
        Box::pin(self.change(name, finalizer))
    }

    fn record_event(&self, name: &str, event: &Event) {
        let Event { warning, reason, message } = event;
        match warning {
            true => {
                tracing::warn!(
                    event = "private_link_problem",
                    object = name,
                    %reason,
                    detail = %message,
                    "private link problem"
                );
            }
            false => {
                tracing::info!(
                    event = "private_link_event",
                    object = name,
                    %reason,
                    detail = %message,
                    "private link event"
                );
            }
        }
        let event = LinkEvent {
            at: Time::now(),
            warning: *warning,
            reason: (*reason).to_owned(),
            message: message.clone(),
            times: 1,
        };
        add(self.unsaved.lock().entry(name.to_owned()).or_default(), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_of_an_object_that_no_longer_exists_are_dropped() {
        let text = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\n\
                    address = [\"10.0.1.10/24\"]\n[fastpath]\nlcores = [1]\n";
        let store = Arc::new(desired::open_store(None).unwrap());
        let links = StoredLinks::new(&config::from_toml(text).unwrap(), store);
        let message = "a sentence".to_owned();
        links.record_event("shop/web", &Event { warning: false, reason: "Deleted", message });
        assert_eq!(links.unsaved.lock().len(), 1);
        links.save_status("shop/web", &Status::default()).await.unwrap();
        assert!(links.unsaved.lock().is_empty());
    }
}
