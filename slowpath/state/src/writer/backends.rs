//! Writes of backends: instances of services, written by sources.
//!
//! An instance is identified by its service, endpoint and source. A service's instances may exist
//! before the service does.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Error, Transaction};
use crate::address::Endpoint;
use crate::backend::{Health, Instance};
use crate::name::{Name, Precedence, Source};
use crate::tables::{Entry, instance_range};

/// Changes of a service's list of instances. Indexes are those in the list before the changes.
#[derive(Default)]
struct Changes {
    /// Instances that replace those at the indexes.
    replaced: Vec<(usize, Arc<Instance>)>,
    added: Vec<Arc<Instance>>,
    /// Indexes of removed instances, ascending.
    removed: Vec<usize>,
}

/// Compares instances of a service in the order of its list: by endpoint, priority and source. An
/// instance that is replaced by one with the same three keeps its index.
fn order(one: &Instance, other: &Instance) -> std::cmp::Ordering {
    let key = |instance: &Instance| (instance.endpoint, instance.priority);
    key(one).cmp(&key(other)).then_with(|| one.source.cmp(&other.source))
}

impl Transaction<'_> {
    /// Replaces the instances of a service that a source wrote before by `instances`; an empty list
    /// removes them all. Instances of other sources stay. Service, source and priority of the new
    /// instances are set here, and their health is that of the service's current instances at the
    /// same endpoint. If two of them have the same endpoint, only the last one is written.
    pub fn set_backends(&mut self, service: &Name, source: &Source, instances: Vec<Instance>) {
        self.set_instances(service, source, instances, None);
    }

    /// Replaces the source's instances of a service at the given endpoints, which must be sorted,
    /// by `instances`. Its instances at other endpoints stay.
    pub fn set_backends_at(
        &mut self,
        service: &Name,
        source: &Source,
        endpoints: &[Endpoint],
        instances: Vec<Instance>,
    ) {
        self.set_instances(service, source, instances, Some(endpoints));
    }

    /// Replaces the source's instances at the endpoints in `among`, which is sorted, or all of them
    /// for `None`.
    fn set_instances(
        &mut self,
        service: &Name,
        source: &Source,
        mut instances: Vec<Instance>,
        among: Option<&[Endpoint]>,
    ) {
        instances.reverse();
        instances.sort_by_key(|instance| instance.endpoint);
        instances.dedup_by_key(|instance| instance.endpoint);
        let priority = self.precedence.as_ref().unwrap_or(&self.state.precedence).rank(source);
        let list = self.instances(service);
        let is_removed = |i: &Instance| i.source == *source && !contains_endpoint(&instances, i);
        let removed = match among {
            None => indexes_where(list, is_removed),
            Some(endpoints) => {
                let indexes = endpoints.iter().flat_map(|endpoint| instance_range(list, endpoint));
                indexes.filter(|n| is_removed(&list[*n])).collect()
            }
        };
        let mut changes = Changes { removed, ..Changes::default() };
        for mut instance in instances {
            let indexes = instance_range(list, &instance.endpoint);
            instance.service = service.clone();
            instance.source = source.clone();
            instance.priority = priority;
            let current = list[indexes.clone()].first().map(|other| other.health);
            instance.health = current.unwrap_or_default();
            match indexes.into_iter().find(|n| list[*n].source == *source) {
                Some(n) if *list[n] == instance => {}
                Some(n) => changes.replaced.push((n, Arc::new(instance))),
                None => changes.added.push(Arc::new(instance)),
            }
        }
        self.apply(service, changes);
    }

    /// Sets the health check verdict on an endpoint for one service; returns whether the verdict
    /// changed. The verdict applies to the service's instances at this endpoint from all sources,
    /// and to instances that are added there while one of them exists.
    pub fn update_backend_health(
        &mut self,
        service: &Name,
        endpoint: &Endpoint,
        healthy: bool,
    ) -> Result<bool, Error> {
        let list = self.instances(service);
        let indexes = instance_range(list, endpoint);
        if indexes.is_empty() {
            let (service, endpoint) = (service.clone(), *endpoint);
            return Err(Error::BackendNotFound { service, endpoint });
        }
        let is_current = |i: &Instance| i.health.since.is_some() && i.health.unhealthy != healthy;
        if list[indexes.clone()].iter().all(|instance| is_current(instance)) {
            return Ok(false);
        }
        let health = Health { unhealthy: !healthy, since: Some(self.now) };
        let updated = |n: usize| (n, Arc::new(Instance { health, ..Instance::clone(&list[n]) }));
        let replaced = indexes.map(updated).collect();
        self.apply(service, Changes { replaced, ..Changes::default() });
        Ok(true)
    }

    /// Removes the health check verdict on an endpoint for one service, after its health check was
    /// removed: only the source's state applies then. Returns whether there was a verdict.
    pub fn remove_backend_health(&mut self, service: &Name, endpoint: &Endpoint) -> bool {
        let list = self.instances(service);
        let health = Health::default();
        let checked = instance_range(list, endpoint).filter(|n| list[*n].health != health);
        let updated = |n: usize| (n, Arc::new(Instance { health, ..Instance::clone(&list[n]) }));
        let replaced: Vec<_> = checked.map(updated).collect();
        let had_verdict = !replaced.is_empty();
        self.apply(service, Changes { replaced, ..Changes::default() });
        had_verdict
    }

    /// Sets the precedence of sources for all current and later instances. A service's frontends
    /// get new rows only if the order of its instances changes.
    pub fn set_precedence(&mut self, precedence: Precedence) {
        let differs = |instance: &Instance| instance.priority != precedence.rank(&instance.source);
        for service in self.services_with(differs) {
            let list = self.instances(&service);
            let removed = indexes_where(list, differs);
            let updated = |n: &usize| {
                let priority = precedence.rank(&list[*n].source);
                Arc::new(Instance { priority, ..Instance::clone(&list[*n]) })
            };
            let added: Vec<Arc<Instance>> = removed.iter().map(updated).collect();
            let mut next: SmallVec<[Arc<Instance>; 1]> = list.iter().cloned().collect();
            removed.iter().zip(&added).for_each(|(n, updated)| next[*n] = Arc::clone(updated));
            if next.is_sorted_by(|one, other| order(one, other).is_le()) {
                if let Some(entry) = self.next.entries.get_mut(&service) {
                    Arc::make_mut(entry).instances = next;
                    self.written = true;
                }
                continue;
            }
            self.apply(&service, Changes { removed, added, replaced: Vec::new() });
        }
        self.precedence = Some(precedence);
    }

    fn instances(&self, service: &Name) -> &[Arc<Instance>] {
        self.next.entries.get(service).map_or(&[], |entry| &entry.instances)
    }

    fn services_with(&self, selects: impl Fn(&Instance) -> bool) -> Vec<Name> {
        let has = |entry: &Entry| entry.instances.iter().any(|instance| selects(instance));
        self.next.entries().filter(|(_, entry)| has(entry)).map(|(name, _)| name.clone()).collect()
    }

    /// Applies the changes to the list of a service's instances and to the index by endpoint, and
    /// records the endpoints as touched.
    fn apply(&mut self, service: &Name, changes: Changes) {
        let Changes { replaced, added, removed } = changes;
        if replaced.is_empty() && added.is_empty() && removed.is_empty() {
            return;
        }
        let lost: Vec<Endpoint> = match removed.is_empty() {
            true => Vec::new(),
            false => {
                let list = self.instances(service);
                removed.iter().map(|n| list[*n].endpoint).collect()
            }
        };
        let new: Vec<Endpoint> = added.iter().map(|instance| instance.endpoint).collect();
        let touched = &mut self.touched.endpoints;
        touched.extend(replaced.iter().map(|(_, instance)| instance.endpoint));
        touched.extend(lost.iter().chain(&new));
        let remaining = self.change(service, |entry| {
            let list = &mut entry.instances;
            for (n, instance) in replaced {
                list[n] = instance;
            }
            remove_indexes(list, &removed);
            match <[_; 1]>::try_from(added) {
                Ok([one]) => list.insert(list.partition_point(|i| order(i, &one).is_lt()), one),
                Err(added) => {
                    list.extend(added);
                    list.sort_by(|one, other| order(one, other));
                }
            }
            let has_instance = |endpoint: &Endpoint| !instance_range(list, endpoint).is_empty();
            lost.iter().map(has_instance).collect::<Vec<bool>>()
        });
        for endpoint in new {
            self.next.endpoints.insert((endpoint, service.clone()), ());
        }
        for (endpoint, has_instance) in lost.into_iter().zip(remaining) {
            if !has_instance {
                self.next.endpoints.remove(&(endpoint, service.clone()));
            }
        }
    }
}

fn indexes_where(list: &[Arc<Instance>], selects: impl Fn(&Instance) -> bool) -> Vec<usize> {
    (0..list.len()).filter(|n| selects(&list[*n])).collect()
}

/// Returns whether an instance of `instances`, which is sorted by endpoint, has the endpoint of
/// `instance`.
fn contains_endpoint(instances: &[Instance], instance: &Instance) -> bool {
    instances.binary_search_by(|other| other.endpoint.cmp(&instance.endpoint)).is_ok()
}

/// Removes the instances at these indexes, which must ascend.
fn remove_indexes(list: &mut SmallVec<[Arc<Instance>; 1]>, indexes: &[usize]) {
    if let [one] = indexes {
        list.remove(*one);
        return;
    }
    let (mut n, mut indexes) = (0, indexes.iter().peekable());
    list.retain(|_| {
        n += 1;
        indexes.next_if(|index| **index + 1 == n).is_none()
    });
}
