//! A plane over the maps: which identifiers stand for what, and who uses which backend.

use std::net::IpAddr;

use config::checked::Prefix;
use foldhash::HashMap;
use smallvec::SmallVec;
use tables::maglev::Seed;

use super::wildcard::Wildcard;
use super::{Failure, Key, Map, Maps, Value};
use crate::ids::Identifiers;
use state::address::{Address, Endpoint};
use state::backend::State;
use state::dump::Record;
use state::plane::{Generation, Plane, Refusal, Wanted};

/// What a map plane has to know of its appliance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The appliance's own addresses, on which node ports answer.
    pub addresses: Vec<IpAddr>,
    /// Whether packets from outside may go to cluster addresses.
    pub open_cluster: bool,
    /// Slots of the Maglev tables of services that don't say otherwise.
    pub maglev_size: u32,
    /// Seed of the Maglev tables.
    pub seed: Seed,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            addresses: Vec::new(),
            open_cluster: false,
            maglev_size: 16_381,
            seed: Seed::default(),
        }
    }
}

/// What the maps may hold of one address. It is noted before something is written and forgotten
/// after it is deleted, so that a step that fails on the way leaves nothing behind that nobody
/// knows of.
#[derive(Clone, Debug)]
pub(super) struct Book {
    /// The service's identifier at this address.
    pub id: u32,
    /// No slot has a higher number.
    pub slots: u32,
    /// There may be affinity matches.
    pub matches: bool,
    /// Digest of what the Maglev table was made of; 0 where that isn't known.
    pub table: u64,
    /// Backends that slots or tables may point to, by identifier, and what is said of them here.
    pub held: SmallVec<[(u32, State); 1]>,
    /// Source ranges that may be there.
    pub ranges: Vec<Prefix>,
}

impl Book {
    pub fn new(id: u32) -> Book {
        let held = SmallVec::new();
        Book { id, slots: 0, matches: false, table: 0, held, ranges: Vec::new() }
    }
}

/// A backend and how many addresses hold it in which state.
#[derive(Clone, Debug)]
pub(super) struct Use {
    pub endpoint: Endpoint,
    holders: [u32; STATES.len()],
}

const STATES: [State; 5] = [
    State::Active,
    State::Terminating,
    State::TerminatingNotServing,
    State::Quarantined,
    State::Maintenance,
];

impl Use {
    pub fn of(endpoint: Endpoint) -> Use {
        Use { endpoint, holders: [0; STATES.len()] }
    }

    pub fn add(&mut self, state: State) {
        self.holders[state as usize] += 1;
    }

    pub fn remove(&mut self, state: State) {
        self.holders[state as usize] -= 1;
    }

    pub fn holders(&self) -> u32 {
        self.holders.iter().sum()
    }

    /// The most alive that is said of it; none while nobody holds it.
    pub fn state(&self) -> Option<State> {
        STATES.into_iter().find(|state| self.holders[*state as usize] > 0)
    }
}

/// A plane over maps whose writes are visible one by one. It reads what is there before it writes:
/// what is so already isn't written.
#[derive(Debug)]
pub struct MapPlane<M> {
    pub(super) maps: M,
    pub(super) options: Options,
    pub(super) services: Identifiers,
    pub(super) backends: Identifiers,
    pub(super) books: HashMap<Address, Book>,
    pub(super) ids: HashMap<Endpoint, u32>,
    pub(super) uses: HashMap<u32, Use>,
    pub(super) wildcards: HashMap<Address, Wildcard>,
    pub(super) quarantined: Vec<(Address, Endpoint)>,
    generation: Generation,
    changed: bool,
}

impl<M: Maps> MapPlane<M> {
    /// Over maps that may hold what an earlier process wrote: its identifiers are kept.
    pub fn new(maps: M, options: Options) -> MapPlane<M> {
        MapPlane::numbered(maps, options, Identifiers::default(), Identifiers::default())
    }

    /// The same with identifiers for services and for backends from fewer than there are.
    pub fn numbered(
        maps: M,
        options: Options,
        services: Identifiers,
        backends: Identifiers,
    ) -> MapPlane<M> {
        let mut plane = MapPlane {
            maps,
            options,
            services,
            backends,
            books: HashMap::default(),
            ids: HashMap::default(),
            uses: HashMap::default(),
            wildcards: HashMap::default(),
            quarantined: Vec::new(),
            generation: 1,
            changed: false,
        };
        plane.restore();
        plane
    }

    /// The maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// The maps, for whoever makes them fail.
    pub fn maps_mut(&mut self) -> &mut M {
        &mut self.maps
    }

    /// The maps as this process leaves them to the next.
    pub fn into_maps(self) -> M {
        self.maps
    }

    /// The appliance's own addresses are these now. Node ports follow when they are said again.
    pub fn set_addresses(&mut self, addresses: Vec<IpAddr>) {
        self.options.addresses = addresses;
    }

    pub(super) fn put(&mut self, key: Key, value: Value) -> Result<(), Failure> {
        if self.maps.get(&key).as_ref() == Some(&value) {
            return Ok(());
        }
        self.maps.update(key, value)?;
        self.changed = true;
        Ok(())
    }

    pub(super) fn remove(&mut self, key: Key) -> Result<(), Failure> {
        if self.maps.get(&key).is_none() {
            return Ok(());
        }
        self.maps.delete(&key)?;
        self.changed = true;
        Ok(())
    }

    /// The keys of a map in their order, so that what is done with them is the same each time.
    pub(super) fn keys(&self, map: Map) -> Vec<Key> {
        let mut keys = self.maps.keys(map);
        keys.sort_unstable();
        keys
    }

    fn record(&self, key: Key) -> Option<Record> {
        Some(match (key, self.maps.get(&key)?) {
            (Key::Service(address, _), Value::Master(master)) => Record::Service {
                id: master.id,
                address,
                spread: master.spread,
                count: master.count,
                rest: master.rest,
                flags: master.flags,
            },
            (Key::Service(address, number), Value::Slot(slot)) => Record::Slot {
                address,
                slot: number,
                backend: slot.backend,
                quarantined: slot.quarantined,
            },
            (Key::Backend(id), Value::Backend(backend)) => {
                Record::Backend { id, endpoint: backend.endpoint, state: backend.state }
            }
            (Key::Reverse(id), Value::Address(address)) => Record::Reverse { id, address },
            (Key::Match(id, backend), Value::There) => Record::AffinityMatch { id, backend },
            (Key::Range(id, prefix), Value::There) => Record::SourceRange { id, prefix },
            (Key::Maglev(id), Value::Table(table)) => Record::Maglev { id, inner: table.counts() },
            _ => return None,
        })
    }
}

impl<M: Maps> Plane for MapPlane<M> {
    fn begin(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    fn update(&mut self, wanted: &Wanted) -> Result<(), Refusal> {
        wanted.check()?;
        self.update_row(wanted).map_err(Refusal::new)
    }

    fn delete(&mut self, address: &Address) -> Result<(), Refusal> {
        self.delete_row(address).map_err(Refusal::new)
    }

    fn prune(
        &mut self,
        wanted: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, Refusal> {
        self.prune_rows(wanted, at_most).map_err(Refusal::new)
    }

    fn commit(&mut self) -> Result<Generation, Refusal> {
        if std::mem::take(&mut self.changed) {
            self.generation = self.generation.wrapping_add(1);
        }
        Ok(self.generation)
    }

    /// A write is visible at once: there is nobody to wait for.
    fn acknowledged(&self) -> Option<Generation> {
        Some(self.generation)
    }

    fn dump(&self) -> Vec<Record> {
        let keys = Map::ALL.into_iter().flat_map(|map| self.maps.keys(map));
        keys.filter_map(|key| self.record(key)).collect()
    }

    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        self.quarantined.clone()
    }
}
