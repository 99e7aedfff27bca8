//! Restores the plane's state from the maps of an earlier process. Identifiers are kept, and the
//! first prune removes rows that are no longer desired.

use foldhash::{HashMap, HashSet};

use super::plane::{AddressRows, BackendUse, MapPlane};
use super::{Backend, Failure, Key, Map, Maps, Master, Slot, Value};
use state::address::{Address, is_unspecified, wildcard_of};
use state::backend::State;
use state::dump::Flags;

/// Kinds of frontends that have copies.
const COPIED: [Flags; 2] = [Flags::NODE_PORT, Flags::HOST_PORT];

impl<M: Maps> MapPlane<M> {
    /// Takes over the rows of the maps.
    pub(super) fn restore(&mut self) {
        for key in self.keys(Map::Backends) {
            if let (Key::Backend(id), Some(Value::Backend(backend))) = (key, self.maps.get(&key)) {
                let Backend { endpoint, .. } = backend;
                self.ids.insert(endpoint, id);
                self.backend_uses.insert(id, BackendUse::of(endpoint));
                self.backends.restore(id);
            }
        }
        let keys = self.keys(Map::Services);
        let mut addresses = HashMap::default();
        for key in &keys {
            if let (Key::Service(address, 0), Some(Value::Master(master))) =
                (key, self.maps.get(key))
            {
                self.services.restore(master.id);
                self.addresses.insert(*address, AddressRows::new(master.id));
                addresses.insert(master.id, *address);
                self.restore_wildcard(address, &master);
            }
        }
        for key in &keys {
            if let (Key::Service(address, number), Some(Value::Slot(slot))) =
                (key, self.maps.get(key))
            {
                self.restore_slot(address, *number, slot);
            }
        }
        for map in [Map::Reverse, Map::Affinity, Map::SourceRanges, Map::Maglev] {
            for key in self.keys(map) {
                self.restore_rest(key, &addresses);
            }
        }
        self.quarantined.sort_unstable();
    }

    /// Restores a wildcard. A frontend at an address of the appliance counts as a wildcard's copy
    /// if a wildcard of the same kind exists.
    fn restore_wildcard(&mut self, address: &Address, master: &Master) {
        let Some(of) = wildcard_of(address) else { return };
        let Some(kind) = COPIED.into_iter().find(|kind| master.flags.has(*kind)) else { return };
        if is_unspecified(address) {
            self.wildcards.entry(of).or_default();
        } else if let Some(Value::Master(wildcard)) = self.maps.get(&Key::Service(of, 0))
            && wildcard.flags.has(kind)
        {
            self.wildcards.entry(of).or_default().copies.push(*address);
        }
    }

    fn restore_slot(&mut self, address: &Address, number: u32, slot: Slot) {
        let Some(rows) = self.addresses.get_mut(address) else { return };
        rows.slots = rows.slots.max(number);
        // A quarantine that the source itself requests is not restored: the source reports it
        // again.
        let is_set_by_source = matches!(
            self.maps.get(&Key::Backend(slot.backend)),
            Some(Value::Backend(Backend { state: State::Quarantined, .. }))
        );
        if slot.quarantined
            && !is_set_by_source
            && let Some(of) = self.backend_uses.get(&slot.backend)
        {
            self.quarantined.push((*address, of.endpoint));
        }
        self.restore_holder(address, slot.backend);
    }

    /// Adds the address as a holder of a backend that one of its rows refers to, even if the
    /// earlier process was about to delete that row.
    fn restore_holder(&mut self, address: &Address, id: u32) {
        let Some(rows) = self.addresses.get_mut(address) else { return };
        let Some(of) = self.backend_uses.get_mut(&id) else { return };
        if let Err(at) = rows.backends.binary_search_by_key(&id, |entry| entry.0)
            && let Some(Value::Backend(backend)) = self.maps.get(&Key::Backend(id))
        {
            of.add(backend.state);
            rows.backends.insert(at, (id, backend.state));
        }
    }

    fn restore_rest(&mut self, key: Key, addresses: &HashMap<u32, Address>) {
        let (Key::Reverse(id) | Key::Match(id, _) | Key::Range(id, _) | Key::Maglev(id)) = key
        else {
            return;
        };
        self.services.restore(id);
        let Some(address) = addresses.get(&id) else { return };
        let Some(rows) = self.addresses.get_mut(address) else { return };
        match key {
            Key::Match(_, backend) => {
                rows.matches = true;
                self.restore_holder(address, backend);
            }
            Key::Range(_, prefix) => rows.ranges.push(prefix),
            Key::Maglev(_) => {
                if let Some(Value::Table(table)) = self.maps.get(&key) {
                    for (backend, _) in table.counts() {
                        self.restore_holder(address, backend);
                    }
                }
            }
            _ => {}
        }
    }

    /// Deletes the frontends that are not desired and the rows that no frontend needs, `at_most` of
    /// them. Returns whether none are left. Continues after a failure, and returns the first one.
    pub(super) fn prune_rows(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, Failure> {
        let stays = |plane: &Self, address: &Address| {
            let of = wildcard_of(address).filter(desired);
            let copies = of.and_then(|of| plane.wildcards.get(&of)).map(|of| &of.copies);
            desired(address) || copies.is_some_and(|copies| copies.contains(address))
        };
        let mut all: Vec<Address> = self.addresses.keys().copied().collect();
        all.sort_unstable();
        all.retain(|address| !stays(self, address));
        let (mut result, mut remaining) = (Ok(()), at_most);
        for address in &all {
            if remaining == 0 {
                return result.map(|()| false);
            }
            // A copy may have been deleted with its wildcard.
            if self.addresses.contains_key(address) {
                remaining -= 1;
                result = result.and(self.delete_row(address));
            }
        }
        result = result.and(self.copy_all());
        let ids: HashMap<u32, Address> =
            self.addresses.iter().map(|(address, rows)| (rows.id, *address)).collect();
        // Backends last: no row may refer to a missing backend.
        let pointing = Map::ALL.into_iter().filter(|map| *map != Map::Backends);
        for map in pointing.chain([Map::Backends]) {
            for key in self.keys(map) {
                if self.is_needed(&key, &ids) {
                    continue;
                }
                if remaining == 0 {
                    return result.map(|()| false);
                }
                remaining -= 1;
                result = result.and(self.remove_unneeded(key));
            }
        }
        if result.is_ok() {
            let claimed: HashSet<u32> = ids.into_keys().collect();
            self.services.retain(|id| claimed.contains(&id));
        }
        result.map(|()| true)
    }

    fn is_needed(&self, key: &Key, ids: &HashMap<u32, Address>) -> bool {
        let rows = |id: &u32| ids.get(id).and_then(|address| self.addresses.get(address));
        match key {
            Key::Service(address, number) => {
                self.addresses.get(address).is_some_and(|rows| *number <= rows.slots)
            }
            Key::Backend(id) => self.backend_uses.get(id).is_some_and(|of| of.holders() > 0),
            Key::Reverse(id) | Key::Maglev(id) => rows(id).is_some(),
            Key::Match(id, backend) => rows(id).is_some_and(|rows| {
                rows.matches && rows.backends.binary_search_by_key(backend, |entry| entry.0).is_ok()
            }),
            Key::Range(id, prefix) => rows(id).is_some_and(|rows| rows.ranges.contains(prefix)),
        }
    }

    fn remove_unneeded(&mut self, key: Key) -> Result<(), Failure> {
        match key {
            Key::Backend(id) => self.delete_backend(id),
            key => self.remove(key),
        }
    }
}
