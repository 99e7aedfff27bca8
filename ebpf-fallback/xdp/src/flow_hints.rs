//! Recent-flow hints: paths of recent flows, which `fast_forward` and `fast_reply` try before the
//! index.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use tables::atomic::{AtomicU64, Ordering::Relaxed};
use tables::flow::flow_hints::{HintIndex, HintSet};
use tables::region::Region;

/// Sets of hints shared by all CPUs; the loader sets their number. Concurrent writes of two CPUs
/// may mix a set. This is harmless, because each hint is checked against the path that it names.
#[btf_map]
static FLOW_HINTS: Array<HintSet, 1> = Array::new();

/// Returns the position of a flow's hint and the words of its set.
#[inline(always)]
fn hint_set(hash: u64) -> Option<(HintIndex, &'static [AtomicU64; 2])> {
    let index = HintIndex::new(hash, Region.hint_sets());
    let set = FLOW_HINTS.get_ptr_mut(index.set)?;
    // SAFETY: the pointer is that of a map value, which consists of two words.
    Some((index, unsafe { &*set.cast() }))
}

#[inline(always)]
fn read(words: &[AtomicU64; 2]) -> HintSet {
    [words[0].load(Relaxed), words[1].load(Relaxed)]
}

#[inline(always)]
fn write(words: &[AtomicU64; 2], set: HintSet) {
    words[0].store(set[0], Relaxed);
    words[1].store(set[1], Relaxed);
}

/// Returns the path that the flow with this hash may have.
#[inline(always)]
pub fn path(hash: u64) -> Option<u32> {
    let (index, words) = hint_set(hash)?;
    index.find(&read(words))
}

/// Stores a hint for the flow's path.
#[inline(always)]
pub fn remember(hash: u64, path: u32) {
    if let Some((index, words)) = hint_set(hash) {
        write(words, index.with(&read(words), path));
    }
}

/// Clears the set after a wrong hint; its other flows are found again at little cost.
#[inline(always)]
pub fn forget(hash: u64) {
    if let Some((_, words)) = hint_set(hash) {
        write(words, [0; 2]);
    }
}
