//! Outer headers towards backends that were made ready: an index in front of
//! [`crate::tunnel::to_backend`].
//!
//! What a service's tunnel has in common for all packets of a gateway's endpoint is worked out once
//! and kept for one generation. Whatever may change within a generation is no part of it: the next
//! hop with its MAC addresses and path MTU, and all that flow and packet have of their own.

use crate::burst::Work;
use packet::template::Template;
use packet::tunnel::Outer;

/// Tunnels that are kept: a service's, by endpoint and family inside. 16 KiB, of which an lcore
/// touches what it uses.
const PLACES: usize = 256;

/// All that decides within a generation what a template is made of, but the next hop's arm and the
/// backend's family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The gateway endpoint.
    scope_key: u64,
    service: u32,
    /// The gateway, and whether there is IPv6 inside.
    from: u32,
}

impl Key {
    /// No packet's: a gateway's number has 16 bits.
    const NOBODYS: Key = Key { scope_key: 0, service: 0, from: u32::MAX };

    /// Of a packet on its way to a backend, from the gateway with that number.
    #[inline(always)]
    pub fn of(work: &Work, gateway: u16) -> Key {
        Key {
            scope_key: work.front.scope_key,
            service: work.service,
            from: u32::from(gateway) << 1 | u32::from(work.inner.v6),
        }
    }

    #[inline(always)]
    fn place(&self) -> usize {
        (self.service ^ self.scope_key as u32 ^ self.from.rotate_left(7)) as usize % PLACES
    }
}

/// Headers made ready, in one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    key: Key,
    /// What they have in common.
    pub template: Template,
    /// The arm on whose address they are made.
    pub arm: u8,
}

const _: () = assert!(size_of::<Ready>() == 64);

/// What one lcore has ready.
pub struct Prepared {
    /// The tables by which it was made.
    generation: u32,
    places: [Ready; PLACES],
}

impl Default for Prepared {
    fn default() -> Prepared {
        let nothing = Ready { key: Key::NOBODYS, template: Template::default(), arm: 0 };
        Prepared { generation: 0, places: [nothing; PLACES] }
    }
}

impl Prepared {
    /// The headers for packets with this key, by the tables of `generation`.
    #[inline(always)]
    pub fn find(&self, key: &Key, generation: u32) -> Option<&Ready> {
        let ready = &self.places[key.place()];
        (ready.key == *key && self.generation == generation).then_some(ready)
    }

    /// Whether nothing is ready.
    pub fn is_empty(&self) -> bool {
        self.places.iter().all(|ready| ready.key == Key::NOBODYS)
    }

    /// Keeps what was written the long way, if it is of the build that templates are for; what was
    /// made by the tables before goes.
    #[cold]
    pub fn keep(&mut self, key: Key, generation: u32, arm: u8, outer: &Outer<'_>) {
        let Some(template) = Template::of(outer) else { return };
        if self.generation != generation {
            *self = Prepared { generation, ..Prepared::default() };
        }
        self.places[key.place()] = Ready { key, template, arm };
    }
}
