//! Maps that check at every write whether a new flow could reach something that does not exist.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use config::services::Algorithm;
use map_plane::{Failure, Key, Map, Maps, Master, MemoryMaps, Value};
use state::dump::{Flags, Spread};

/// Checked maps in memory.
pub struct Checked {
    pub maps: MemoryMaps,
    /// All writes: the key of each, and whether it was deleted.
    pub log: Vec<(Key, bool)>,
    /// Number of writes until one fails.
    pub fail_after: Cell<Option<u64>>,
    /// Whether all writes fail.
    dead: Cell<bool>,
    dies: bool,
}

impl Checked {
    pub fn new(maps: MemoryMaps) -> Checked {
        let (fail_after, dead) = (Cell::new(None), Cell::new(false));
        Checked { maps, log: Vec::new(), fail_after, dead, dies: false }
    }

    /// Makes all writes fail after this number of further ones.
    pub fn dies_after(&mut self, writes: u64) {
        self.fail_after.set(Some(writes));
        self.dies = true;
    }

    /// Makes writes succeed again.
    pub fn lives(&mut self) {
        self.fail_after.set(None);
        self.dead.set(false);
        self.dies = false;
    }

    pub fn writes(&self) -> u64 {
        self.maps.writes()
    }

    fn fault(&self) -> Result<(), Failure> {
        let left = self.fail_after.get();
        self.fail_after.set(left.and_then(|left| left.checked_sub(1)));
        self.dead.set(self.dead.get() || self.dies && left == Some(0));
        match left {
            _ if self.dead.get() => Err(Failure::Failed("this process is dead".into())),
            Some(0) => Err(Failure::Failed("this write failed on purpose".into())),
            _ => Ok(()),
        }
    }

    fn masters(&self) -> impl Iterator<Item = (state::address::Address, Master)> {
        self.maps.keys(Map::Services).into_iter().filter_map(|key| match (key, self.get(&key)) {
            (Key::Service(address, 0), Some(Value::Master(master))) => Some((address, master)),
            _ => None,
        })
    }

    fn has_backend(&self, id: u32) -> bool {
        self.get(&Key::Backend(id)).is_some()
    }

    /// Checks the invariants of the maps.
    fn check(&self) {
        let mut ids = HashSet::new();
        for (address, master) in self.masters() {
            assert!(ids.insert(master.id), "two addresses with identifier {}", master.id);
            for number in 1..=master.count + master.rest {
                let Some(Value::Slot(slot)) = self.get(&Key::Service(address, number)) else {
                    panic!("{address} has no slot {number}");
                };
                let backend = slot.backend;
                assert!(self.has_backend(backend), "{address}: slot {number} -> {backend}: dead");
                let reached = number <= master.count;
                assert!(!(reached && slot.quarantined), "{address}: {number} is quarantined");
            }
            let reverse = self.get(&Key::Reverse(master.id));
            assert_eq!(reverse, Some(Value::Address(address)), "reverse NAT of {address}");
            self.check_table(&address, &master);
        }
        let mut endpoints = HashMap::new();
        for key in self.maps.keys(Map::Backends) {
            if let Some(Value::Backend(backend)) = self.get(&key) {
                let other = endpoints.insert(backend.endpoint, key);
                assert_eq!(other, None, "{} has two identifiers", backend.endpoint);
            }
        }
        for key in self.maps.keys(Map::Affinity) {
            let Key::Match(id, backend) = key else { panic!("{key:?} among the matches") };
            // An entry left by a crash for a service that is gone is never looked up.
            assert!(!ids.contains(&id) || self.has_backend(backend), "{key:?}: dead");
        }
    }

    fn check_table(&self, address: &state::address::Address, master: &Master) {
        let by_table =
            matches!(master.spread, Spread::Backends { algorithm: Algorithm::Maglev, .. });
        let table = self.get(&Key::Maglev(master.id));
        if by_table && master.count > 0 && master.flags.has(Flags::ROUTABLE) {
            assert!(table.is_some(), "{address} has no Maglev table");
        }
        if let Some(Value::Table(table)) = table {
            for (backend, _) in table.counts() {
                assert!(self.has_backend(backend), "{address}: table -> {backend}: dead");
            }
        }
    }
}

impl Maps for Checked {
    fn get(&self, key: &Key) -> Option<Value> {
        self.maps.get(key)
    }

    fn update(&mut self, key: Key, value: Value) -> Result<(), Failure> {
        self.fault()?;
        self.maps.update(key, value)?;
        self.log.push((key, false));
        self.check();
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        self.fault()?;
        self.maps.delete(key)?;
        self.log.push((*key, true));
        self.check();
        Ok(())
    }

    fn keys(&self, map: Map) -> Vec<Key> {
        self.maps.keys(map)
    }
}
