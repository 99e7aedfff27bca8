//! The maps in ordinary memory.

use std::hash::Hash;

use config::checked::Prefix;
use foldhash::HashMap;

use super::{Backend, Failure, Key, Map, Maps, Master, Sizes, Slot, Table, Value};
use state::address::Address;
use state::shrink::shrink_if_sparse;

/// In-memory maps with limited capacity.
#[derive(Clone, Debug, Default)]
pub struct MemoryMaps {
    sizes: Sizes,
    masters: HashMap<Address, Master>,
    slots: HashMap<(Address, u32), Slot>,
    backends: HashMap<u32, Backend>,
    reverse: HashMap<u32, Address>,
    matches: HashMap<(u32, u32), ()>,
    ranges: HashMap<(u32, Prefix), ()>,
    maglev: HashMap<u32, Table>,
    writes: u64,
}

impl MemoryMaps {
    /// Creates empty maps of these sizes.
    pub fn new(sizes: Sizes) -> MemoryMaps {
        MemoryMaps { sizes, ..MemoryMaps::default() }
    }

    /// Returns the number of writes and deletes.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns the number of rows of a map.
    pub fn rows(&self, map: Map) -> usize {
        match map {
            Map::Services => self.masters.len() + self.slots.len(),
            Map::Backends => self.backends.len(),
            Map::Reverse => self.reverse.len(),
            Map::Affinity => self.matches.len(),
            Map::SourceRanges => self.ranges.len(),
            Map::Maglev => self.maglev.len(),
        }
    }
}

impl Maps for MemoryMaps {
    fn get(&self, key: &Key) -> Option<Value> {
        match key {
            Key::Service(address, 0) => self.masters.get(address).copied().map(Value::Master),
            Key::Service(address, slot) => {
                self.slots.get(&(*address, *slot)).copied().map(Value::Slot)
            }
            Key::Backend(id) => self.backends.get(id).copied().map(Value::Backend),
            Key::Reverse(id) => self.reverse.get(id).copied().map(Value::Address),
            Key::Match(id, backend) => {
                self.matches.contains_key(&(*id, *backend)).then_some(Value::Present)
            }
            Key::Range(id, prefix) => {
                self.ranges.contains_key(&(*id, *prefix)).then_some(Value::Present)
            }
            Key::Maglev(id) => self.maglev.get(id).cloned().map(Value::Table),
        }
    }

    fn update(&mut self, key: Key, value: Value) -> Result<(), Failure> {
        let map = key.map();
        let size = self.sizes.of(map);
        if self.rows(map) >= size && self.get(&key).is_none() {
            return Err(Failure::Full(map, size));
        }
        match (key, value) {
            (Key::Service(address, 0), Value::Master(master)) => {
                self.masters.insert(address, master);
            }
            (Key::Service(address, number), Value::Slot(slot)) if number != 0 => {
                self.slots.insert((address, number), slot);
            }
            (Key::Backend(id), Value::Backend(backend)) => {
                self.backends.insert(id, backend);
            }
            (Key::Reverse(id), Value::Address(address)) => {
                self.reverse.insert(id, address);
            }
            (Key::Match(id, backend), Value::Present) => {
                self.matches.insert((id, backend), ());
            }
            (Key::Range(id, prefix), Value::Present) => {
                self.ranges.insert((id, prefix), ());
            }
            (Key::Maglev(id), Value::Table(table)) => {
                self.maglev.insert(id, table);
            }
            (key, value) => {
                return Err(Failure::Failed(format!("{value:?} does not fit {key:?}")));
            }
        }
        self.writes += 1;
        Ok(())
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        let was = match key {
            Key::Service(address, 0) => remove(&mut self.masters, address),
            Key::Service(address, slot) => remove(&mut self.slots, &(*address, *slot)),
            Key::Backend(id) => remove(&mut self.backends, id),
            Key::Reverse(id) => remove(&mut self.reverse, id),
            Key::Match(id, backend) => remove(&mut self.matches, &(*id, *backend)),
            Key::Range(id, prefix) => remove(&mut self.ranges, &(*id, *prefix)),
            Key::Maglev(id) => remove(&mut self.maglev, id),
        };
        self.writes += u64::from(was);
        Ok(())
    }

    fn keys(&self, map: Map) -> Vec<Key> {
        match map {
            Map::Services => {
                let masters = self.masters.keys().map(|address| Key::Service(*address, 0));
                let slots = self.slots.keys().map(|(address, slot)| Key::Service(*address, *slot));
                masters.chain(slots).collect()
            }
            Map::Backends => self.backends.keys().copied().map(Key::Backend).collect(),
            Map::Reverse => self.reverse.keys().copied().map(Key::Reverse).collect(),
            Map::Affinity => self.matches.keys().map(|(id, b)| Key::Match(*id, *b)).collect(),
            Map::SourceRanges => self.ranges.keys().map(|(id, p)| Key::Range(*id, *p)).collect(),
            Map::Maglev => self.maglev.keys().copied().map(Key::Maglev).collect(),
        }
    }
}

/// Removes a key and returns whether it existed.
fn remove<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: &K) -> bool {
    let was = map.remove(key).is_some();
    shrink_if_sparse(map);
    was
}
