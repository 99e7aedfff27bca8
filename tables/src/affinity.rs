//! Session affinity table: the backend that a client keeps, for services with affinity enabled.
//!
//! The table is an index like that of flows, with another meaning of an entry's fields: the key is
//! a client of a service in a scope, `path` and `digest` contain the backend and its incarnation,
//! and `last_seen_s` is the time of expiry. Expired entries are reused, so no sweep is needed. For
//! each new flow, the table set determines whether the backend may still serve the client
//! ([`TableSet::is_affinity_valid`](crate::set::TableSet::is_affinity_valid)).
//!
//! For a client without an entry, the hash of the client, not that of the flow, selects the slot of
//! the service's Maglev array. Two flows that two lcores begin at the same time therefore get the
//! same backend, and if the table is full, clients keep their backend as long as the service's
//! slots do not change.

use crate::flow::{Entry, Filling, Index, IndexError, TableKind};
use crate::layout::Section;
use crate::region::Region;
use crate::{atomic::Ordering::Relaxed, flow::Hit};
use packet::addr::Addr;
use packet::flow::FlowKey;

/// A client as seen by one service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// Scope of the gateway endpoint; two endpoints may have clients with the same address.
    pub scope: u32,
    /// Service id.
    pub service: u32,
    /// Address of the client.
    pub addr: Addr,
}

impl Client {
    /// Encodes the client in the form of a flow key, with `service` in place of its own service.
    #[inline(always)]
    fn key(&self, service: u32) -> FlowKey {
        let (low, high) = (self.addr, Addr::UNSPECIFIED);
        FlowKey { scope: self.scope, proto: 0, ports: service, low, high }
    }
}

/// The backend to which a client has affinity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// Backend id.
    pub backend: u32,
    /// Incarnation of the backend when the entry was written.
    pub incarnation: u32,
}

/// The affinity table of a region, shared by all lcores.
#[derive(Clone, Copy)]
pub struct Affinities<'r> {
    index: Index<'r>,
}

impl<'r> Affinities<'r> {
    /// Returns the affinity table of a region.
    #[inline]
    pub fn new(region: &'r Region) -> Affinities<'r> {
        let entries = region.slice(Section::Affinities);
        let words = region.slice(Section::AffinityLocks);
        Affinities { index: Index::new(TableKind::Affinities, entries, words, region) }
    }

    #[cfg(target_arch = "bpf")]
    pub(crate) fn index(&self) -> &Index<'r> {
        &self.index
    }

    /// Returns the table with the identity that this writer stores in lock words.
    pub fn as_owner(self, lcore: u8, epoch: u32) -> Affinities<'r> {
        Affinities { index: self.index.as_owner(lcore, epoch) }
    }

    /// Returns the hash that selects a Maglev slot for a client without an entry. It does not
    /// depend on the service, and appliances that share a seed compute the same value.
    #[inline(always)]
    pub fn hash(&self, client: &Client) -> u64 {
        self.index.hash(&client.key(0))
    }

    /// Returns the client's backend, if an entry was written or renewed within the last
    /// `affinity_s` seconds.
    #[inline(always)]
    pub fn find(&self, client: &Client, now_s: u32, affinity_s: u32) -> Option<Affinity> {
        self.find_with_left_s(client, now_s, affinity_s).map(|(affinity, _)| affinity)
    }

    /// As [`Affinities::find`], and returns the remaining time in seconds as well.
    #[inline(always)]
    pub fn find_with_left_s(
        &self,
        client: &Client,
        now_s: u32,
        affinity_s: u32,
    ) -> Option<(Affinity, u32)> {
        let hit = self.look_up(&client.key(client.service))?;
        let left_s = hit.last_seen_s.wrapping_sub(now_s);
        // Another lcore's clock may be one second ahead. An entry written with a longer timeout
        // than the service has now is treated as expired.
        if left_s == 0 || left_s > affinity_s.wrapping_add(1) {
            return None;
        }
        Some((Affinity { backend: hit.path, incarnation: hit.digest }, left_s))
    }

    #[inline(always)]
    fn look_up(&self, key: &FlowKey) -> Option<Hit> {
        self.index.find(self.index.hash(key), key)
    }

    /// Writes or renews the client's entry for `affinity_s` seconds from now.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub fn put(
        &self,
        client: &Client,
        affinity: &Affinity,
        now_s: u32,
        affinity_s: u32,
    ) -> Result<(), IndexError> {
        let key = client.key(client.service);
        let until_s = now_s.wrapping_add(affinity_s);
        let same = |hit: &Hit| hit.path == affinity.backend && hit.digest == affinity.incarnation;
        if let Some(hit) = self.look_up(&key)
            && same(&hit)
        {
            if let Some(entry) = self.index.entry(hit.entry) {
                entry.last_seen_s.store(until_s, Relaxed);
            }
            return Ok(());
        }
        let (path, digest) = (affinity.backend, affinity.incarnation);
        let filling = Filling { key: &key, path, flags: 0, digest, now_s: until_s };
        let evictable = |entry: &Entry| is_expired(entry.last_seen_s.load(Relaxed), now_s);
        self.index.put(&filling, evictable)
    }

    /// Releases locks and clears half-written entries of a killed fastpath. Every start of fastpath
    /// calls it before any lcore runs. Returns the number of removed clients.
    #[cfg(not(target_arch = "bpf"))]
    pub fn recover(&self) -> u32 {
        self.index.rebuild(|_, _, _| true).0
    }
}

/// Returns whether the time of expiry has been reached.
fn is_expired(until_s: u32, now_s: u32) -> bool {
    let left_s = until_s.wrapping_sub(now_s);
    left_s == 0 || left_s > u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;
    use packet::flow::SCOPE_PLAIN;

    fn client(n: u32) -> Client {
        Client { scope: SCOPE_PLAIN, service: 3, addr: Addr::v4(n) }
    }

    fn affinity(n: u32) -> Affinity {
        Affinity { backend: n, incarnation: n + 1 }
    }

    #[test]
    fn affinity_is_per_client_service_and_scope_and_expires() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Affinities::new(&region);
        assert_eq!(table.find(&client(1), 100, 60), None);
        table.put(&client(1), &affinity(4), 100, 60).unwrap();
        for now_s in [99, 100, 159] {
            assert_eq!(table.find(&client(1), now_s, 60), Some(affinity(4)), "{now_s}");
            assert_eq!(
                table.find_with_left_s(&client(1), now_s, 60),
                Some((affinity(4), 160 - now_s))
            );
        }
        assert_eq!(table.find(&client(1), 160, 60), None);
        for other in
            [Client { scope: 7, ..client(1) }, Client { service: 4, ..client(1) }, client(2)]
        {
            assert_eq!(table.find(&other, 101, 60), None);
        }
        // Renewal extends the time, also with another backend.
        table.put(&client(1), &affinity(4), 150, 60).unwrap();
        assert_eq!(table.find(&client(1), 209, 60), Some(affinity(4)));
        table.put(&client(1), &affinity(5), 160, 60).unwrap();
        assert_eq!(table.find(&client(1), 219, 60), Some(affinity(5)));
        assert_eq!(table.find(&client(1), 220, 60), None);
        // After a service's timeout was lowered, entries with a longer timeout are not used.
        table.put(&client(2), &affinity(4), 300, 3600).unwrap();
        assert_eq!(table.find(&client(2), 301, 60), None);
        assert_eq!(table.find(&client(2), 3_850, 60), Some(affinity(4)));
    }

    #[test]
    fn the_slot_of_a_client_depends_on_scope_and_address_alone() {
        let region = Region::anonymous_with(&Sizes::SMALL, 7).unwrap();
        let other = Region::anonymous_with(&Sizes::SMALL, 7).unwrap();
        let (table, other) = (Affinities::new(&region), Affinities::new(&other));
        let same = Client { service: 9, ..client(1) };
        assert_eq!(table.hash(&client(1)), other.hash(&same));
        assert_ne!(table.hash(&client(1)), table.hash(&client(2)));
        assert_ne!(table.hash(&client(1)), table.hash(&Client { scope: 5, ..client(1) }));
    }

    #[test]
    fn full_affinity_table_rejects_until_entries_expire() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Affinities::new(&region);
        let entries = region.layout().term(Section::Affinities).count as u32;
        let mut inserted = 0;
        for n in 0..4 * entries {
            match table.put(&client(n), &affinity(n), 100, 60) {
                Ok(()) => inserted += 1,
                Err(error) => assert_eq!(error, IndexError::Full),
            }
        }
        assert!(
            inserted >= Sizes::SMALL.affinities && inserted <= entries,
            "{inserted} of {entries}"
        );
        let found =
            (0..4 * entries).filter(|n| table.find(&client(*n), 100, 60) == Some(affinity(*n)));
        assert_eq!(found.count() as u32, inserted);
        for n in 0..entries {
            table.put(&client(n), &affinity(n + 1), 160 + n, 60).unwrap();
            assert_eq!(table.find(&client(n), 160 + n, 60), Some(affinity(n + 1)));
        }
    }

    #[test]
    fn affinities_survive_restart() {
        let region = Region::anonymous(&Sizes::SMALL).unwrap();
        let table = Affinities::new(&region);
        (0..20).for_each(|n| table.put(&client(n), &affinity(n), 100, 60).unwrap());
        assert!(table.index.lock(table.index.position(table.index.hash(&client(3).key(3))).home));
        assert_eq!(table.recover(), 0);
        assert!((0..20).all(|n| table.find(&client(n), 101, 60) == Some(affinity(n))));
        table.put(&client(3), &affinity(9), 101, 60).unwrap();
    }
}
