//! The tables as one immutable snapshot: services with their frontends and backends. Cheap to copy;
//! only `writer.rs` makes new ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use smallvec::SmallVec;

use crate::address::{Address, Endpoint};
use crate::backend::Instance;
use crate::frontend::Frontend;
use crate::name::Name;
use crate::service::Service;

/// All that belongs to one service's name. Backends may be there before the service is.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The service; none while only its backends are known.
    pub service: Option<Arc<Service>>,
    /// Its frontends by address.
    pub frontends: SmallVec<[Arc<Frontend>; 1]>,
    /// Its instances by endpoint and, of one endpoint, by priority: the first is used, those behind
    /// it are its shadows.
    pub instances: Arc<[Arc<Instance>]>,
}

impl Entry {
    /// The instances that are used: the preferred one of each endpoint, by endpoint.
    pub fn used(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let mut before = None;
        self.instances
            .iter()
            .filter(move |instance| before.replace(instance.endpoint) != Some(instance.endpoint))
    }
}

/// A snapshot.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(crate) revision: u64,
    pub(crate) entries: RedBlackTreeMapSync<Name, Arc<Entry>>,
    pub(crate) frontends: RedBlackTreeMapSync<Address, Arc<Frontend>>,
    pub(crate) endpoints: RedBlackTreeMapSync<Endpoint, SmallVec<[Name; 1]>>,
    /// Sources that have not said all that they know yet.
    pub(crate) initializers: Arc<BTreeSet<Box<str>>>,
}

impl Tables {
    /// Counts writes; each write transaction is one revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All that is known under a service's name.
    pub fn entry(&self, name: &Name) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// All names with what is known of them, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&Name, &Arc<Entry>)> {
        self.entries.iter()
    }

    /// The service of that name.
    pub fn service(&self, name: &Name) -> Option<&Arc<Service>> {
        self.entries.get(name)?.service.as_ref()
    }

    /// All services, by name.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.entries.values().filter_map(|entry| entry.service.as_ref())
    }

    /// The frontend at that address.
    pub fn frontend(&self, address: &Address) -> Option<&Arc<Frontend>> {
        self.frontends.get(address)
    }

    /// All frontends, by address.
    pub fn frontends(&self) -> impl Iterator<Item = &Arc<Frontend>> {
        self.frontends.values()
    }

    /// All backends by endpoint, each with the names of the services that have an instance there.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Endpoint, &SmallVec<[Name; 1]>)> {
        self.endpoints.iter()
    }

    /// What is said of an endpoint: the instances of all services, those in use before their
    /// shadows.
    pub fn instances_at(&self, endpoint: &Endpoint) -> Vec<&Arc<Instance>> {
        let names = self.endpoints.get(endpoint).into_iter().flatten();
        let entries = names.filter_map(|name| self.entries.get(name));
        let all = entries.flat_map(|entry| entry.instances.iter());
        all.filter(|instance| instance.endpoint == *endpoint).collect()
    }

    /// Whether every source has said all that it knows, so that what nobody names may be pruned.
    pub fn initialized(&self) -> bool {
        self.initializers.is_empty()
    }

    /// The sources that are waited for.
    pub fn waited_for(&self) -> impl Iterator<Item = &str> {
        self.initializers.iter().map(|name| &**name)
    }
}
