//! A plane for tests and measurements: Cilium's load-balancing maps behind a small trait, in memory
//! and with injected faults. Rows are written one at a time and become visible one by one, so that
//! only the order of writes keeps new flows off dead backends (`row.rs`). No program of Weir uses
//! this plane: tests compare the plane of the region with it.
#![forbid(unsafe_code)]

use std::sync::Arc;

use config::checked::Prefix;

use crate::ids::Exhausted;
use state::address::{Address, Endpoint};
use state::backend::State;
use state::dump::{Flags, Spread};

mod faulty;
pub mod ids;
mod memory;
mod node_ports;
mod plane;
mod restore;
mod row;
mod wildcard;

pub use faulty::FaultyMaps;
pub use memory::MemoryMaps;
pub use plane::{MapPlane, Options};

/// A kind of map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Map {
    /// Frontends and their slots.
    Services,
    /// Backends.
    Backends,
    /// Frontend addresses by service identifier, for reverse translation.
    Reverse,
    /// Pairs of service and backend: clients of the service may stay with the backend.
    Affinity,
    /// Client source ranges.
    SourceRanges,
    /// Maglev tables.
    Maglev,
}

impl Map {
    /// All kinds.
    pub const ALL: [Map; 6] =
        [Map::Services, Map::Backends, Map::Reverse, Map::Affinity, Map::SourceRanges, Map::Maglev];

    /// Returns what to do if the map is full: raise the relevant settings, or use fewer rows.
    pub fn remedy(self) -> &'static str {
        match self {
            Map::Services => "raise region.max_frontends and region.slots",
            Map::Backends => "raise region.max_backends",
            Map::Reverse => "raise region.max_frontends",
            Map::Affinity => "remove session affinity from some",
            Map::SourceRanges => "remove source ranges from some",
            Map::Maglev => "raise region.slots",
        }
    }
}

/// The capacity of each map, in rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Frontends and slots together.
    pub services: usize,
    /// Backends.
    pub backends: usize,
    /// Rows of reverse NAT: one per frontend.
    pub reverse: usize,
    /// Pairs of frontend and backend with affinity.
    pub affinity: usize,
    /// Source ranges of all frontends.
    pub source_ranges: usize,
    /// Maglev tables: one per frontend.
    pub maglev: usize,
}

impl Sizes {
    /// Returns the same capacity for all maps.
    pub const fn all(rows: usize) -> Sizes {
        Sizes {
            services: rows,
            backends: rows,
            reverse: rows,
            affinity: rows,
            source_ranges: rows,
            maglev: rows,
        }
    }

    /// Returns the capacity of one map.
    pub fn of(&self, map: Map) -> usize {
        match map {
            Map::Services => self.services,
            Map::Backends => self.backends,
            Map::Reverse => self.reverse,
            Map::Affinity => self.affinity,
            Map::SourceRanges => self.source_ranges,
            Map::Maglev => self.maglev,
        }
    }
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes::all(65_536)
    }
}

/// The key of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// A slot of an address: slot 0 is the frontend ([`Master`]), the others are its [`Slot`]s.
    Service(Address, u32),
    /// A backend by its identifier.
    Backend(u32),
    /// The address of a service, by its identifier.
    Reverse(u32),
    /// The identifiers of a service and of a backend with which the service's clients may stay.
    Match(u32, u32),
    /// A source range of a service, by its identifier.
    Range(u32, Prefix),
    /// The Maglev table of a service, by its identifier.
    Maglev(u32),
}

impl Key {
    /// Returns the map of the key.
    pub fn map(&self) -> Map {
        match self {
            Key::Service(..) => Map::Services,
            Key::Backend(_) => Map::Backends,
            Key::Reverse(_) => Map::Reverse,
            Key::Match(..) => Map::Affinity,
            Key::Range(..) => Map::SourceRanges,
            Key::Maglev(_) => Map::Maglev,
        }
    }
}

/// The value of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// The value of slot 0.
    Master(Master),
    /// The value of another slot.
    Slot(Slot),
    /// The value of a backend's row.
    Backend(Backend),
    /// The value of a row of reverse NAT.
    Address(Address),
    /// The value of affinity matches and source ranges: only their keys matter.
    Present,
    /// The value of a Maglev table's row.
    Table(Table),
}

/// A frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Master {
    /// Identifier of the service at this address.
    pub id: u32,
    /// How new flows are distributed.
    pub spread: Spread,
    /// The number of slots, from slot 1 on, whose backends get new flows.
    pub count: u32,
    /// The number of slots after those.
    pub rest: u32,
    /// The frontend's flags.
    pub flags: Flags,
}

/// A slot of a frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Identifier of the backend.
    pub backend: u32,
    /// Whether the backend failed its health checks for this service. The position behind
    /// [`Master::count`] does not show that, because terminating backends have such positions too.
    pub quarantined: bool,
}

/// A backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Its address and port.
    pub endpoint: Endpoint,
    /// The most available of the states that services report for the backend.
    pub state: State,
}

/// A Maglev table: backends by identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Table {
    /// One backend in all slots. Most services have one backend, so the slots are not stored.
    One {
        /// The backend.
        backend: u32,
        /// Number of slots.
        size: u32,
    },
    /// The backend of each slot.
    Slots(Arc<[u32]>),
}

impl Table {
    /// Returns each backend with its number of slots, in the order of identifiers.
    pub fn counts(&self) -> Vec<(u32, u32)> {
        match self {
            Table::One { backend, size } => vec![(*backend, *size)],
            Table::Slots(slots) => {
                let mut counts = std::collections::BTreeMap::new();
                for backend in slots.iter() {
                    *counts.entry(*backend).or_insert(0) += 1;
                }
                counts.into_iter().collect()
            }
        }
    }
}

/// Why a row was not written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The map is full.
    #[error(
        "the map of {0:?} is full with {1} rows; {remedy} or remove services",
        remedy = .0.remedy()
    )]
    Full(Map, usize),
    /// No identifier is free.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// Any other error of the map implementation.
    #[error("{0}")]
    Failed(String),
}

/// The maps. Each write is visible to packets immediately.
pub trait Maps {
    /// Returns the row of a key.
    fn get(&self, key: &Key) -> Option<Value>;

    /// Writes a row, replacing an existing one.
    fn update(&mut self, key: Key, value: Value) -> Result<(), Failure>;

    /// Deletes a row; a missing row is no error.
    fn delete(&mut self, key: &Key) -> Result<(), Failure>;

    /// Returns all keys of a map, in arbitrary order.
    fn keys(&self, map: Map) -> Vec<Key>;
}

impl<M: Maps + ?Sized> Maps for &mut M {
    fn get(&self, key: &Key) -> Option<Value> {
        (**self).get(key)
    }

    fn update(&mut self, key: Key, value: Value) -> Result<(), Failure> {
        (**self).update(key, value)
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        (**self).delete(key)
    }

    fn keys(&self, map: Map) -> Vec<Key> {
        (**self).keys(map)
    }
}
