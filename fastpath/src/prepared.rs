//! Outer headers towards backends that were made ready: an index in front of
//! [`crate::tunnel::to_backend`].
//!
//! What a service's tunnel has in common for all packets of a gateway's endpoint is worked out once
//! and kept for one generation. Whatever may change within a generation is no part of it: the next
//! hop with its MAC addresses and path MTU, and all that flow and packet have of their own.

use crate::burst::Work;
use crate::lcore::Lcore;
use packet::template::Template;
use packet::tunnel::Outer;

/// Tunnels that are kept: a service's, by endpoint and family inside. 22 KiB, of which an lcore
/// touches what it uses.
const PLACES: usize = 256;

/// All that decides what a template is made of, but the next hop's arm and the backend's family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// Generation, and the service.
    tables: u64,
    /// The gateway endpoint.
    scope_key: u64,
    /// The gateway, and whether there is IPv6 inside.
    from: u32,
}

impl Key {
    /// Of a packet on its way to a backend, from the gateway with that number.
    #[inline(always)]
    pub fn of(work: &Work, lcore: &Lcore<'_>, gateway: u16) -> Key {
        let generation = lcore.snapshot().generation;
        Key {
            tables: u64::from(generation) << 32 | u64::from(work.service),
            scope_key: work.front.scope_key,
            from: u32::from(gateway) << 1 | u32::from(work.inner.v6),
        }
    }

    #[inline(always)]
    fn place(&self) -> usize {
        let mixed = self.tables as u32 ^ self.scope_key as u32 ^ self.from.rotate_left(7);
        mixed as usize % PLACES
    }
}

/// Headers made ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    key: Key,
    /// The arm on whose address they are made.
    pub arm: u8,
    /// What they have in common.
    pub template: Template,
}

/// What one lcore has ready.
pub struct Prepared {
    places: [Option<Ready>; PLACES],
}

impl Default for Prepared {
    fn default() -> Prepared {
        Prepared { places: [None; PLACES] }
    }
}

impl Prepared {
    /// The headers for packets with this key.
    #[inline(always)]
    pub fn find(&self, key: &Key) -> Option<&Ready> {
        self.places[key.place()].as_ref().filter(|ready| ready.key == *key)
    }

    /// Whether nothing is ready.
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Keeps what was written the long way, if it is of the build that templates are for.
    #[cold]
    pub fn keep(&mut self, key: Key, arm: u8, outer: &Outer<'_>) {
        if let Some(template) = Template::of(outer) {
            self.places[key.place()] = Some(Ready { key, arm, template });
        }
    }
}
