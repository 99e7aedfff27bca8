//! Writes one frontend to the region, all or nothing.

use std::net::IpAddr;

use config::services::Algorithm;
use foldhash::HashMap;
use packet::addr::Addr;
use state::address::{Address, Endpoint, TrafficScope, is_unspecified, wildcard_of};
use state::frontend::is_wildcard;
use state::plane::{DesiredFrontend, PlaneError, maglev_text};
use tables::maglev;
use tables::note::{Member, ServiceNote};
use tables::record::{self, FrontendKey, NONE};
use tables::writer;

use super::RegionPlane;
use super::desired::{Key, RecordedBackend, Requirement};
use super::selection::{COPY, DesiredBackend, Selection, frontend_keys};
use crate::plane::compile;

/// Result of a write to the prepared tables: those of the next generation.
type WriteResult<T = ()> = Result<T, writer::UpdateError>;

/// Maximum number of differing backends for which a service's list is searched linearly.
const SMALL_DIFFERENCE: usize = 8;

/// Number of serving backends from which a service's sorted backends are kept from one Maglev table
/// to the next, so that a change need not sort all of them again.
const INCREMENTAL_MIN: usize = 256;

/// What a service requires of backends.
type Requirements = Vec<(Key, Requirement)>;

/// State before a frontend was written, for undo.
struct Previous {
    /// `None` if the service did not exist.
    policy: Option<record::Service>,
    /// Requirements that the service no longer has, or has changed.
    removed: Requirements,
    /// Requirements that are new or changed.
    added: Requirements,
    /// Each lookup key, with the service and the note that it had; `None` if it did not exist.
    frontend_keys: Vec<(FrontendKey, Option<(u32, u32)>)>,
}

/// Returns the former requirements that are removed or changed, and those that are new or changed.
/// Fast if most backends are unchanged and in the same order, as is usual for a large service.
fn differences(
    before: &[RecordedBackend],
    desired: &[DesiredBackend],
) -> (Requirements, Requirements) {
    let recorded_pair = |recorded: &RecordedBackend| (recorded.key, recorded.requirement.clone());
    let desired_pair = |desired: &DesiredBackend| (desired.key, desired.requirement.clone());
    let same = |(recorded, desired): &(&RecordedBackend, &DesiredBackend)| {
        recorded.key == desired.key && recorded.requirement == desired.requirement
    };
    let first = before.iter().zip(desired).take_while(same).count();
    let ends = before[first..].iter().rev().zip(desired[first..].iter().rev());
    let last = ends.take_while(same).count();
    let removed = &before[first..before.len() - last];
    let added = &desired[first..desired.len() - last];
    if removed.len() + added.len() <= SMALL_DIFFERENCE {
        let mut keys =
            removed.iter().map(|recorded| &recorded.key).chain(added.iter().map(|a| &a.key));
        let several = |key: &Key| {
            before.iter().filter(|other| other.key == *key).nth(1).is_some()
                || desired.iter().filter(|other| other.key == *key).nth(1).is_some()
        };
        if !keys.any(several) {
            return (
                removed.iter().map(recorded_pair).collect(),
                added.iter().map(desired_pair).collect(),
            );
        }
    }
    let old: HashMap<Key, &Requirement> =
        before.iter().map(|recorded| (recorded.key, &recorded.requirement)).collect();
    let new: HashMap<Key, &Requirement> =
        desired.iter().map(|desired| (desired.key, &desired.requirement)).collect();
    if old.len() < before.len() || new.len() < desired.len() {
        // A backend with several protocols occurs several times, so a map by key can't compare the
        // lists: replace all requirements.
        return (
            before.iter().map(recorded_pair).collect(),
            desired.iter().map(desired_pair).collect(),
        );
    }
    let added = desired
        .iter()
        .filter(|desired| old.get(&desired.key) != Some(&&desired.requirement))
        .map(desired_pair);
    let added = added.collect();
    let removed = before
        .iter()
        .filter(|recorded| new.get(&recorded.key) != Some(&&recorded.requirement))
        .map(recorded_pair);
    (removed.collect(), added)
}

/// Looks up ids of backends by key, in one pass over the backends that the service had before: most
/// of them are in the same order.
struct Members<'b> {
    before: &'b [RecordedBackend],
    at: usize,
}

impl Members<'_> {
    /// Returns the id of the backend with this key if it is among the next [`SMALL_DIFFERENCE`]
    /// backends of the pass.
    fn next(&mut self, key: &Key) -> Option<u32> {
        let left = self.before.get(self.at..)?;
        let passed =
            left.iter().take(SMALL_DIFFERENCE).position(|recorded| recorded.key == *key)?;
        self.at += passed + 1;
        Some(left[passed].backend)
    }
}

impl RegionPlane<'_> {
    /// Writes a frontend and what it requires to the prepared tables; if no packet can reach it,
    /// removes it from them. If capacity is lacking, the frontend stays as it was.
    pub(super) fn apply(&mut self, desired: &DesiredFrontend) -> Result<(), PlaneError> {
        desired.check()?;
        let address = *desired.frontend.address();
        match is_wildcard(&desired.frontend.spec) {
            true => drop(self.wildcards.insert(address, desired.clone())),
            false => drop(self.wildcards.remove(&address)),
        }
        let frontend_keys = self.unclaimed_keys(frontend_keys(&desired.frontend, &self.appliance));
        if frontend_keys.is_empty() {
            self.remove_frontends(&address).map_err(PlaneError::new)?;
            self.unplaced.insert(address, desired.clone());
            return Ok(());
        }
        let selection = Selection::of(desired, &self.config.tables);
        let set = self.writer.prepared();
        let existing =
            self.writer.service_id(&selection.name).filter(|id| set.service(*id).is_some());
        let note = existing.and_then(|id| set.service_note(id));
        let same = note.is_some_and(|note| note.inputs_sum == selection.inputs_sum);
        if !same {
            let (size, serving) = (selection.table_size, selection.serving);
            let capacity = self.writer.check_slots(size, serving, &selection.array_sizes());
            capacity.map_err(PlaneError::new)?;
        }
        let recorded = existing.filter(|_| !same).map(|id| self.requirements_of(id));
        let recorded = recorded.unwrap_or_default();
        let (removed, added) = match same {
            true => (Vec::new(), Vec::new()),
            false => differences(&recorded, &selection.backends),
        };
        let before = Previous {
            policy: existing.and_then(|id| set.service(id)).copied(),
            removed,
            added,
            frontend_keys: frontend_keys
                .iter()
                .map(|(key, _)| (*key, self.writer.frontend(key)))
                .collect(),
        };
        let id =
            self.writer.put_service(&selection.name, &selection.policy).map_err(PlaneError::new)?;
        if let Err(error) = self.put_frontends(id, &frontend_keys, &before) {
            if let Err(undo_error) = self.undo(id, &selection, before) {
                self.broken = Some(PlaneError::new(undo_error));
            }
            return Err(PlaneError::new(error));
        }
        if !same && let Err(error) = self.put_selection(id, &selection, desired, &recorded) {
            // Not a lack of capacity, which `check_slots` has excluded: the prepared tables are now
            // inconsistent.
            self.broken = Some(PlaneError::new(&error));
            return Err(PlaneError::new(error));
        }
        self.unplaced.remove(&address);
        Ok(())
    }

    /// Returns the keys without those of a wildcard's copies ([`COPY`]) at addresses and ports
    /// where another frontend is in the region.
    fn unclaimed_keys(
        &self,
        mut frontend_keys: Vec<(FrontendKey, u32)>,
    ) -> Vec<(FrontendKey, u32)> {
        frontend_keys.retain(|(key, note)| {
            let exact = self.writer.frontend(key).is_some_and(|(_, note)| note & COPY == 0);
            note & COPY == 0 || !exact
        });
        frontend_keys
    }

    /// Writes changed backends and the frontend's lookup keys: the steps that may lack capacity.
    fn put_frontends(
        &mut self,
        id: u32,
        frontend_keys: &[(FrontendKey, u32)],
        before: &Previous,
    ) -> WriteResult {
        self.set_requirements(id, &before.removed, &before.added)?;
        for ((key, note), (_, old)) in frontend_keys.iter().zip(&before.frontend_keys) {
            self.writer.put_noted_frontend(key, id, *note)?;
            if let Some((old, _)) = old.filter(|(old, _)| *old != id) {
                self.unreferenced.insert(old);
            }
        }
        Ok(())
    }

    /// Replaces requirements of a service, and updates the records of the backends concerned.
    fn set_requirements(
        &mut self,
        id: u32,
        before: &[(Key, Requirement)],
        now: &[(Key, Requirement)],
    ) -> WriteResult {
        self.remove_requirements(id, before.iter().map(|(key, _)| key));
        self.add_requirements(id, now.iter().map(|(key, requirement)| (key, requirement)));
        for (key, _) in now.iter().chain(before) {
            self.settle_backend(*key)?;
        }
        Ok(())
    }

    /// Writes the service's note, source ranges, affinity backends and table slots. The capacity
    /// for all has been checked.
    fn put_selection(
        &mut self,
        id: u32,
        selection: &Selection,
        frontend: &DesiredFrontend,
        recorded: &[RecordedBackend],
    ) -> WriteResult {
        let mut members = Vec::with_capacity(selection.backends.len());
        let mut former_members = Members { before: recorded, at: 0 };
        for desired in &selection.backends {
            let by_key = || self.writer.backend_id(&desired.key.addr, desired.key.port);
            let backend = former_members.next(&desired.key).or_else(by_key).unwrap_or(NONE);
            let DesiredBackend { weight, state, protocol, .. } = *desired;
            members.push(Member { backend, weight, state, protocol });
        }
        let note = ServiceNote {
            inputs_sum: selection.inputs_sum,
            serving: selection.serving as u32,
            table_size: selection.table_size,
            ..ServiceNote::default()
        };
        self.writer.put_note(id, &note, &members)?;
        self.writer.set_ranges(id, &selection.ranges, &selection.bounds)?;
        let affinity_ids = selection
            .backends
            .iter()
            .zip(&members)
            .filter(|(desired, _)| selection.has_affinity(desired));
        let mut affinity_ids: Vec<u32> = affinity_ids.map(|(_, member)| member.backend).collect();
        affinity_ids.sort_unstable();
        self.writer.set_affinity_backends(id, &affinity_ids)?;
        // A proxy's service selects no backend.
        let serving = if selection.policy.proxy_port == 0 { selection.serving } else { 0 };
        let ids: Vec<u32> = members.iter().take(serving).map(|m| m.backend).collect();
        let (size, algorithm) = (selection.table_size, frontend.frontend.service.spec.algorithm);
        if algorithm != Algorithm::Maglev || serving < INCREMENTAL_MIN {
            self.orders.remove(&id);
        }
        let orders = &mut self.orders;
        let table = |seed| {
            let serving = &selection.backends[..serving];
            // A terminating backend may have weight 0, and serves if no active backend exists.
            let weights: Vec<u32> = serving.iter().map(|b| u32::from(b.weight).max(1)).collect();
            match algorithm {
                Algorithm::Random => maglev::shares(&weights, size),
                Algorithm::Maglev if serving.len() < INCREMENTAL_MIN => {
                    let mut views = frontend.maglev();
                    views.iter_mut().zip(weights).for_each(|(view, weight)| view.weight = weight);
                    maglev::build(&views, size, seed)
                }
                Algorithm::Maglev => {
                    let backend = |desired: &DesiredBackend| (desired.key, desired.protocol);
                    let backends: Vec<(Key, u8)> = serving.iter().map(backend).collect();
                    let text = |(Key { addr, port }, protocol): &(Key, u8)| {
                        let (addr, port, protocol) = (IpAddr::from(*addr), *port, *protocol);
                        maglev_text(&Endpoint { addr, port, protocol })
                    };
                    orders.entry(id).or_default().table(&backends, &weights, text, size, seed)
                }
            }
        };
        self.writer.set_table(id, &ids, table, size)
    }

    /// Restores the state before `put_frontends` failed.
    fn undo(&mut self, id: u32, selection: &Selection, before: Previous) -> WriteResult {
        for (key, old) in before.frontend_keys {
            match old {
                Some((service, note)) => self.writer.put_noted_frontend(&key, service, note)?,
                None => self.writer.remove_frontend(&key)?,
            }
        }
        self.set_requirements(id, &before.added, &before.removed)?;
        match before.policy {
            Some(policy) => self.writer.put_service(&selection.name, &policy).map(drop),
            None => {
                self.unreferenced.insert(id);
                Ok(())
            }
        }
    }

    /// Removes a frontend. If a wildcard covers its address, the wildcard's copy is restored.
    pub(super) fn remove(&mut self, address: &Address) -> Result<(), PlaneError> {
        self.unplaced.remove(address);
        self.wildcards.remove(address);
        self.remove_frontends(address).map_err(PlaneError::new)?;
        let covering = wildcard_of(address).and_then(|all| self.wildcards.get(&all)).cloned();
        covering.map_or(Ok(()), |wildcard| self.apply(&wildcard))
    }

    /// Removes all lookup keys of a frontend. The service may have lost its last frontend.
    fn remove_frontends(&mut self, address: &Address) -> WriteResult {
        // An internal frontend has no lookup key of its own: its key would be that of the external
        // frontend, which is removed separately.
        if address.traffic_scope == TrafficScope::Internal {
            return Ok(());
        }
        let key = compile::key(address);
        if !is_unspecified(address) {
            return self.remove_frontend(&key);
        }
        let of_family = |addr: &std::net::IpAddr| addr.is_ipv4() == address.is_ipv4();
        let own: Vec<_> = self.appliance.addresses.iter().filter(|a| of_family(a)).collect();
        let copies = own.into_iter().map(|addr| FrontendKey { addr: (*addr).into(), ..key });
        for copy in copies.collect::<Vec<_>>() {
            if self.writer.frontend(&copy).is_some_and(|(_, note)| note & COPY != 0) {
                self.remove_frontend(&copy)?;
            }
        }
        Ok(())
    }

    fn remove_frontend(&mut self, key: &FrontendKey) -> WriteResult {
        if let Some((service, _)) = self.writer.frontend(key) {
            self.writer.remove_frontend(key)?;
            self.unreferenced.insert(service);
        }
        Ok(())
    }

    /// Removes the services without frontends; their backends begin to drain.
    pub(super) fn remove_unreferenced_services(&mut self) -> WriteResult {
        for id in std::mem::take(&mut self.unreferenced) {
            if self.writer.frontends_of(id) > 0 || self.writer.prepared().service(id).is_none() {
                continue;
            }
            let before = self.writer.changes();
            let keys: Vec<Key> =
                self.requirements_of(id).into_iter().map(|recorded| recorded.key).collect();
            self.orders.remove(&id);
            self.remove_requirements(id, &keys);
            for key in keys {
                self.settle_backend(key)?;
            }
            self.writer.remove_service(id)?;
            if self.writer.committed().service(id).is_none() {
                // The service was never committed: it was created for a rejected frontend.
                self.batch.1 += self.writer.changes() - before;
            }
        }
        Ok(())
    }

    /// Removes up to `at_most` lookup keys of frontends that are not `desired`, and of copies of
    /// wildcards at former addresses of the appliance. Returns whether no such key is left.
    pub(super) fn prune_frontends(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> WriteResult<bool> {
        self.unplaced.retain(|address, _| desired(address));
        self.wildcards.retain(|address, _| desired(address));
        let mut removed = Vec::new();
        let set = self.writer.prepared();
        for (key, _, note) in set.frontend_notes() {
            let address = super::dump::address(key, note);
            let own = self.appliance.addresses.iter().any(|addr| Addr::from(*addr) == key.addr);
            if !desired(&address) || (note & COPY != 0 && !own) {
                removed.push(*key);
            }
        }
        for key in removed.iter().take(at_most) {
            self.remove_frontend(key)?;
        }
        if removed.len() > at_most {
            return Ok(false);
        }
        for (id, _) in set.services() {
            if self.writer.frontends_of(id) == 0 {
                self.unreferenced.insert(id);
            }
        }
        let keys = set.backends().map(|(_, b)| Key { addr: b.addr, port: b.port });
        for key in keys.collect::<Vec<_>>() {
            if !self.requirements.contains_key(&key) {
                self.settle_backend(key)?;
            }
        }
        Ok(true)
    }
}
