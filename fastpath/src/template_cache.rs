//! A cache of outer header templates towards backends, consulted first by
//! [`crate::tunnel::to_backend`].
//!
//! The parts of a service's tunnel headers that are equal for all packets of a gateway's endpoint
//! are computed once per generation. State that may change within a generation is excluded: the
//! next hop with its MAC addresses and path MTU, and everything specific to a flow or packet.

use crate::burst::{OuterHeaders, PacketState};
use packet::template::Template;
use packet::tunnel::Outer;
use tables::flow::prefetch;
use tables::record::NONE;

/// The number of entries: one service, endpoint and inner family each. 16 KiB in total, of which an
/// lcore touches only the entries in use.
const ENTRIES: usize = 256;

/// The key of a template: everything that determines it within a generation, except the next hop's
/// arm and the backend's family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    /// The scope of the gateway's endpoint.
    scope: u32,
    service: u32,
    /// The tunnel through which the packet arrived, and thereby its gateway.
    tunnel: u8,
    /// Inner family: 0 for IPv4, 1 for IPv6.
    inner_family: u8,
}

impl Key {
    /// A key that matches no packet: its inner family is invalid.
    const INVALID: Key = Key { scope: 0, service: NONE, tunnel: u8::MAX, inner_family: u8::MAX };

    /// Returns the key of a packet to a backend.
    #[inline(always)]
    pub fn of(pkt: &PacketState) -> Key {
        let OuterHeaders { scope, tunnel, .. } = pkt.headers;
        Key { scope, service: pkt.service, tunnel, inner_family: pkt.inner.v6.into() }
    }

    #[inline(always)]
    fn index(&self) -> usize {
        let more = u32::from(self.tunnel) << 4 | u32::from(self.inner_family) << 7;
        (self.service ^ self.scope ^ more) as usize % ENTRIES
    }
}

/// A cache entry, in one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct CachedTemplate {
    key: Key,
    /// Header fields shared by all packets with this key.
    pub template: Template,
    /// Number of the gateway whose packets the template is for.
    pub gateway: u16,
    /// The arm whose address is the outer source.
    pub arm: u8,
}

const _: () = assert!(size_of::<CachedTemplate>() == 64);

/// The template cache of one lcore.
pub struct TemplateCache {
    /// The generation of the tables from which the templates were built.
    generation: u32,
    entries: [CachedTemplate; ENTRIES],
}

impl Default for TemplateCache {
    fn default() -> TemplateCache {
        let empty =
            CachedTemplate { key: Key::INVALID, template: Template::default(), gateway: 0, arm: 0 };
        TemplateCache { generation: 0, entries: [empty; ENTRIES] }
    }
}

impl TemplateCache {
    /// Drops all templates. Called at least every `CACHE_MAX_S` seconds: a released scope can be
    /// given to another endpoint, whose packets must not carry the former endpoint's options.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            *self = TemplateCache::default();
        }
    }

    /// Prefetches the entry that [`TemplateCache::find`] will read.
    #[inline(always)]
    pub fn prefetch(&self, key: &Key) {
        prefetch(&self.entries[key.index()]);
    }

    /// Returns the template for packets with this key, if it was built from the tables of
    /// `generation`.
    #[inline(always)]
    pub fn find(&self, key: &Key, generation: u32) -> Option<&CachedTemplate> {
        let entry = &self.entries[key.index()];
        (entry.key == *key && self.generation == generation).then_some(entry)
    }

    /// Returns true if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|entry| entry.key == Key::INVALID)
    }

    /// Stores a template of `outer`, which was built for packets of `gateway` that leave through
    /// `arm`, if its layout is supported. Discards all templates of another generation.
    #[cold]
    pub fn insert(
        &mut self,
        key: Key,
        generation: u32,
        (gateway, arm): (u16, u8),
        outer: &Outer<'_>,
    ) {
        let Some(template) = Template::of(outer) else { return };
        if self.generation != generation {
            *self = TemplateCache { generation, ..TemplateCache::default() };
        }
        self.entries[key.index()] = CachedTemplate { key, template, gateway, arm };
    }
}
