//! Outer headers towards backends that were made ready: an index in front of
//! [`crate::tunnel::to_backend`].
//!
//! What a service's tunnel has in common for all packets of a gateway's endpoint is worked out once
//! and kept for one generation. Whatever may change within a generation is no part of it: the next
//! hop with its MAC addresses and path MTU, and all that flow and packet have of their own.

use crate::burst::{Front, Work};
use packet::template::Template;
use packet::tunnel::Outer;
use tables::flow::prefetch;
use tables::record::NONE;

/// Tunnels that are kept: a service's, by endpoint and family inside. 16 KiB, of which an lcore
/// touches what it uses.
const PLACES: usize = 256;

/// All that decides within a generation what a template is made of, but the next hop's arm and the
/// backend's family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The gateway endpoint's: it means the same for as long as the region lives.
    scope: u32,
    service: u32,
    /// The tunnel that the packet came by, and so its gateway.
    tunnel: u8,
    /// What is inside: IPv6 is 1.
    inside: u8,
}

impl Key {
    /// No packet's: it has neither family inside.
    const NOBODYS: Key = Key { scope: 0, service: NONE, tunnel: u8::MAX, inside: u8::MAX };

    /// Of a packet on its way to a backend.
    #[inline(always)]
    pub fn of(work: &Work) -> Key {
        let Front { scope, tunnel, .. } = work.front;
        Key { scope, service: work.service, tunnel, inside: work.inner.v6.into() }
    }

    #[inline(always)]
    fn place(&self) -> usize {
        let more = u32::from(self.tunnel) << 4 | u32::from(self.inside) << 7;
        (self.service ^ self.scope ^ more) as usize % PLACES
    }
}

/// Headers made ready, in one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    key: Key,
    /// What they have in common.
    pub template: Template,
    /// The number of the gateway whose packets they are for.
    pub gateway: u16,
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
        let nothing =
            Ready { key: Key::NOBODYS, template: Template::default(), gateway: 0, arm: 0 };
        Prepared { generation: 0, places: [nothing; PLACES] }
    }
}

impl Prepared {
    /// Asks the cache for what [`Prepared::find`] will read.
    #[inline(always)]
    pub fn prefetch(&self, key: &Key) {
        prefetch(&self.places[key.place()]);
    }

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

    /// Keeps what was written the long way for packets `by` a gateway and an arm, if it is of the
    /// build that templates are for; what was made by the tables before goes.
    #[cold]
    pub fn keep(&mut self, key: Key, generation: u32, by: (u16, u8), outer: &Outer<'_>) {
        let Some(template) = Template::of(outer) else { return };
        if self.generation != generation {
            *self = Prepared { generation, ..Prepared::default() };
        }
        let (gateway, arm) = by;
        self.places[key.place()] = Ready { key, template, gateway, arm };
    }
}
