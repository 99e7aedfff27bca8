//! A plane for tests and measurements: Cilium's load-balancing maps as one small trait, one row at
//! a time, in memory and with faults. Each row becomes visible by itself, so that the order of
//! writes is what keeps new flows off dead backends (`row.rs`). No program of Weir has such a
//! plane: the region's is checked against it.
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

/// Which map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Map {
    /// Frontends and their slots.
    Services,
    /// Backends.
    Backends,
    /// Addresses that answers come from.
    Reverse,
    /// With which backends clients may stay.
    Affinity,
    /// Ranges of clients.
    SourceRanges,
    /// Maglev tables.
    Maglev,
}

impl Map {
    /// All of them.
    pub const ALL: [Map; 6] =
        [Map::Services, Map::Backends, Map::Reverse, Map::Affinity, Map::SourceRanges, Map::Maglev];

    /// What gives it room for more rows: the settings that say it, where there are some.
    pub fn remedy(self) -> &'static str {
        match self {
            Map::Services => "raise region.max_frontends and region.slots",
            Map::Backends => "raise region.max_backends",
            Map::Reverse => "raise region.max_frontends",
            Map::Affinity => "take session affinity from some",
            Map::SourceRanges => "take source ranges from some",
            Map::Maglev => "raise region.slots",
        }
    }
}

/// How many rows each map has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Frontends and slots together.
    pub services: usize,
    /// Backends.
    pub backends: usize,
    /// Rows of reverse NAT: one a frontend.
    pub reverse: usize,
    /// Pairs of frontend and backend with affinity.
    pub affinity: usize,
    /// Source ranges of all frontends.
    pub source_ranges: usize,
    /// Maglev tables: one a frontend.
    pub maglev: usize,
}

impl Sizes {
    /// All maps of one size.
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

    /// That of one map.
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

/// Where a row is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// Slot 0 of an address is the frontend ([`Master`]), the others are its [`Slot`]s.
    Service(Address, u32),
    /// A backend by its identifier.
    Backend(u32),
    /// The address of a service, by its identifier.
    Reverse(u32),
    /// Clients of the service may stay with the backend: identifiers of both.
    Match(u32, u32),
    /// A range of a service, by its identifier.
    Range(u32, Prefix),
    /// The Maglev table of a service, by its identifier.
    Maglev(u32),
}

impl Key {
    /// In which map it is.
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

/// What a row says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Of slot 0.
    Master(Master),
    /// Of the other slots.
    Slot(Slot),
    /// Of a backend.
    Backend(Backend),
    /// Of reverse NAT.
    Address(Address),
    /// Of rows that say all by being there: affinity matches and source ranges.
    There,
    /// Of a Maglev table.
    Table(Table),
}

/// A frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Master {
    /// Identifier of the service at this address.
    pub id: u32,
    /// How packets are spread.
    pub spread: Spread,
    /// Slots from 1 that get new flows.
    pub count: u32,
    /// Slots behind them.
    pub rest: u32,
    /// What applies to it.
    pub flags: Flags,
}

/// A slot of a frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Identifier of the backend.
    pub backend: u32,
    /// It failed its checks for this service. A flag and not its place behind the count says so:
    /// the terminating are there as well.
    pub quarantined: bool,
}

/// A backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Where it is.
    pub endpoint: Endpoint,
    /// The most alive that any service's source says of it.
    pub state: State,
}

/// A Maglev table: backends by identifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Table {
    /// All slots of one backend, which most services have: not worth writing out.
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
    /// Backends and how many slots each has, by identifier.
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

/// Why a row wasn't written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// No room.
    #[error(
        "the map of {0:?} is full with {1} rows; {remedy} or remove services",
        remedy = .0.remedy()
    )]
    Full(Map, usize),
    /// No identifier is free.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// Anything else, in the words of whoever keeps the maps.
    #[error("{0}")]
    Failed(String),
}

/// The maps. Each write is visible to packets at once.
pub trait Maps {
    /// The row at a key.
    fn get(&self, key: &Key) -> Option<Value>;

    /// Writes a row, over the one that is there.
    fn update(&mut self, key: Key, value: Value) -> Result<(), Failure>;

    /// Deletes a row; none there is no error.
    fn delete(&mut self, key: &Key) -> Result<(), Failure>;

    /// All keys of a map, in no order.
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
