//! Waiting for what was written to be in force.

use std::sync::Arc;

use state::address::Address;
use state::name::Name;
use state::object::{Change, Key, Object, Objects, Spec};
use tokio::sync::oneshot;

/// Somebody waits for changes to be in force.
#[derive(Debug)]
pub struct Wait {
    /// The revision after the write.
    pub revision: u64,
    /// What was written.
    pub about: Vec<About>,
    /// It is all that a source says: another's being preferred is none of its business.
    pub whole: bool,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Outcome>,
}

/// An object that was written.
#[derive(Debug)]
pub struct About {
    /// Which.
    pub key: Key,
    /// The service that it is about; none for objects that are about no service.
    pub service: Option<Name>,
    /// Frontends that the service has, had or shall have by this object.
    pub addresses: Vec<Address>,
}

/// What became of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All lcores serve it.
    Done,
    /// An object isn't in the tables, or a plane refuses it.
    Refused {
        /// Which.
        object: Key,
        /// Why.
        why: String,
    },
}

impl About {
    /// An object as it was and as it is.
    pub(crate) fn new(key: Key, before: Option<&Arc<Object>>, after: Option<&Object>) -> About {
        let both = || before.map(|object| &**object).into_iter().chain(after);
        let (service, addresses) = (both().find_map(service), both().flat_map(addresses).collect());
        About { key, service, addresses }
    }

    /// What changes of objects are about.
    pub(crate) fn of(batch: &[Change], objects: &Objects) -> Vec<About> {
        let one = |change: &Change| match change {
            Change::Put { object, .. } => {
                let key = object.key();
                let before = objects.get(&key);
                Some(About::new(key, before, Some(&**object)))
            }
            Change::Delete { key, .. } => Some(About::new(key.clone(), objects.get(key), None)),
            Change::Finalizer { .. } | Change::Status { .. } | Change::Progress { .. } => None,
        };
        batch.iter().filter_map(one).collect()
    }
}

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

fn addresses(object: &Object) -> Vec<Address> {
    match &object.spec {
        Spec::Service(spec) => spec.frontends.iter().map(|said| said.address).collect(),
        Spec::Backends(_)
        | Spec::Appliance(_)
        | Spec::Source(_)
        | Spec::BgpPeeringPolicy(_)
        | Spec::PrivateLinkService(_) => Vec::new(),
    }
}
