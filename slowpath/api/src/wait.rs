//! Waiting until a write is in force: `?wait=`.

use std::sync::Arc;

use state::address::Address;
use state::name::Name;
use state::object::{Change, Event, Key, Object, Objects, Spec};
use tokio::sync::oneshot;

/// A request to be notified when a write is in force or rejected.
#[derive(Debug)]
pub struct Wait {
    /// Revision of the store after the write.
    pub revision: u64,
    /// The objects that were written.
    pub objects: Vec<WrittenObject>,
    /// Whether the write is the complete list of a source. An object of the list that is shadowed
    /// by a source of higher precedence counts as in force; in another write it is an error.
    pub is_complete_list: bool,
    /// Channel for the outcome.
    pub answer: oneshot::Sender<Outcome>,
}

/// An object that was written, with the service and frontends that it affects.
#[derive(Debug)]
pub struct WrittenObject {
    /// Key of the object.
    pub key: Key,
    /// The service that the object affects; `None` for kinds that affect no service.
    pub service: Option<Name>,
    /// Addresses of the frontends that the object had before the write, and has after it.
    pub addresses: Vec<Address>,
}

/// Outcome of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All lcores serve the write.
    InForce,
    /// An object is not in the tables because it is invalid or shadowed, or the plane rejected one
    /// of its frontends.
    Rejected {
        /// Key of the object that is not in force.
        object: Key,
        /// Cause.
        reason: String,
    },
}

impl WrittenObject {
    /// Describes a write by the object before and after it.
    pub(crate) fn new(
        key: Key,
        before: Option<&Arc<Object>>,
        after: Option<&Object>,
    ) -> WrittenObject {
        let both = || before.map(|object| &**object).into_iter().chain(after);
        let (service, addresses) = (both().find_map(service), both().flat_map(addresses).collect());
        WrittenObject { key, service, addresses }
    }

    /// Describes the object of an event; `None` if only its status changed.
    pub fn of_event(event: &Event) -> Option<WrittenObject> {
        let generation = |object: &Option<Arc<Object>>| object.as_ref().map(|one| one.generation);
        let is_changed = generation(&event.before) != generation(&event.after);
        let object = event.object().filter(|_| is_changed)?;
        Some(WrittenObject::new(object.key(), event.before.as_ref(), event.after.as_deref()))
    }

    /// Describes the objects that a batch puts or deletes; `objects` is the state before it.
    pub(crate) fn of(batch: &[Change], objects: &Objects) -> Vec<WrittenObject> {
        let one = |change: &Change| match change {
            Change::Put { object, .. } => {
                let key = object.key();
                let before = objects.get(&key);
                Some(WrittenObject::new(key, before, Some(&**object)))
            }
            Change::Delete { key, .. } => {
                Some(WrittenObject::new(key.clone(), objects.get(key), None))
            }
            Change::Finalizer { .. } | Change::Status { .. } | Change::Progress { .. } => None,
        };
        batch.iter().filter_map(one).collect()
    }
}

/// Returns the service that an object affects.
fn service(object: &Object) -> Option<Name> {
    match &object.spec {
        Spec::Service(_) => Some(object.name.clone()),
        Spec::Backends(spec) => Some(spec.service.clone()),
        Spec::Appliance(_)
        | Spec::Source(_)
        | Spec::BgpPeeringPolicy(_)
        | Spec::PrivateLinkService(_) => None,
    }
}

/// Returns the addresses of the frontends that an object has.
fn addresses(object: &Object) -> Vec<Address> {
    match &object.spec {
        Spec::Service(spec) => spec.frontends.iter().map(|frontend| frontend.address).collect(),
        Spec::Backends(_)
        | Spec::Appliance(_)
        | Spec::Source(_)
        | Spec::BgpPeeringPolicy(_)
        | Spec::PrivateLinkService(_) => Vec::new(),
    }
}
