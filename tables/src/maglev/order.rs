//! `Order`: the sorted backends of a table, cached for building the service's next table.
//!
//! Texts, sorting and hashing dominate the cost of a table of many backends, and few backends
//! change between two tables of a service. The result equals that of [`super::build`].

use super::{MaglevBackend, Seed, Share, Start, Walk, fill, sorted_starts, start};

/// Maximum number of new backends; above it, everything is recomputed.
const MAX_NEW: usize = 32;
/// Number of former backends among which an unchanged one is searched.
const SEARCH_WINDOW: usize = 8;
/// New index of a former backend that is no longer listed.
const REMOVED: u32 = u32::MAX;

/// Backends sorted by text, with the starts of their slot orders. `K` is the key from which a text
/// is made.
#[derive(Clone, Debug)]
pub struct Order<K> {
    size: u32,
    seed: Seed,
    keys: Vec<K>,
    /// Sorted by text; `backend` is an index into `keys`.
    starts: Vec<Start>,
}

impl<K> Default for Order<K> {
    fn default() -> Order<K> {
        Order { size: 0, seed: Seed(0), keys: Vec::new(), starts: Vec::new() }
    }
}

impl<K: Copy + Eq> Order<K> {
    /// Returns the table of these backends, equal to that of [`super::build`]. `weights` contains
    /// the weight of each key.
    pub fn table(
        &mut self,
        keys: &[K],
        weights: &[u32],
        text: impl Fn(&K) -> String,
        size: u32,
        seed: Seed,
    ) -> Vec<u32> {
        if keys.is_empty() || size < 2 {
            return Vec::new();
        }
        self.starts = self.update_starts(keys, &text, size, seed).unwrap_or_else(|| {
            let backend = |key| MaglevBackend { text: text(key), weight: 1 };
            let backends: Vec<MaglevBackend> = keys.iter().map(backend).collect();
            sorted_starts(&backends, u64::from(size), seed)
        });
        self.keys.clear();
        self.keys.extend_from_slice(keys);
        (self.size, self.seed) = (size, seed);
        let share = Share::of(weights.iter().copied());
        let walk = |start: &Start| Walk::new(*start, weights[start.backend as usize], &share);
        fill(self.starts.iter().map(walk).collect(), size, &share)
    }

    /// Returns the starts for a new list of keys, or `None` if too many of them are new, or if size
    /// or seed differ.
    fn update_starts(
        &self,
        keys: &[K],
        text: impl Fn(&K) -> String,
        size: u32,
        seed: Seed,
    ) -> Option<Vec<Start>> {
        if (size, seed) != (self.size, self.seed) {
            return None;
        }
        let (new_indices, mut new) = self.moved(keys)?;
        let unchanged = self.starts.iter().filter_map(|start| {
            let backend = new_indices[start.backend as usize];
            (backend != REMOVED).then_some(Start { backend, ..*start })
        });
        let unchanged: Vec<Start> = unchanged.collect();
        let mut texts: Vec<(String, u32)> =
            new.drain(..).map(|index| (text(&keys[index as usize]), index)).collect();
        texts.sort_unstable();
        let mut starts = Vec::with_capacity(keys.len());
        let mut from = 0;
        for (new, index) in texts {
            let is_before = |start: &Start| {
                let other = text(&keys[start.backend as usize]);
                (other.as_str(), start.backend) < (new.as_str(), index)
            };
            let upto = from + unchanged[from..].partition_point(is_before);
            starts.extend_from_slice(&unchanged[from..upto]);
            starts.push(start(&new, index, u64::from(size), seed));
            from = upto;
        }
        starts.extend_from_slice(&unchanged[from..]);
        Some(starts)
    }

    /// Returns the new index of each former key and the indices of new keys, or `None` if too many
    /// are new.
    fn moved(&self, keys: &[K]) -> Option<(Vec<u32>, Vec<u32>)> {
        let mut new_indices = vec![REMOVED; self.keys.len()];
        let (mut new, mut at) = (Vec::new(), 0);
        for (index, key) in (0..).zip(keys) {
            match self.keys[at..].iter().take(SEARCH_WINDOW).position(|former| former == key) {
                Some(passed) => {
                    new_indices[at + passed] = index;
                    at += passed + 1;
                }
                None if new.len() == MAX_NEW => return None,
                None => new.push(index),
            }
        }
        Some((new_indices, new))
    }
}
