//! The map plane: the identifiers of services and backends, and the frontend addresses that use
//! each backend.

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
use state::plane::{DesiredFrontend, Generation, Plane, PlaneError};

/// The appliance's properties that a map plane needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The appliance's own addresses, for node ports.
    pub addresses: Vec<IpAddr>,
    /// Whether packets from outside may be sent to cluster addresses (`external_cluster_ip`).
    pub open_cluster: bool,
    /// The default number of Maglev table slots.
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

/// The rows that the maps may contain for one address. A row is added here before it is written
/// and removed after it is deleted, so that a failing step leaves no untracked rows behind.
#[derive(Clone, Debug)]
pub(super) struct AddressRows {
    /// The service's identifier at this address.
    pub id: u32,
    /// The highest slot number.
    pub slots: u32,
    /// Whether the affinity map may have rows (service, backend) for this address.
    pub matches: bool,
    /// Digest of the Maglev table's input; 0 if unknown.
    pub table: u64,
    /// The identifiers of backends that slots or tables may refer to, in ascending order, each with
    /// the backend's state at this address.
    pub backends: SmallVec<[(u32, State); 1]>,
    /// Source ranges that may exist.
    pub ranges: Vec<Prefix>,
}

impl AddressRows {
    pub fn new(id: u32) -> AddressRows {
        let backends = SmallVec::new();
        AddressRows { id, slots: 0, matches: false, table: 0, backends, ranges: Vec::new() }
    }
}

/// A backend, and the number of frontend addresses that use it in each state.
#[derive(Clone, Debug)]
pub(super) struct BackendUse {
    pub endpoint: Endpoint,
    holders: [u32; STATES.len()],
}

/// All states, the most available first. The index of a state is its discriminant.
const STATES: [State; 5] = [
    State::Active,
    State::Terminating,
    State::TerminatingNotServing,
    State::Quarantined,
    State::Maintenance,
];

impl BackendUse {
    pub fn of(endpoint: Endpoint) -> BackendUse {
        BackendUse { endpoint, holders: [0; STATES.len()] }
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

    /// Returns the backend's most available state at the frontend addresses that use it; `None` if
    /// no address uses it.
    pub fn state(&self) -> Option<State> {
        STATES.into_iter().find(|state| self.holders[*state as usize] > 0)
    }
}

/// A plane over maps whose writes are visible one by one. It reads before it writes, and omits
/// writes that change nothing.
#[derive(Debug)]
pub struct MapPlane<M> {
    pub(super) maps: M,
    pub(super) options: Options,
    pub(super) services: Identifiers,
    pub(super) backends: Identifiers,
    pub(super) addresses: HashMap<Address, AddressRows>,
    pub(super) ids: HashMap<Endpoint, u32>,
    pub(super) backend_uses: HashMap<u32, BackendUse>,
    pub(super) wildcards: HashMap<Address, Wildcard>,
    pub(super) quarantined: Vec<(Address, Endpoint)>,
    generation: Generation,
    changed: bool,
}

impl<M: Maps> MapPlane<M> {
    /// Creates a plane over maps that may contain rows of an earlier process, whose identifiers
    /// are kept.
    pub fn new(maps: M, options: Options) -> MapPlane<M> {
        MapPlane::with_identifiers(maps, options, Identifiers::default(), Identifiers::default())
    }

    /// Like [`MapPlane::new`], with these identifier allocators, whose maximum tests can lower.
    pub fn with_identifiers(
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
            addresses: HashMap::default(),
            ids: HashMap::default(),
            backend_uses: HashMap::default(),
            wildcards: HashMap::default(),
            quarantined: Vec::new(),
            generation: 1,
            changed: false,
        };
        plane.restore();
        plane
    }

    /// Returns the maps.
    pub fn maps(&self) -> &M {
        &self.maps
    }

    /// Returns the maps, for injecting faults.
    pub fn maps_mut(&mut self) -> &mut M {
        &mut self.maps
    }

    /// Returns the maps as this process leaves them to its successor.
    pub fn into_maps(self) -> M {
        self.maps
    }

    /// Sets the appliance's own addresses. A node port has a row for each of these addresses
    /// without a frontend of its own; the rows follow at its next update or at the next prune.
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

    /// Returns the keys of a map in order, for deterministic processing.
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
            (Key::Match(id, backend), Value::Present) => Record::AffinityMatch { id, backend },
            (Key::Range(id, prefix), Value::Present) => Record::SourceRange { id, prefix },
            (Key::Maglev(id), Value::Table(table)) => Record::Maglev { id, inner: table.counts() },
            _ => return None,
        })
    }
}

impl<M: Maps> Plane for MapPlane<M> {
    fn begin(&mut self) -> Result<(), PlaneError> {
        Ok(())
    }

    fn update(&mut self, desired: &DesiredFrontend) -> Result<(), PlaneError> {
        desired.check()?;
        self.update_row(desired).map_err(PlaneError::new)
    }

    fn delete(&mut self, address: &Address) -> Result<(), PlaneError> {
        self.delete_row(address).map_err(PlaneError::new)
    }

    fn prune(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, PlaneError> {
        self.prune_rows(desired, at_most).map_err(PlaneError::new)
    }

    fn commit(&mut self) -> Result<Generation, PlaneError> {
        if std::mem::take(&mut self.changed) {
            self.generation = self.generation.wrapping_add(1);
        }
        Ok(self.generation)
    }

    /// A write is visible immediately, so there is no acknowledgment to wait for.
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
