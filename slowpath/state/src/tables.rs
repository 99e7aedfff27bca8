//! Immutable snapshot of the tables: services with their frontends and backends. A snapshot is
//! cheap to clone; only the writer (`writer.rs`) creates snapshots with other contents.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::address::{Address, Endpoint};
use crate::backend::Instance;
use crate::frontend::Frontend;
use crate::name::Name;
use crate::service::Service;
use crate::shared_btree::SharedBTree;

/// All rows of one service name: the service, its frontends and its backends. Backends may exist
/// before their service does.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The service; `None` while only backends exist under the name.
    pub service: Option<Arc<Service>>,
    /// Frontends, sorted by address.
    pub frontends: SmallVec<[Arc<Frontend>; 1]>,
    /// Instances, sorted by endpoint and, for one endpoint, by priority and source. The first
    /// instance of each endpoint is used; the others are its shadows.
    pub instances: SmallVec<[Arc<Instance>; 1]>,
}

impl Entry {
    /// Returns the frontend at an address.
    pub fn frontend(&self, address: &Address) -> Option<&Arc<Frontend>> {
        frontend_index(&self.frontends, address).ok().map(|at| &self.frontends[at])
    }

    /// Returns the instances in use, one for each endpoint, sorted by endpoint.
    pub fn used(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let mut before = None;
        self.instances
            .iter()
            .filter(move |instance| before.replace(instance.endpoint) != Some(instance.endpoint))
    }

    /// Returns the instances at an endpoint: the one in use first, then its shadows.
    pub fn at(&self, endpoint: &Endpoint) -> &[Arc<Instance>] {
        &self.instances[instance_range(&self.instances, endpoint)]
    }

    /// Returns whether the entry has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.service.is_none() && self.frontends.is_empty() && self.instances.is_empty()
    }
}

/// Returns the index of the frontend at an address, or where it would be inserted.
pub(crate) fn frontend_index(
    frontends: &[Arc<Frontend>],
    address: &Address,
) -> Result<usize, usize> {
    frontends.binary_search_by(|row| row.address().cmp(address))
}

/// Returns the index range of the instances at an endpoint.
pub(crate) fn instance_range(instances: &[Arc<Instance>], endpoint: &Endpoint) -> Range<usize> {
    let start = instances.partition_point(|instance| instance.endpoint < *endpoint);
    let len = instances[start..].iter().take_while(|i| i.endpoint == *endpoint).count();
    start..start + len
}

/// Snapshot of services, frontends and backends at one revision.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(crate) revision: u64,
    pub(crate) entries: SharedBTree<Name, Arc<Entry>>,
    /// Service that owns the frontend at each address. The rows themselves are only in `entries`.
    pub(crate) owners: SharedBTree<Address, Name>,
    /// Each endpoint with each service that has an instance there.
    pub(crate) endpoints: SharedBTree<(Endpoint, Name), ()>,
    /// Each service with each frontend that is redirected to it.
    pub(crate) redirects: SharedBTree<(Name, Address), ()>,
    /// Sources that have not completed their initial list, by the number of their
    /// [`crate::writer::Initializer`].
    pub(crate) initializers: Arc<BTreeMap<u64, Box<str>>>,
}

impl Tables {
    /// Returns the revision; each write transaction that changes something increments it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the rows of a service name.
    pub fn entry(&self, name: &Name) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// Returns all entries, sorted by name.
    pub fn entries(&self) -> impl Iterator<Item = (&Name, &Arc<Entry>)> {
        self.entries.iter()
    }

    /// Returns the service with a name.
    pub fn service(&self, name: &Name) -> Option<&Arc<Service>> {
        self.entries.get(name)?.service.as_ref()
    }

    /// Returns all services, sorted by name.
    pub fn services(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.entries.iter().filter_map(|(_, entry)| entry.service.as_ref())
    }

    /// Returns the frontend at an address.
    pub fn frontend(&self, address: &Address) -> Option<&Arc<Frontend>> {
        self.entries.get(self.owners.get(address)?)?.frontend(address)
    }

    /// Returns all frontends, sorted by address.
    pub fn frontends(&self) -> impl Iterator<Item = &Arc<Frontend>> {
        let rows = self.owners.iter();
        rows.filter_map(|(address, name)| self.entries.get(name)?.frontend(address))
    }

    /// Returns the frontends after an address, sorted by address; all of them for `None`.
    pub fn frontends_after(&self, after: Option<&Address>) -> impl Iterator<Item = &Arc<Frontend>> {
        let after = after.copied();
        let rows = self.owners.from(move |address| after.is_some_and(|after| *address <= after));
        rows.filter_map(|(address, name)| self.entries.get(name)?.frontend(address))
    }

    /// Returns the number of frontends.
    pub fn frontend_count(&self) -> usize {
        self.owners.len()
    }

    /// Returns the addresses of the frontends that are redirected to this service's backends.
    pub fn redirected_to(&self, name: &Name) -> impl Iterator<Item = &Address> {
        let from = self.redirects.from(move |(to, _)| to < name);
        from.map(|(key, ())| key).take_while(move |(to, _)| to == name).map(|(_, address)| address)
    }

    /// Returns every endpoint with each service that has an instance there, sorted by endpoint and
    /// name.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Endpoint, &Name)> {
        self.endpoints.iter().map(|((endpoint, name), ())| (endpoint, name))
    }

    /// Returns the names of the services that have an instance at an endpoint, sorted.
    pub fn services_at(&self, endpoint: &Endpoint) -> impl Iterator<Item = &Name> {
        let from = self.endpoints.from(move |(at, _)| at < endpoint);
        from.map(|(key, ())| key).take_while(move |(at, _)| at == endpoint).map(|(_, name)| name)
    }

    /// Returns the instances of all services at an endpoint, sorted by service name; of each
    /// service the instance in use comes before its shadows.
    pub fn instances_at(&self, endpoint: &Endpoint) -> impl Iterator<Item = &Arc<Instance>> {
        let entries = self.services_at(endpoint).filter_map(|name| self.entries.get(name));
        entries.flat_map(move |entry| entry.at(endpoint))
    }

    /// Returns whether any service has an instance at an address and port, with any protocol and in
    /// any state.
    pub fn has_instance_at(&self, addr: IpAddr, port: u16) -> bool {
        let target = (addr, port);
        let mut from = self.endpoints.from(move |(at, _)| (at.addr, at.port) < target);
        from.next().is_some_and(|((at, _), ())| (at.addr, at.port) == target)
    }

    /// Returns whether every source has completed its initial list. Until then, the reconciler does
    /// not prune: it deletes no frontend from a plane only because the tables do not have it.
    pub fn initialized(&self) -> bool {
        self.initializers.is_empty()
    }

    /// Returns the sources that have not completed their initial list, in order of registration.
    pub fn pending_sources(&self) -> impl Iterator<Item = &str> {
        self.initializers.values().map(|name| &**name)
    }
}
