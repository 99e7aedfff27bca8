//! The hash of frontends: chains of entries that are born and die with generations.
//!
//! Heads and links hold the entry's number plus one, so that zeroed memory is an empty table.
//! Chains change by single stores: an entry is complete before its head refers to it, and unlinked
//! long before its room is used again. A walk is bounded: a damaged chain is a miss, not a hang.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use core::cell::UnsafeCell;

use packet::addr::Addr;
use packet::flow::HashKey;

use crate::layout::Section;
use crate::pen::Pen;
use crate::record::{ADDRESS_MARK, FrontendKey, Record};
use crate::region::Region;
use crate::rows::{Numbered, Rows, Shared};
use crate::versioned::Life;

/// Longest chain. The writer refuses a frontend that would make one longer; with at most one entry
/// per head on average that has never been seen.
pub const MAX_CHAIN: usize = 48;

/// Port number of an address mark's key.
const MARK_ADDRESS: u16 = 0;
/// Port number of a scope mark's key: "this scope has frontends of its own".
const MARK_SCOPE: u16 = 1;
/// Port number of a probe source's key; its target is a backend.
const MARK_PROBE: u16 = 2;

/// An entry of the hash: a frontend (its target is a service) or a mark. One cache line.
#[repr(C, align(64))]
pub(crate) struct Entry {
    key: UnsafeCell<FrontendKey>,
    target: AtomicU32,
    pub(crate) next: AtomicU32,
    pub(crate) life: Life,
    /// For whoever lists frontends; no packet asks.
    note: AtomicU32,
}

const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: the key is written only while the entry is in no chain, or not born.
#[expect(unsafe_code, reason = "shared by the rules of born and dead")]
unsafe impl Sync for Entry {}

// SAFETY: repr(C); atomics and a record, for which any bytes are a value.
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Shared for Entry {}

impl Entry {
    #[inline(always)]
    pub(crate) fn key(&self) -> &FrontendKey {
        // SAFETY: not written while it can be reached by a reader that sees it.
        #[expect(unsafe_code, reason = "the key behind the rules of born and dead")]
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

    /// Fills a free entry, target and note; nobody can reach it.
    pub(crate) fn fill(
        &self,
        pen: &Pen,
        key: FrontendKey,
        (target, note): (u32, u32),
        next: u32,
        born: u32,
    ) {
        self.life.renew(pen, born, || {
            pen.record(&self.key, key);
            pen.word(&self.target, target);
            pen.word(&self.note, note);
            pen.word(&self.next, next);
        });
    }
}

/// Which frontends there are at all, so that a look-up tries nothing in vain.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontendKinds {
    /// Bit n: there are networks with n bits, 0 to 127 (in the 128-bit form).
    pub lengths: [u64; 2],
    /// `KIND_*` of single addresses.
    pub hosts: u32,
    /// `KIND_*` of networks.
    pub networks: u32,
    /// How many scopes have frontends of their own.
    pub scopes: u32,
    /// The [`probe_bit`] of each backend's probe source.
    pub probes: u32,
}

/// Address, port and protocol given.
pub const KIND_EXACT: u32 = 1;
/// Any port.
pub const KIND_ANY_PORT: u32 = 2;
/// Any protocol, this port.
pub const KIND_ANY_PROTOCOL: u32 = 4;
/// Any port and any protocol.
pub const KIND_ANY: u32 = 8;

const _: () = assert!(size_of::<FrontendKinds>() == 32);

// SAFETY: repr(C), integers, no padding (32 bytes).
#[expect(unsafe_code, reason = "see the trait")]
unsafe impl Record for FrontendKinds {}

/// What a chain says of a key.
#[cfg(target_arch = "bpf")]
#[inline(always)]
pub(crate) fn chained(link: u32, key: FrontendKey, at: u32) -> Option<u32> {
    Frontends::new(&Region).walk(link, key, at).map(|(_, entry)| entry.target())
}
impl FrontendKinds {
    /// A copy that the compiler keeps as one.
    #[cfg(target_arch = "bpf")]
    #[inline(always)]
    pub(crate) fn copied(&self) -> FrontendKinds {
        // SAFETY: a reference may be read.
        #[expect(unsafe_code, reason = "volatile, so that nothing is read again")]
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

    /// Whether there are exact single addresses for all scopes, and nothing else.
    #[inline(always)]
    pub(crate) fn are_plain(&self) -> bool {
        let more = u64::from(self.hosts & !KIND_EXACT) | u64::from(self.networks);
        more | u64::from(self.scopes) == 0
    }

    /// The `KIND_*` of a key.
    pub const fn of(key: &FrontendKey) -> u32 {
        match (key.port, key.proto) {
            (0, 0) => KIND_ANY,
            (_, 0) => KIND_ANY_PROTOCOL,
            (0, _) => KIND_ANY_PORT,
            _ => KIND_EXACT,
        }
    }
}

/// The hash and where its parts lie.
#[derive(Clone, Copy)]
pub(crate) struct Frontends<'r> {
    pub(crate) heads: Rows<'r, AtomicU32>,
    bits: Rows<'r, AtomicU64>,
    pub(crate) entries: Rows<'r, Entry>,
    by: HashKey,
}

impl<'r> Frontends<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region) -> Frontends<'r> {
        Frontends {
            heads: region.slice(Section::FrontendHeads),
            bits: region.slice(Section::FrontendBits),
            entries: region.slice(Section::Frontends),
            by: region.hash_key(),
        }
    }

    /// The number of the chain that a key belongs to. Heads are a power of two.
    #[inline(always)]
    fn chain(&self, key: &FrontendKey) -> u32 {
        hash(key, &self.by) as u32 & self.heads.count().wrapping_sub(1)
    }
}

/// What the writer does.
#[cfg(not(target_arch = "bpf"))]
impl<'r> Frontends<'r> {
    /// The head of the chain that a key belongs to.
    pub(crate) fn head(&self, key: &FrontendKey) -> &'r AtomicU32 {
        &self.heads[self.chain(key) as usize]
    }

    /// Says of the chain of `key` whether it has entries. True is said before the first one is
    /// linked, false after the last one is gone.
    pub(crate) fn mark(&self, pen: &Pen, key: &FrontendKey, filled: bool) {
        let chain = self.chain(key);
        let (word, bit) = (&self.bits[chain as usize / 64], 1 << (chain % 64));
        let before = word.load(Ordering::Relaxed);
        pen.long(word, if filled { before | bit } else { before & !bit });
    }

    /// Works all bits out anew, for a writer that finds its place.
    pub(crate) fn mark_all(&self, pen: &Pen) {
        for (heads, word) in self.heads.chunks(64).zip(self.bits) {
            let filled = |head: &AtomicU32| u64::from(head.load(Ordering::Relaxed) != 0);
            let bits = heads.iter().rev().fold(0, |bits, head| bits << 1 | filled(head));
            if word.load(Ordering::Relaxed) != bits {
                pen.long(word, bits);
            }
        }
    }
}

impl<'r> Frontends<'r> {
    /// The entry of `key` that generation `at` sees, by its number.
    #[inline(always)]
    pub(crate) fn find(&self, key: &FrontendKey, at: u32) -> Option<(u32, &'r Entry)> {
        self.walk(self.link(key)?, *key, at)
    }

    /// Where the chain of a key begins, if it isn't empty.
    #[inline(always)]
    fn link(&self, key: &FrontendKey) -> Option<u32> {
        // Most chains are empty. That is known without the key ever being put in memory.
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
            if entry.life.sees(at) && *entry.key() == key {
                return Some((number, entry));
            }
            link = entry.next.load(Ordering::Acquire);
        }
        None
    }

    #[inline(always)]
    pub(crate) fn target(&self, key: &FrontendKey, at: u32) -> Option<u32> {
        // The kernel's program walks in a function of its own, which its verifier sees once.
        #[cfg(target_arch = "bpf")]
        return crate::parts::walk(self.link(key)?, key, at);
        #[cfg(not(target_arch = "bpf"))]
        self.find(key, at).map(|(_, entry)| entry.target())
    }

    /// The service for a packet to `addr:port` with `proto`, in one scope: single addresses before
    /// networks, longer networks before shorter ones, and in each the exact key first, then any
    /// port, then any protocol.
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
            // `::/0` is no network of IPv4's.
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
                // In the kernel, the part that tries masks it: the verifier sees that once.
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
        // A function of its own in the kernel, too.
        #[cfg(target_arch = "bpf")]
        return crate::parts::try_kinds(kinds, &key, at);
        #[cfg(not(target_arch = "bpf"))]
        self.try_kinds(kinds, key, at)
    }

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

/// The key of the entry that says "this address has frontends in this scope".
pub(crate) fn address_mark(scope_key: u64, addr: &Addr) -> FrontendKey {
    mark(scope_key, *addr, MARK_ADDRESS)
}

/// The key of the entry that says "this scope has frontends of its own".
pub(crate) fn scope_mark(scope_key: u64) -> FrontendKey {
    mark(scope_key, Addr::UNSPECIFIED, MARK_SCOPE)
}

/// The key of the entry that leads from a probe source to its backend.
pub(crate) fn probe_mark(addr: &Addr) -> FrontendKey {
    mark(0, *addr, MARK_PROBE)
}

/// A Bloom filter's bit for a probe source: most packets to another address need no look-up then.
#[inline(always)]
pub(crate) fn probe_bit(addr: &Addr) -> u32 {
    let [a, b, c, d] = addr.words;
    1 << ((a ^ b ^ c ^ d).wrapping_mul(0x9e37_79b1) >> 27)
}

/// Whether a key is a mark, and no frontend.
pub(crate) const fn is_mark(key: &FrontendKey) -> bool {
    key.proto == ADDRESS_MARK
}

/// Whether a key leads from a probe source.
pub(crate) const fn is_probe_mark(key: &FrontendKey) -> bool {
    is_mark(key) && key.port == MARK_PROBE
}

const fn mark(scope_key: u64, addr: Addr, port: u16) -> FrontendKey {
    FrontendKey { scope_key, addr, port, proto: ADDRESS_MARK, prefix_len: 128, pad: 0 }
}

/// The hash of a key, as flows have it.
#[inline(always)]
fn hash(key: &FrontendKey, by: &HashKey) -> u64 {
    let w = &key.addr.words;
    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
    let rest = u32::from(key.port) | u32::from(key.proto) << 16 | u32::from(key.prefix_len) << 24;
    by.hash(&[key.scope_key, u64::from(rest), pair(w[3], w[2]), pair(w[1], w[0])])
}
