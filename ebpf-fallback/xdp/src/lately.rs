//! Flows met lately, and by which paths they went: what `usual` asks before the index.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use tables::atomic::{AtomicU64, Ordering::Relaxed};
use tables::flow::lately::{Place, Set};
use tables::region::Region;

/// Sets of hints for all CPUs; the loader says how many. A set that two CPUs write at once is
/// mixed, which hints may be.
#[btf_map]
static LATELY: Array<Set, 1> = Array::new();

/// A flow's place and the words of its set.
#[inline(always)]
fn at(hash: u64) -> Option<(Place, &'static [AtomicU64; 2])> {
    let place = Place::new(hash, Region.lately_sets());
    let set = LATELY.get_ptr_mut(place.set)?;
    // SAFETY: a value of the map, of as many words.
    Some((place, unsafe { &*set.cast() }))
}

#[inline(always)]
fn read(words: &[AtomicU64; 2]) -> Set {
    [words[0].load(Relaxed), words[1].load(Relaxed)]
}

#[inline(always)]
fn write(words: &[AtomicU64; 2], set: Set) {
    words[0].store(set[0], Relaxed);
    words[1].store(set[1], Relaxed);
}

/// By which path the flow with this hash may go.
#[inline(always)]
pub fn path(hash: u64) -> Option<u32> {
    let (place, words) = at(hash)?;
    place.find(&read(words))
}

/// The flow goes by this path.
#[inline(always)]
pub fn remember(hash: u64, path: u32) {
    if let Some((place, words)) = at(hash) {
        write(words, place.with(&read(words), path));
    }
}

/// Its path was another: the set is forgotten, as a flow of it is found anew at little cost.
#[inline(always)]
pub fn forget(hash: u64) {
    if let Some((_, words)) = at(hash) {
        write(words, [0; 2]);
    }
}
