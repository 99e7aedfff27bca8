//! One address: the order in which its rows are written and deleted.
//!
//! ```text
//!   backends, matches            not referenced yet
//!   slots of serving backends    refer to existing backends, the old or the new ones
//!   Maglev table, source ranges, reverse NAT
//!   master with both counts      makes new slots reachable, and old ones unreachable
//!   slots of non-serving backends, replacing some of serving ones
//!   surplus rows: table, matches, ranges, slots; backends without other holders
//! ```
//! So a new flow never finds a slot whose backend is missing, nor one that must not get new
//! flows. (Cilium deletes backends before the slots that refer to them.) If the map of backends
//! is full, old backends have to be deleted first: the address is written twice, the first time
//! without its new backends.

use std::hash::{DefaultHasher, Hash, Hasher};

use smallvec::SmallVec;
use tables::maglev;

use super::plane::{AddressRows, BackendUse, MapPlane};
use super::{Backend, Failure, Key, Map, Maps, Master, Slot, Table, Value};
use config::services::Algorithm;
use state::address::Address;
use state::backend::{Instance, State};
use state::dump::{Flags, Spread};
use state::object::FrontendSpec;
use state::plane::DesiredFrontend;
use state::shrink::shrink_if_sparse;

/// Identifiers of an address's backends in the order of slots.
type Ids = SmallVec<[u32; 4]>;

impl<M: Maps> MapPlane<M> {
    /// Writes the desired state of an address: its own, or for a copy that of its wildcard.
    pub(super) fn write(
        &mut self,
        address: Address,
        desired: &DesiredFrontend,
    ) -> Result<(), Failure> {
        let mut rows = match self.addresses.remove(&address) {
            Some(rows) => rows,
            None => AddressRows::new(self.services.allocate()?),
        };
        let result = match self.apply(&mut rows, address, desired) {
            Err(Failure::Full(Map::Backends, _) | Failure::Exhausted(_))
                if self.can_free_backends(&rows, desired) =>
            {
                let existing = self.only_existing(desired);
                let first = self.apply(&mut rows, address, &existing);
                first.and_then(|()| self.apply(&mut rows, address, desired))
            }
            result => result,
        };
        self.addresses.insert(address, rows);
        result
    }

    /// Deletes all rows of the address.
    pub(super) fn erase(&mut self, address: &Address) -> Result<(), Failure> {
        let Some(mut rows) = self.addresses.remove(address) else { return Ok(()) };
        let result = self.delete_rows(address, &mut rows);
        match result {
            Ok(()) => {
                self.services.release(rows.id);
                shrink_if_sparse(&mut self.addresses);
            }
            Err(_) => {
                self.addresses.insert(*address, rows);
            }
        }
        result
    }

    fn apply(
        &mut self,
        rows: &mut AddressRows,
        address: Address,
        desired: &DesiredFrontend,
    ) -> Result<(), Failure> {
        let master = self.master(rows.id, address, desired);
        let before = match self.maps.get(&Key::Service(address, 0)) {
            Some(Value::Master(before)) => before.count,
            _ => 0,
        };
        let ids = self.write_backends(rows, desired)?;
        self.write_matches(rows, &master, desired, &ids)?;
        let early = |slot| slot <= master.count || slot > before;
        self.slots(rows, address, desired, &ids, early)?;
        let table = self.table(rows, &master, desired, &ids)?;
        self.write_ranges(rows, desired)?;
        self.put(Key::Reverse(rows.id), Value::Address(address))?;
        self.put(Key::Service(address, 0), Value::Master(master))?;
        self.slots(rows, address, desired, &ids, |slot| !early(slot))?;
        if !table {
            self.remove(Key::Maglev(rows.id))?;
            rows.table = 0;
        }
        if !master.flags.has(Flags::AFFINITY) {
            self.remove_matches(rows)?;
        }
        self.remove_surplus_ranges(rows, desired)?;
        self.remove_surplus_slots(rows, &address, ids.len() as u32)?;
        self.remove_surplus_backends(rows, &ids)
    }

    fn delete_rows(&mut self, address: &Address, rows: &mut AddressRows) -> Result<(), Failure> {
        self.remove(Key::Service(*address, 0))?;
        self.remove(Key::Maglev(rows.id))?;
        rows.table = 0;
        self.remove_matches(rows)?;
        self.remove_surplus_slots(rows, address, 0)?;
        while let Some(prefix) = rows.ranges.last().copied() {
            self.remove(Key::Range(rows.id, prefix))?;
            rows.ranges.pop();
        }
        self.remove_surplus_backends(rows, &[])?;
        // Last, because after a restart this row shows that the identifier is in use.
        self.remove(Key::Reverse(rows.id))
    }

    fn master(&self, id: u32, address: Address, desired: &DesiredFrontend) -> Master {
        let service = &desired.frontend.service;
        let spec = FrontendSpec { address, ..desired.frontend.spec.clone() };
        let count = desired.serving().len() as u32;
        Master {
            id,
            spread: Spread::of(&service.spec, spec.service_port),
            count,
            rest: desired.backends.len() as u32 - count,
            flags: Flags::of(&spec, &service.spec, self.options.open_cluster),
        }
    }

    /// Writes the backends. A backend keeps its identifier while addresses hold it.
    fn write_backends(
        &mut self,
        rows: &mut AddressRows,
        desired: &DesiredFrontend,
    ) -> Result<Ids, Failure> {
        let mut ids = Ids::with_capacity(desired.backends.len());
        for instance in &desired.backends {
            let (endpoint, state) = (instance.endpoint, instance.state);
            let id = match self.ids.get(&endpoint) {
                Some(id) => *id,
                None => {
                    let id = self.backends.allocate()?;
                    self.ids.insert(endpoint, id);
                    id
                }
            };
            let of = self.backend_uses.entry(id).or_insert_with(|| BackendUse::of(endpoint));
            match rows.backends.binary_search_by_key(&id, |entry| entry.0) {
                Ok(at) if rows.backends[at].1 == state => {}
                Ok(at) => {
                    of.remove(rows.backends[at].1);
                    of.add(state);
                    rows.backends[at].1 = state;
                }
                Err(at) => {
                    of.add(state);
                    rows.backends.insert(at, (id, state));
                }
            }
            let state = of.state().unwrap_or_default();
            self.put(Key::Backend(id), Value::Backend(Backend { endpoint, state }))?;
            ids.push(id);
        }
        Ok(ids)
    }

    /// Writes the affinity matches: clients may stay with active backends only.
    fn write_matches(
        &mut self,
        rows: &mut AddressRows,
        master: &Master,
        desired: &DesiredFrontend,
        ids: &[u32],
    ) -> Result<(), Failure> {
        if !master.flags.has(Flags::AFFINITY) {
            return Ok(());
        }
        rows.matches = true;
        for (instance, id) in desired.backends.iter().zip(ids) {
            let key = Key::Match(rows.id, *id);
            match instance.effective() {
                State::Active => self.put(key, Value::Present)?,
                _ => self.remove(key)?,
            }
        }
        Ok(())
    }

    fn remove_matches(&mut self, rows: &mut AddressRows) -> Result<(), Failure> {
        if !rows.matches {
            return Ok(());
        }
        for (id, _) in &rows.backends {
            self.remove(Key::Match(rows.id, *id))?;
        }
        rows.matches = false;
        Ok(())
    }

    /// Writes the slots for whose numbers `selected` returns true.
    fn slots(
        &mut self,
        rows: &mut AddressRows,
        address: Address,
        desired: &DesiredFrontend,
        ids: &[u32],
        selected: impl Fn(u32) -> bool,
    ) -> Result<(), Failure> {
        for (number, (instance, id)) in (1..).zip(desired.backends.iter().zip(ids)) {
            if !selected(number) {
                continue;
            }
            rows.slots = rows.slots.max(number);
            let quarantined = instance.effective() == State::Quarantined;
            let slot = Slot { backend: *id, quarantined };
            self.put(Key::Service(address, number), Value::Slot(slot))?;
        }
        Ok(())
    }

    /// Writes the Maglev table, if the frontend needs one; returns whether it does.
    fn table(
        &mut self,
        rows: &mut AddressRows,
        master: &Master,
        desired: &DesiredFrontend,
        ids: &[u32],
    ) -> Result<bool, Failure> {
        let maglev = Spread::Backends { algorithm: Algorithm::Maglev, affinity_s: 0 };
        let spread = match master.spread {
            Spread::Backends { algorithm, .. } => Spread::Backends { algorithm, affinity_s: 0 },
            proxy => proxy,
        };
        if spread != maglev || !master.flags.has(Flags::ROUTABLE) || master.count == 0 {
            return Ok(false);
        }
        let size = match desired.frontend.service.spec.table_size {
            0 => self.options.maglev_size,
            size => size,
        };
        let key = Key::Maglev(rows.id);
        if let (1, Some(backend)) = (master.count, ids.first()) {
            self.put(key, Value::Table(Table::One { backend: *backend, size }))?;
            rows.table = 0;
            return Ok(true);
        }
        let digest = digest(desired.serving(), ids, size);
        if rows.table != digest {
            let slots = maglev::build(&desired.maglev(), size, self.options.seed);
            let of = |index: &u32| ids.get(*index as usize).copied().unwrap_or_default();
            let table = Table::Slots(slots.iter().map(of).collect());
            self.put(key, Value::Table(table))?;
            rows.table = digest;
        }
        Ok(true)
    }

    fn write_ranges(
        &mut self,
        rows: &mut AddressRows,
        desired: &DesiredFrontend,
    ) -> Result<(), Failure> {
        let Some(ranges) = &desired.frontend.service.spec.source_ranges else { return Ok(()) };
        for prefix in &ranges.prefixes {
            if !rows.ranges.contains(prefix) {
                rows.ranges.push(*prefix);
            }
            self.put(Key::Range(rows.id, *prefix), Value::Present)?;
        }
        Ok(())
    }

    fn remove_surplus_ranges(
        &mut self,
        rows: &mut AddressRows,
        desired: &DesiredFrontend,
    ) -> Result<(), Failure> {
        let desired = desired.frontend.service.spec.source_ranges.as_ref();
        for at in (0..rows.ranges.len()).rev() {
            let prefix = rows.ranges[at];
            if !desired.is_some_and(|ranges| ranges.prefixes.contains(&prefix)) {
                self.remove(Key::Range(rows.id, prefix))?;
                rows.ranges.swap_remove(at);
            }
        }
        Ok(())
    }

    fn remove_surplus_slots(
        &mut self,
        rows: &mut AddressRows,
        address: &Address,
        left: u32,
    ) -> Result<(), Failure> {
        while rows.slots > left {
            self.remove(Key::Service(*address, rows.slots))?;
            rows.slots -= 1;
        }
        Ok(())
    }

    /// Releases the address's backends that are not in `ids`, and deletes those that no other
    /// address holds.
    fn remove_surplus_backends(
        &mut self,
        rows: &mut AddressRows,
        ids: &[u32],
    ) -> Result<(), Failure> {
        if rows.backends.len() == ids.len() {
            return Ok(());
        }
        let mut desired_ids: Ids = ids.into();
        desired_ids.sort_unstable();
        for at in (0..rows.backends.len()).rev() {
            let (id, state) = rows.backends[at];
            if desired_ids.binary_search(&id).is_ok() {
                continue;
            }
            if rows.matches {
                self.remove(Key::Match(rows.id, id))?;
            }
            self.release_backend(id, state)?;
            rows.backends.remove(at);
        }
        Ok(())
    }

    fn release_backend(&mut self, id: u32, state: State) -> Result<(), Failure> {
        let Some(mut of) = self.backend_uses.get(&id).cloned() else { return Ok(()) };
        of.remove(state);
        let Some(state) = of.state() else { return self.delete_backend(id) };
        // The backend's row is missing if the map was full.
        if self.maps.get(&Key::Backend(id)).is_some() {
            let backend = Backend { endpoint: of.endpoint, state };
            self.put(Key::Backend(id), Value::Backend(backend))?;
        }
        self.backend_uses.insert(id, of);
        Ok(())
    }

    /// Deletes a backend and frees its identifier.
    pub(super) fn delete_backend(&mut self, id: u32) -> Result<(), Failure> {
        self.remove(Key::Backend(id))?;
        if let Some(of) = self.backend_uses.remove(&id) {
            self.ids.remove(&of.endpoint);
            shrink_if_sparse(&mut self.ids);
            shrink_if_sparse(&mut self.backend_uses);
        }
        self.backends.release(id);
        Ok(())
    }

    /// Returns whether capacity can be gained from backends that only this address holds and that
    /// are no longer desired.
    fn can_free_backends(&self, rows: &AddressRows, desired: &DesiredFrontend) -> bool {
        let needed = |id| desired.backends.iter().any(|b| self.ids.get(&b.endpoint) == Some(&id));
        let is_sole_holder = |id| self.backend_uses.get(&id).is_some_and(|of| of.holders() == 1);
        rows.backends.iter().any(|(id, _)| is_sole_holder(*id) && !needed(*id))
    }

    /// Returns the desired state without the backends that are not in the map yet.
    fn only_existing(&self, desired: &DesiredFrontend) -> DesiredFrontend {
        let exists = |instance: &Instance| {
            let id = self.ids.get(&instance.endpoint);
            id.is_some_and(|id| self.maps.get(&Key::Backend(*id)).is_some())
        };
        let serving = desired.serving().iter().filter(|instance| exists(instance)).count();
        let mut only = DesiredFrontend { serving, ..desired.clone() };
        only.backends.retain(|instance| exists(instance));
        only
    }
}

/// Returns a digest of a Maglev table's input; never 0.
fn digest(serving: &[std::sync::Arc<Instance>], ids: &[u32], size: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    size.hash(&mut hasher);
    for (instance, id) in serving.iter().zip(ids) {
        (id, instance.weight).hash(&mut hasher);
    }
    hasher.finish().max(1)
}
