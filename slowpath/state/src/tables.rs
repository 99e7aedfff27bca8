//! The tables as one immutable snapshot: services with their frontends and backends. Cheap to copy;
//! only `writer.rs` makes new ones.

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
use crate::sorted::Sorted;

/// All that belongs to one service's name. Backends may be there before the service is.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The service; none while only its backends are known.
    pub service: Option<Arc<Service>>,
    /// Its frontends by address.
    pub frontends: SmallVec<[Arc<Frontend>; 1]>,
    /// Its instances by endpoint and, of one endpoint, by priority and source: the first is used,
    /// those behind it are its shadows.
    pub instances: SmallVec<[Arc<Instance>; 1]>,
}

impl Entry {
    /// The frontend at that address.
    pub fn frontend(&self, address: &Address) -> Option<&Arc<Frontend>> {
        place_of(&self.frontends, address).ok().map(|at| &self.frontends[at])
    }

    /// The instances that are used: the preferred one of each endpoint, by endpoint.
    pub fn used(&self) -> impl Iterator<Item = &Arc<Instance>> {
        let mut before = None;
        self.instances
            .iter()
            .filter(move |instance| before.replace(instance.endpoint) != Some(instance.endpoint))
    }

    /// The instances at an endpoint, the used one first and then its shadows.
    pub fn at(&self, endpoint: &Endpoint) -> &[Arc<Instance>] {
        &self.instances[places_at(&self.instances, endpoint)]
    }

    /// Whether nothing is known any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.service.is_none() && self.frontends.is_empty() && self.instances.is_empty()
    }
}

/// Where in a list of frontends the one at an address is, or would be.
pub(crate) fn place_of(frontends: &[Arc<Frontend>], address: &Address) -> Result<usize, usize> {
    frontends.binary_search_by(|row| row.address().cmp(address))
}

/// Where in a list of instances those of an endpoint are.
pub(crate) fn places_at(instances: &[Arc<Instance>], endpoint: &Endpoint) -> Range<usize> {
    let start = instances.partition_point(|instance| instance.endpoint < *endpoint);
    let len = instances[start..].iter().take_while(|i| i.endpoint == *endpoint).count();
    start..start + len
}

/// A snapshot.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub(crate) revision: u64,
    pub(crate) entries: Sorted<Name, Arc<Entry>>,
    /// Whose frontend is at an address. The rows are in the entries, and only there.
    pub(crate) owners: Sorted<Address, Name>,
    /// Which services have an instance at an endpoint.
    pub(crate) endpoints: Sorted<(Endpoint, Name), ()>,
    /// Which frontends are redirected to a service.
    pub(crate) redirects: Sorted<(Name, Address), ()>,
    /// Sources that have not said all that they know yet, by the number of their token.
    pub(crate) initializers: Arc<BTreeMap<u64, Box<str>>>,
}

impl Tables {
    /// Counts writes; each write transaction that changes something is one revision.
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
        self.entries.iter().filter_map(|(_, entry)| entry.service.as_ref())
    }

    /// The frontend at that address.
    pub fn frontend(&self, address: &Address) -> Option<&Arc<Frontend>> {
        self.entries.get(self.owners.get(address)?)?.frontend(address)
    }

    /// All frontends, by address.
    pub fn frontends(&self) -> impl Iterator<Item = &Arc<Frontend>> {
        let rows = self.owners.iter();
        rows.filter_map(|(address, name)| self.entries.get(name)?.frontend(address))
    }

    /// The frontends behind an address, by address; all for none.
    pub fn frontends_after(&self, after: Option<&Address>) -> impl Iterator<Item = &Arc<Frontend>> {
        let after = after.copied();
        let rows = self.owners.from(move |address| after.is_some_and(|after| *address <= after));
        rows.filter_map(|(address, name)| self.entries.get(name)?.frontend(address))
    }

    /// Number of frontends.
    pub fn frontend_count(&self) -> usize {
        self.owners.len()
    }

    /// Frontends of other services that use this one's backends.
    pub fn redirected_to(&self, name: &Name) -> impl Iterator<Item = &Address> {
        let from = self.redirects.from(move |(to, _)| to < name);
        from.map(|(key, ())| key).take_while(move |(to, _)| to == name).map(|(_, address)| address)
    }

    /// All endpoints with each service that has an instance there, by endpoint and name.
    pub fn endpoints(&self) -> impl Iterator<Item = (&Endpoint, &Name)> {
        self.endpoints.iter().map(|((endpoint, name), ())| (endpoint, name))
    }

    /// The services that have an instance at an endpoint, by name.
    pub fn services_at(&self, endpoint: &Endpoint) -> impl Iterator<Item = &Name> {
        let from = self.endpoints.from(move |(at, _)| at < endpoint);
        from.map(|(key, ())| key).take_while(move |(at, _)| at == endpoint).map(|(_, name)| name)
    }

    /// What is said of an endpoint: the instances of all services by name, each service's in use
    /// before its shadows.
    pub fn instances_at(&self, endpoint: &Endpoint) -> impl Iterator<Item = &Arc<Instance>> {
        let entries = self.services_at(endpoint).filter_map(|name| self.entries.get(name));
        entries.flat_map(move |entry| entry.at(endpoint))
    }

    /// Whether some service has an instance at an address and port, of whatever protocol and state.
    pub fn is_named(&self, addr: IpAddr, port: u16) -> bool {
        let here = (addr, port);
        let mut from = self.endpoints.from(move |(at, _)| (at.addr, at.port) < here);
        from.next().is_some_and(|((at, _), ())| (at.addr, at.port) == here)
    }

    /// Whether every source has said all that it knows, so that what nobody names may be pruned.
    pub fn initialized(&self) -> bool {
        self.initializers.is_empty()
    }

    /// The sources that are waited for, in the order of their registration.
    pub fn waited_for(&self) -> impl Iterator<Item = &str> {
        self.initializers.values().map(|name| &**name)
    }
}
