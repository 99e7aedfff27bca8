//! Maps whose writes fail at random, to check that every step can be repeated.

use fastrand::Rng;

use super::{Failure, Key, Map, Maps, Value};

/// Maps whose writes fail with a probability, in a seeded random sequence. Reads never fail.
#[derive(Clone, Debug)]
pub struct FaultyMaps<M> {
    /// The underlying maps.
    pub maps: M,
    /// The number of failing writes per 1,000: 0 to 1,000.
    pub per_mille: u32,
    rng: Rng,
    failed: u64,
}

impl<M> FaultyMaps<M> {
    /// Wraps `maps`; the same seed gives the same failures.
    pub fn new(maps: M, per_mille: u32, seed: u64) -> FaultyMaps<M> {
        FaultyMaps { maps, per_mille, rng: Rng::with_seed(seed), failed: 0 }
    }

    /// Returns the number of failed writes.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    fn fail(&mut self, key: &Key) -> Result<(), Failure> {
        if self.per_mille == 0 || self.rng.u32(..1000) >= self.per_mille {
            return Ok(());
        }
        self.failed += 1;
        Err(Failure::Failed(format!("injected failure of the write to {key:?}")))
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
