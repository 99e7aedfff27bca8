//! Three ways of keeping flows in the kernel, one program each, to be measured: the kernel's hash
//! with eviction (`lru`), its plain hash (`hash`), and the region's own buckets in arrays that user
//! space maps (`array`, file `buckets`). All parse the packet first; `none` does only that.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod buckets;
mod frame;
mod object;
mod open;
mod stages;

use aya_ebpf::bindings::xdp_action::XDP_DROP;
use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use packet::flow::{FlowKey, HashKey};

/// What user space asks for, and what happened. One packet becomes many flows: flow number
/// `first + (turn * stride & mask)`.
#[repr(C)]
pub struct Rig {
    turn: u64,
    first: u64,
    mask: u64,
    stride: u64,
    /// Entries a new flow gets: 1 or 2.
    entries: u64,
    /// Buckets of `array`, less one.
    buckets: u64,
    paths: u64,
    hits: u64,
    refused: u64,
    sum: u64,
}

/// Where an entry of the kernel's hashes leads.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Leads {
    path: u32,
    last_seen_s: u32,
    digest: u32,
    flags: u32,
}

#[btf_map]
static RIG: Array<Rig, 1, 1024> = Array::new();
#[btf_map]
static LRU: LruHashMap<FlowKey, Leads, 65536> = LruHashMap::new();
#[btf_map]
static HASH: HashMap<FlowKey, Leads, 65536> = HashMap::new();
/// Records of 192 bytes, as the region's paths.
#[btf_map]
static PATHS: Array<[u64; 24], 65536, 1024> = Array::new();

/// The flow of this turn.
#[inline(always)]
fn next(ctx: &XdpContext) -> Option<(&'static mut Rig, FlowKey, u64)> {
    stages::run(ctx.ctx).ok()?;
    // SAFETY: the bench runs one program on one processor.
    let (rig, work) = (unsafe { &mut *RIG.get_ptr_mut(0)? }, stages::work()?);
    let flow = rig.first.wrapping_add(rig.turn.wrapping_mul(rig.stride) & rig.mask);
    rig.turn += 1;
    open::classify(work, &HashKey::new(0), flow as u32);
    Some((rig, work.key, work.hash))
}

/// Reads what every packet of a known flow needs: the path's first line.
#[inline(always)]
fn follow(rig: &mut Rig, path: u32) {
    rig.hits += 1;
    let Some(path) = PATHS.get(path) else { return };
    rig.sum = rig.sum.wrapping_add(path[0] ^ path[3] ^ path[5] ^ path[7]);
}

/// Takes a path record and writes all of it.
#[inline(always)]
fn new_path(rig: &mut Rig) -> u32 {
    let path = rig.paths as u32;
    rig.paths += 1;
    if let Some(record) = PATHS.get_ptr_mut(path) {
        // SAFETY: nobody else has this record.
        let words = unsafe { &mut *record };
        let mut i = 0;
        while i < 24 {
            words[i] = rig.paths;
            i += 1;
        }
    }
    path
}

/// The key under which an answer finds the flow.
#[inline(always)]
fn back(key: &FlowKey, path: u32) -> FlowKey {
    let mut back = *key;
    back.scope = 0;
    back.ports = path;
    back.low.words[3] = !key.low.words[3];
    back
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident $map:ident)*) => {$(
        $(#[$doc])*
        #[xdp(frags)]
        pub fn $name(ctx: XdpContext) -> u32 {
            let Some((rig, key, _)) = next(&ctx) else { return XDP_DROP };
            if let Some(leads) = $map.get_ptr(&key) {
                // SAFETY: a value of the map stays readable while the program runs.
                follow(rig, unsafe { (*leads).path });
                return XDP_DROP;
            }
            let path = new_path(rig);
            let leads = Leads { path, last_seen_s: 1, digest: 2, flags: 3 };
            let mut failed = $map.insert(&key, &leads, 1).is_err();
            if !failed && rig.entries == 2 {
                failed = $map.insert(&back(&key, path), &leads, 1).is_err();
                if failed {
                    let _ = $map.remove(&key);
                }
            }
            rig.refused += u64::from(failed);
            XDP_DROP
        }
    )*};
}

kernels! {
    /// The kernel's hash that evicts.
    lru LRU
    /// The kernel's hash that refuses.
    hash HASH
}

/// The region's buckets.
#[xdp(frags)]
pub fn array(ctx: XdpContext) -> u32 {
    let Some((rig, key, hash)) = next(&ctx) else { return XDP_DROP };
    let place = buckets::Place::of(hash, rig.buckets);
    if let Some(path) = buckets::find(&place, &key) {
        follow(rig, path);
        return XDP_DROP;
    }
    let path = new_path(rig);
    let Some(front) = buckets::insert(&place, &key, path) else {
        rig.refused += 1;
        return XDP_DROP;
    };
    if rig.entries == 2 {
        let back = back(&key, path);
        let there = buckets::Place::of(back.hash(&HashKey::new(0)), rig.buckets);
        if buckets::insert(&there, &back, path).is_none() {
            buckets::remove(front);
            rig.refused += 1;
        }
    }
    XDP_DROP
}

/// Parses and numbers the packets, and looks nothing up.
#[xdp(frags)]
pub fn none(ctx: XdpContext) -> u32 {
    if let Some((rig, key, hash)) = next(&ctx) {
        rig.sum = rig.sum.wrapping_add(hash ^ u64::from(key.ports));
    }
    XDP_DROP
}
