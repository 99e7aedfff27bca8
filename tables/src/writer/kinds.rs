//! Counts of frontends by kind, from which the writer makes the summary for lookups.

use packet::addr::Addr;

use crate::lookup::{FrontendKinds, probe_bit};
use crate::record::FrontendKey;

/// Numbers of frontends, scopes and probe sources.
#[derive(Debug)]
pub(super) struct KindCounts {
    /// Number of single-address frontends by kind (the bit number of its `KIND_*`).
    hosts: [u32; 4],
    /// Number of network frontends by kind.
    networks: [u32; 4],
    /// Number of network frontends by prefix length.
    lengths: [u32; 128],
    /// Number of scopes with frontends of their own.
    pub(super) scopes: u32,
    /// Number of probe sources by their Bloom filter bit ([`probe_bit`]).
    probes: [u32; 32],
}

impl Default for KindCounts {
    fn default() -> KindCounts {
        KindCounts {
            hosts: [0; 4],
            networks: [0; 4],
            lengths: [0; 128],
            scopes: 0,
            probes: [0; 32],
        }
    }
}

impl KindCounts {
    pub(super) fn add(&mut self, key: &FrontendKey) {
        let kind = FrontendKinds::of(key).trailing_zeros() as usize;
        match self.lengths.get_mut(usize::from(key.prefix_len)) {
            Some(length) => {
                *length += 1;
                self.networks[kind] += 1;
            }
            None => self.hosts[kind] += 1,
        }
    }

    pub(super) fn remove(&mut self, key: &FrontendKey) {
        let kind = FrontendKinds::of(key).trailing_zeros() as usize;
        match self.lengths.get_mut(usize::from(key.prefix_len)) {
            Some(length) => {
                *length -= 1;
                self.networks[kind] -= 1;
            }
            None => self.hosts[kind] -= 1,
        }
    }

    pub(super) fn add_probe(&mut self, addr: &Addr) {
        self.probes[probe_bit(addr).trailing_zeros() as usize] += 1;
    }

    pub(super) fn remove_probe(&mut self, addr: &Addr) {
        self.probes[probe_bit(addr).trailing_zeros() as usize] -= 1;
    }

    /// Returns the record that lookups read.
    pub(super) fn summary(&self) -> FrontendKinds {
        let bits = |counts: &[u32]| -> u64 {
            counts.iter().enumerate().map(|(i, n)| u64::from(*n > 0) << i).sum()
        };
        FrontendKinds {
            lengths: [bits(&self.lengths[..64]), bits(&self.lengths[64..])],
            hosts: bits(&self.hosts) as u32,
            networks: bits(&self.networks) as u32,
            scopes: self.scopes,
            probes: bits(&self.probes) as u32,
        }
    }
}
