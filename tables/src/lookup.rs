//! Hash table of frontends: chained entries, each visible to the generations of its lifetime.
//!
//! In addition to frontends, the table contains marks, whose keys have the reserved protocol 255.
//! An address mark records that an address has frontends, a scope mark that a scope has frontends
//! of its own. A probe mark maps the source of health probes to the backend that they check.
//!
//! Heads and links hold an entry's number plus one, so that zeroed memory is an empty table. Chains
//! change by single stores: an entry is complete before its head refers to it, and is unlinked long
//! before it is reused. A walk is bounded: a damaged chain results in a miss, not in an endless
//! loop.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use core::cell::UnsafeCell;

use packet::addr::Addr;
use packet::flow::HashKey;

use crate::layout::Section;
use crate::record::{ADDRESS_MARK, FrontendKey, Record};
use crate::region::Region;
use crate::region_writer::RegionWriter;
use crate::rows::{Numbered, Rows, Shared};
use crate::versioned::Lifetime;

/// Maximum length of a chain. The writer rejects a frontend whose chain would be longer. The table
/// has at least as many heads as entries, so chains of this length do not occur by chance.
pub const MAX_CHAIN: usize = 48;

/// Port number in the key of an address mark.
const MARK_ADDRESS: u16 = 0;
/// Port number in the key of a scope mark.
const MARK_SCOPE: u16 = 1;
/// Port number in the key of a probe mark.
const MARK_PROBE: u16 = 2;

/// An entry of the hash table: a frontend, whose target is a service, or a mark. The target of a
/// probe mark is a backend. One cache line.
#[repr(C, align(64))]
pub(crate) struct Entry {
    key: UnsafeCell<FrontendKey>,
    target: AtomicU32,
    pub(crate) next: AtomicU32,
    pub(crate) lifetime: Lifetime,
    /// Number that the writer's caller stores with a frontend, for its own lists of frontends;
    /// packets do not read it.
    note: AtomicU32,
}

const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: the key is written only while no reader reads it: the entry is in no chain, or no
// generation sees it.
#[expect(unsafe_code, reason = "shared according to born and dead")]
unsafe impl Sync for Entry {}

// SAFETY: repr(C); atomics and a record, for which any bytes are a value.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Entry {}

impl Entry {
    #[inline(always)]
    pub(crate) fn key(&self) -> &FrontendKey {
        // SAFETY: the key is not written while a generation sees the entry and a reader can reach
        // it.
        #[expect(unsafe_code, reason = "the key according to born and dead")]
        unsafe {
            &*self.key.get()
        }
    }

    #[inline(always)]
    pub(crate) fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    #[cfg(not(target_arch = "bpf"))]
    pub(crate) fn note(&self) -> u32 {
        self.note.load(Ordering::Relaxed)
    }

    /// Fills a free entry, which is in no chain, with its key, target and note.
    pub(crate) fn fill(
        &self,
        writer: &RegionWriter,
        key: FrontendKey,
        (target, note): (u32, u32),
        next: u32,
        born: u32,
    ) {
        self.lifetime.renew(writer, born, || {
            writer.store_record(&self.key, key);
            writer.store_word(&self.target, target);
            writer.store_word(&self.note, note);
            writer.store_word(&self.next, next);
        });
    }
}

/// Summary of the kinds of frontends that exist, so that lookups skip kinds without any.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontendKinds {
    /// Bit n is set if there are networks of n bits, 0 to 127 (in the 128-bit form).
    pub lengths: [u64; 2],
    /// Kinds (`KIND_*`) of single-address frontends that exist.
    pub hosts: u32,
    /// Kinds (`KIND_*`) of network frontends that exist.
    pub networks: u32,
    /// Number of scopes with frontends of their own.
    pub scopes: u32,
    /// Bloom filter of the backends' probe sources: see [`probe_bit`].
    pub probes: u32,
}

/// Kind of keys in which address, port and protocol are set.
pub const KIND_EXACT: u32 = 1;
/// Kind of keys that match any port.
pub const KIND_ANY_PORT: u32 = 2;
/// Kind of keys that match any protocol on their port.
pub const KIND_ANY_PROTOCOL: u32 = 4;
/// Kind of keys that match any port and any protocol.
pub const KIND_ANY: u32 = 8;

const _: () = assert!(size_of::<FrontendKinds>() == 32);

// SAFETY: repr(C), integers, no padding (32 bytes).
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Record for FrontendKinds {}

/// Returns the target of a key in the chain that begins at `link`.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub(crate) fn chained(link: u32, key: FrontendKey, at: u32) -> Option<u32> {
    Frontends::new(&Region).walk(link, key, at).map(|(_, entry)| entry.target())
}

impl FrontendKinds {
    /// Returns a copy made by volatile reads, which the compiler does not repeat.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub(crate) fn copied(&self) -> FrontendKinds {
        // SAFETY: a reference may be read.
        #[expect(unsafe_code, reason = "a volatile read happens exactly once")]
        unsafe {
            FrontendKinds {
                lengths: [
                    (&raw const self.lengths[0]).read_volatile(),
                    (&raw const self.lengths[1]).read_volatile(),
                ],
                hosts: (&raw const self.hosts).read_volatile(),
                networks: (&raw const self.networks).read_volatile(),
                scopes: (&raw const self.scopes).read_volatile(),
                probes: (&raw const self.probes).read_volatile(),
            }
        }
    }

    /// Returns whether all frontends are exact single addresses without a scope.
    #[inline(always)]
    pub(crate) fn are_plain(&self) -> bool {
        let more = u64::from(self.hosts & !KIND_EXACT) | u64::from(self.networks);
        more | u64::from(self.scopes) == 0
    }

    /// Returns the `KIND_*` of a key.
    pub const fn of(key: &FrontendKey) -> u32 {
        match (key.port, key.proto) {
            (0, 0) => KIND_ANY,
            (_, 0) => KIND_ANY_PROTOCOL,
            (0, _) => KIND_ANY_PORT,
            _ => KIND_EXACT,
        }
    }
}

/// The hash table: its sections and its hash key.
#[derive(Clone, Copy)]
pub(crate) struct Frontends<'r> {
    pub(crate) heads: Rows<'r, AtomicU32>,
    bits: Rows<'r, AtomicU64>,
    pub(crate) entries: Rows<'r, Entry>,
    hash_key: HashKey,
}

impl<'r> Frontends<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region) -> Frontends<'r> {
        Frontends {
            heads: region.slice(Section::FrontendHeads),
            bits: region.slice(Section::FrontendBits),
            entries: region.slice(Section::Frontends),
            hash_key: region.hash_key(),
        }
    }

    /// Returns the number of the chain to which a key belongs. The number of heads is a power of
    /// two.
    #[inline(always)]
    fn chain(&self, key: &FrontendKey) -> u32 {
        hash(key, &self.hash_key) as u32 & self.heads.count().wrapping_sub(1)
    }
}

/// Writer operations.
#[cfg(not(target_arch = "bpf"))]
impl<'r> Frontends<'r> {
    /// Returns the head of the chain to which a key belongs.
    pub(crate) fn head(&self, key: &FrontendKey) -> &'r AtomicU32 {
        &self.heads[self.chain(key) as usize]
    }

    /// Sets or clears the bit of the key's chain in the bitmap of non-empty chains. The caller sets
    /// the bit before it links the first entry, and clears it after it has unlinked the last one.
    pub(crate) fn set_chain_bit(&self, writer: &RegionWriter, key: &FrontendKey, filled: bool) {
        let chain = self.chain(key);
        let (word, bit) = (&self.bits[chain as usize / 64], 1 << (chain % 64));
        let before = word.load(Ordering::Relaxed);
        writer.store_u64(word, if filled { before | bit } else { before & !bit });
    }

    /// Recomputes the bitmap from the heads, for a writer that attaches.
    pub(crate) fn rebuild_chain_bits(&self, writer: &RegionWriter) {
        for (heads, word) in self.heads.chunks(64).zip(self.bits) {
            let filled = |head: &AtomicU32| u64::from(head.load(Ordering::Relaxed) != 0);
            let bits = heads.iter().rev().fold(0, |bits, head| bits << 1 | filled(head));
            if word.load(Ordering::Relaxed) != bits {
                writer.store_u64(word, bits);
            }
        }
    }
}

impl<'r> Frontends<'r> {
    /// Returns the number and the entry of `key` that generation `at` sees.
    #[inline(always)]
    pub(crate) fn find(&self, key: &FrontendKey, at: u32) -> Option<(u32, &'r Entry)> {
        self.walk(self.link(key)?, *key, at)
    }

    /// Returns the head of a key's chain, or `None` if the chain is empty.
    #[inline(always)]
    fn link(&self, key: &FrontendKey) -> Option<u32> {
        // Most chains are empty; the bitmap shows this before the key is stored in memory.
        let chain = self.chain(key);
        let bits = self.bits.row(chain / 64)?.load(Ordering::Acquire);
        if bits >> (chain % 64) & 1 == 0 {
            return None;
        }
        Some(self.heads.row(chain)?.load(Ordering::Acquire))
    }

    #[cfg_attr(not(target_arch = "bpf"), inline(never))]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    fn walk(&self, mut link: u32, key: FrontendKey, at: u32) -> Option<(u32, &'r Entry)> {
        for _ in 0..MAX_CHAIN {
            let number = link.checked_sub(1)?;
            let entry = self.entries.row(number)?;
            if entry.lifetime.sees(at) && *entry.key() == key {
                return Some((number, entry));
            }
            link = entry.next.load(Ordering::Acquire);
        }
        None
    }

    /// Returns the target of `key` that generation `at` sees.
    #[inline(always)]
    pub(crate) fn target(&self, key: &FrontendKey, at: u32) -> Option<u32> {
        // A separate function in the BPF program, which the verifier checks once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::walk(self.link(key)?, key, at);
        #[cfg(not(target_arch = "bpf"))]
        self.find(key, at).map(|(_, entry)| entry.target())
    }

    /// Returns the service for a packet to `addr:port` with `proto` in one scope. Match order:
    /// single addresses before networks, longer prefixes before shorter ones; for each of these the
    /// exact key, then any port, then any protocol, then any of both.
    #[cfg_attr(not(target_arch = "bpf"), inline(never))]
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub(crate) fn service(
        &self,
        kinds: &FrontendKinds,
        scope_key: u64,
        addr: &Addr,
        port: u16,
        proto: u8,
        at: u32,
    ) -> Option<u32> {
        let key = FrontendKey::host(scope_key, addr, port, proto);
        if let Some(found) = self.kind_by_kind(kinds.hosts, key, at) {
            return Some(found);
        }
        let [mut short, mut long] = kinds.lengths;
        if addr.is_v4() {
            // IPv4 matches prefixes within `::ffff:0:0/96` only; `::/0` does not match it.
            (short, long) = (0, long & u64::MAX << 32);
        }
        for (first, mut lengths) in [(64, long), (0, short)] {
            for _ in 0..64 {
                if lengths == 0 {
                    break;
                }
                let bit = 63 - lengths.leading_zeros();
                lengths &= !(1 << bit);
                let len = first + bit as u8;
                // In the BPF program, the function that looks up the key masks the address, so that
                // the masking is verified once.
                let network = if cfg!(target_arch = "bpf") { *addr } else { addr.masked(len) };
                let key = FrontendKey { addr: network, prefix_len: len, ..key };
                if let Some(found) = self.kind_by_kind(kinds.networks, key, at) {
                    return Some(found);
                }
            }
        }
        None
    }

    #[inline(always)]
    fn kind_by_kind(&self, kinds: u32, key: FrontendKey, at: u32) -> Option<u32> {
        // A separate function in the BPF program, which the verifier checks once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::try_kinds(kinds, &key, at);
        #[cfg(not(target_arch = "bpf"))]
        self.try_kinds(kinds, key, at)
    }

    /// Returns the target of the first of `kinds`, in match order, under which the table has `key`.
    #[inline(always)]
    pub(crate) fn try_kinds(&self, kinds: u32, key: FrontendKey, at: u32) -> Option<u32> {
        let tries = [
            (KIND_EXACT, key.port, key.proto),
            (KIND_ANY_PORT, 0, key.proto),
            (KIND_ANY_PROTOCOL, key.port, 0),
            (KIND_ANY, 0, 0),
        ];
        for (kind, port, proto) in tries {
            if kinds & kind != 0
                && let Some(found) = self.target(&FrontendKey { port, proto, ..key }, at)
            {
                return Some(found);
            }
        }
        None
    }
}

/// Key of the mark for an address that has frontends in this scope.
pub(crate) fn address_mark(scope_key: u64, addr: &Addr) -> FrontendKey {
    mark(scope_key, *addr, MARK_ADDRESS)
}

/// Key of the mark for a scope that has frontends of its own.
pub(crate) fn scope_mark(scope_key: u64) -> FrontendKey {
    mark(scope_key, Addr::UNSPECIFIED, MARK_SCOPE)
}

/// Key of the mark that maps a probe source to its backend.
pub(crate) fn probe_mark(addr: &Addr) -> FrontendKey {
    mark(0, *addr, MARK_PROBE)
}

/// Returns the bit of a probe source in the Bloom filter [`FrontendKinds::probes`], by which most
/// other addresses are recognized without a lookup.
#[inline(always)]
pub(crate) fn probe_bit(addr: &Addr) -> u32 {
    let [a, b, c, d] = addr.words;
    1 << ((a ^ b ^ c ^ d).wrapping_mul(0x9e37_79b1) >> 27)
}

/// Returns whether a key is a mark instead of a frontend.
pub(crate) const fn is_mark(key: &FrontendKey) -> bool {
    key.proto == ADDRESS_MARK
}

/// Returns whether a key is the mark of a probe source.
pub(crate) const fn is_probe_mark(key: &FrontendKey) -> bool {
    is_mark(key) && key.port == MARK_PROBE
}

const fn mark(scope_key: u64, addr: Addr, port: u16) -> FrontendKey {
    FrontendKey { scope_key, addr, port, proto: ADDRESS_MARK, prefix_len: 128, pad: 0 }
}

/// Hashes a key by the region's hash key, as flow keys are hashed.
#[inline(always)]
fn hash(key: &FrontendKey, hash_key: &HashKey) -> u64 {
    let w = &key.addr.words;
    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
    let rest = u32::from(key.port) | u32::from(key.proto) << 16 | u32::from(key.prefix_len) << 24;
    hash_key.hash(&[key.scope_key, u64::from(rest), pair(w[3], w[2]), pair(w[1], w[0])])
}
