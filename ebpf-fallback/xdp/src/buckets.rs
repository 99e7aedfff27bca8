//! The region's flow index (tables/src/flow/index.rs) in two arrays of the kernel.
//!
//! A word for each bucket with its lock and tags, four entries of a cache line each, a home bucket,
//! a second one, and sixteen to spill into. As much of it as a measurement needs: that a bucket has
//! spilled is marked and not counted, and nothing expires.
//!
//! Rust's BPF target knows one thread only and would make plain stores of its atomics; the few that
//! are needed are inline assembly, and all of them order everything (x86).

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use core::arch::asm;
use packet::flow::FlowKey;

const WRITING: u64 = 1;
const LIVE: u64 = 2;
const OWNER: u64 = 0xff;
/// How often a lock is tried.
const TRIES: usize = 16;
/// Buckets behind the home bucket that take what doesn't fit in it and the second.
const SPILL: u32 = 16;

/// State and last seen | path, flags | digest, scope | the rest of the key.
#[btf_map]
static ENTRIES: Array<[u64; 8], 65536, 1024> = Array::new();
#[btf_map]
static WORDS: Array<u64, 16384, 1024> = Array::new();

/// Where a key may lie.
#[derive(Clone, Copy)]
pub struct Place {
    home: u32,
    second: u32,
    slot: u32,
    tag: u64,
    mask: u32,
}

impl Place {
    /// The place of a hash among `mask + 1` buckets.
    #[inline(always)]
    pub fn of(hash: u64, mask: u64) -> Place {
        let mask = mask as u32;
        let home = hash as u32 & mask;
        let apart = 1 + ((((hash >> 40) & 0xff) * 7) >> 8) as u32;
        let tag = (hash >> 48) & 0xff;
        let tag = if tag == 0 { 1 } else { tag };
        Place { home, second: (home ^ apart) & mask, slot: (hash >> 28) as u32 & 3, tag, mask }
    }

    /// Its bucket number `n`: home, second, those that take what spills.
    #[inline(always)]
    fn bucket(&self, n: u32) -> u32 {
        match n {
            0 => self.home,
            1 => self.second,
            n => (self.home + n - 1) & self.mask,
        }
    }
}

#[inline(always)]
fn compare_exchange(word: *mut u64, old: u64, new: u64) -> bool {
    let mut was = old;
    // SAFETY: `word` lies in a value of a map.
    unsafe {
        asm!("r0 = cmpxchg_64({p} + 0, r0, {n})", p = in(reg) word, n = in(reg) new,
            inout("r0") was, options(nostack));
    }
    was == old
}

#[inline(always)]
fn exchange(word: *mut u64, new: u64) {
    // SAFETY: as above.
    unsafe {
        asm!("{n} = xchg_64({p} + 0, {n})", p = in(reg) word, n = inout(reg) new => _,
            options(nostack));
    }
}

#[inline(always)]
fn or(word: *mut u64, bits: u64) {
    // SAFETY: as above.
    unsafe {
        asm!("lock *(u64 *)({p} + 0) |= {n}", p = in(reg) word, n = in(reg) bits, options(nostack))
    };
}

#[inline(always)]
fn and(word: *mut u64, bits: u64) {
    // SAFETY: as above.
    unsafe {
        asm!("lock *(u64 *)({p} + 0) &= {n}", p = in(reg) word, n = in(reg) bits, options(nostack))
    };
}

#[inline(always)]
fn load(word: *const u64) -> u64 {
    // SAFETY: as above; x86 does not reorder loads, volatile keeps the compiler from it.
    unsafe { word.read_volatile() }
}

#[inline(always)]
fn entry(i: u32) -> Option<*mut u64> {
    ENTRIES.get_ptr_mut(i).map(|entry| entry.cast())
}

#[inline(always)]
const fn pair(a: u32, b: u32) -> u64 {
    a as u64 | (b as u64) << 32
}

/// Five words of the key, as they lie from an entry's fourth on.
#[inline(always)]
fn rest(key: &FlowKey) -> [u64; 5] {
    let (l, h) = (&key.low.words, &key.high.words);
    let proto = pair(key.proto, key.ports);
    [proto, pair(l[0], l[1]), pair(l[2], l[3]), pair(h[0], h[1]), pair(h[2], h[3])]
}

/// The path of the entry, if it is live, holds still and has this key.
#[inline(always)]
fn compare(i: u32, key: &FlowKey) -> Option<u32> {
    let e = entry(i)?;
    let stamp = load(e);
    let words = rest(key);
    let mut differs = (load(e.wrapping_add(2)) >> 32) ^ u64::from(key.scope);
    let mut n = 0;
    while n < 5 {
        differs |= load(e.wrapping_add(3 + n)) ^ words[n];
        n += 1;
    }
    let path = load(e.wrapping_add(1)) as u32;
    let still = load(e) as u32 == stamp as u32;
    (differs == 0 && stamp & (LIVE | WRITING) == LIVE && still).then_some(path)
}

/// The path of a key.
#[inline(always)]
pub fn find(at: &Place, key: &FlowKey) -> Option<u32> {
    let home = load(WORDS.get_ptr(at.home)?);
    if (home >> (32 + at.slot * 8)) & 0xff == at.tag {
        let first = compare(at.home * 4 + at.slot, key);
        if first.is_some() {
            return first;
        }
    }
    let buckets = if (home >> 24) & 0xff == 0 { 2 } else { 2 + SPILL };
    for n in 0..2 + SPILL {
        if n >= buckets {
            break;
        }
        let bucket = at.bucket(n);
        let word = load(WORDS.get_ptr(bucket)?);
        for i in 0..4 {
            if (word >> (32 + i * 8)) & 0xff == at.tag {
                let found = compare(bucket * 4 + i, key);
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    None
}

/// Puts a key in; its slot. The home bucket is locked meanwhile, so that a key can't come in twice.
#[inline(always)]
pub fn insert(at: &Place, key: &FlowKey, path: u32) -> Option<u32> {
    let lock = WORDS.get_ptr_mut(at.home)?;
    let mut locked = false;
    for _ in 0..TRIES {
        let seen = load(lock);
        if seen & OWNER == 0 && compare_exchange(lock, seen, seen | 1) {
            locked = true;
            break;
        }
    }
    if !locked {
        return None;
    }
    let slot = match find(at, key) {
        Some(_) => None,
        None => claim(at),
    };
    if let Some(i) = slot {
        fill(at, i, key, path);
    }
    and(lock, !OWNER);
    slot
}

#[inline(always)]
fn claim(at: &Place) -> Option<u32> {
    for n in 0..2 + SPILL {
        let bucket = at.bucket(n);
        for i in 0..4 {
            let i = bucket * 4 + ((at.slot + i) & 3);
            let e = entry(i)?;
            let state = load(e);
            if state & (LIVE | WRITING) == 0 && compare_exchange(e, state, state | WRITING) {
                return Some(i);
            }
        }
    }
    None
}

#[inline(always)]
fn fill(at: &Place, i: u32, key: &FlowKey, path: u32) {
    let (Some(e), Some(word)) = (entry(i), WORDS.get_ptr_mut(i / 4)) else { return };
    let words = rest(key);
    // SAFETY: the slot is claimed; eight words in the value of a map.
    unsafe {
        *e.wrapping_add(1) = pair(path, 0);
        *e.wrapping_add(2) = pair(0, key.scope);
        let mut n = 0;
        while n < 5 {
            *e.wrapping_add(3 + n) = words[n];
            n += 1;
        }
    }
    or(word, at.tag << (32 + (i & 3) * 8));
    if i / 4 != at.home && i / 4 != at.second {
        if let Some(home) = WORDS.get_ptr_mut(at.home) {
            or(home, 1 << 24);
        }
    }
    exchange(e, (load(e) & 0xffff_fffc) + 4 + LIVE);
}

/// Takes a key out again whose partner found no room.
#[inline(always)]
pub fn remove(i: u32) {
    let (Some(e), Some(word)) = (entry(i), WORDS.get_ptr_mut(i / 4)) else { return };
    and(word, !(0xff << (32 + (i & 3) * 8)));
    and(e, !LIVE);
}
