//! Lists of backends, indexed by service.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::name::Name;
use crate::object::{BackendsSpec, Object, Spec};

/// Lists of backends by the name of their service; a service may have several lists. To save
/// memory, an entry is only a pointer to the list's object, which contains the name.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: HashTable<Arc<Object>>,
    hasher: RandomState,
}

impl Lists {
    /// Returns the lists of a service, sorted by name.
    pub fn of(&self, service: &Name) -> SmallVec<[&Arc<Object>; 1]> {
        let all = self.lists.iter_hash(self.hasher.hash_one(service));
        let mut of: SmallVec<[_; 1]> = all.filter(|list| is_of(list, service)).collect();
        of.sort_by(|one, other| one.name.cmp(&other.name));
        of
    }

    /// Returns all lists, unsorted.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Object>, &BackendsSpec)> {
        self.lists.iter().filter_map(backends_of)
    }

    /// Adds a list, or replaces the list with the same name, source and service, because events may
    /// be repeated.
    pub fn insert(&mut self, list: Arc<Object>) {
        self.remove(&list);
        let hash = |list: &Arc<Object>| hash(&self.hasher, list);
        self.lists.insert_unique(hash(&list), list, hash);
    }

    /// Removes the list with this object's name, source and service, if any.
    pub fn remove(&mut self, list: &Arc<Object>) {
        let same = |other: &Arc<Object>| other.name == list.name && other.source == list.source;
        if let Ok(found) = self.lists.find_entry(hash(&self.hasher, list), same) {
            found.remove();
            self.shrink_if_sparse();
        }
    }

    /// Shrinks the table, as [`crate::shrink::shrink_if_sparse`] does.
    fn shrink_if_sparse(&mut self) {
        if crate::shrink::is_sparse(self.lists.len(), self.lists.capacity()) {
            let hash = |list: &Arc<Object>| hash(&self.hasher, list);
            self.lists.shrink_to(2 * self.lists.len(), hash);
        }
    }
}

fn hash(hasher: &RandomState, list: &Arc<Object>) -> u64 {
    backends_of(list).map_or(0, |(_, spec)| hasher.hash_one(&spec.service))
}

fn is_of(list: &Arc<Object>, service: &Name) -> bool {
    backends_of(list).is_some_and(|(_, spec)| spec.service == *service)
}

/// Returns the object and its spec if it is a list of backends.
pub(super) fn backends_of(object: &Arc<Object>) -> Option<(&Arc<Object>, &BackendsSpec)> {
    match &object.spec {
        Spec::Backends(spec) => Some((object, spec)),
        _ => None,
    }
}
