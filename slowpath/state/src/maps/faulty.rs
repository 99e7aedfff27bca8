//! Maps that fail now and then, so that every step is seen to be repeatable.

use super::{Failure, Key, Map, Maps, Value};

/// Fails each write with a probability, by a seeded sequence. Reads never fail.
#[derive(Clone, Debug)]
pub struct FaultyMaps<M> {
    /// The maps below.
    pub maps: M,
    /// How many of 1,000 writes fail: 0 to 1,000.
    pub per_mille: u32,
    seed: u64,
    failed: u64,
}

impl<M> FaultyMaps<M> {
    /// Over maps.
    pub fn new(maps: M, per_mille: u32, seed: u64) -> FaultyMaps<M> {
        FaultyMaps { maps, per_mille, seed, failed: 0 }
    }

    /// How many writes failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    fn fail(&mut self, key: &Key) -> Result<(), Failure> {
        if self.per_mille == 0 || self.draw() % 1000 >= u64::from(self.per_mille) {
            return Ok(());
        }
        self.failed += 1;
        Err(Failure::Failed(format!("the write to {key:?} failed on purpose")))
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl<M: Maps> Maps for FaultyMaps<M> {
    fn get(&self, key: &Key) -> Option<Value> {
        self.maps.get(key)
    }

    fn update(&mut self, key: Key, value: Value) -> Result<(), Failure> {
        self.fail(&key)?;
        self.maps.update(key, value)
    }

    fn delete(&mut self, key: &Key) -> Result<(), Failure> {
        self.fail(key)?;
        self.maps.delete(key)
    }

    fn keys(&self, map: Map) -> Vec<Key> {
        self.maps.keys(map)
    }
}
