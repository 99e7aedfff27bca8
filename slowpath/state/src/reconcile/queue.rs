//! Queue of addresses to write, each at most once: first rejected addresses whose retry is due,
//! then changed addresses in the order of their revisions.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use foldhash::HashMap;

use crate::address::Address;

/// Addresses to write, and those whose last write was rejected.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// All addresses that are queued, rejected, or being written.
    writes: HashMap<Address, PendingWrite>,
    /// Addresses that changed, oldest revision first.
    queue: VecDeque<Address>,
    /// Rejected addresses, by the time of their retry.
    rejected: BTreeSet<(Instant, Address)>,
}

#[derive(Debug)]
struct PendingWrite {
    /// Oldest revision that queued the address.
    revision: u64,
    /// Last rejection; `None` if there was none, or the address has changed since.
    rejected: Option<Rejection>,
}

#[derive(Debug)]
struct Rejection {
    retry_at: Instant,
    /// Number of consecutive failures.
    failures: u32,
    error: Box<str>,
}

impl WriteQueue {
    /// Queues an address that changed. An earlier rejection of the address is dropped, because it
    /// concerned an older row.
    pub fn add(&mut self, address: Address, revision: u64) {
        match self.writes.entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(PendingWrite { revision, rejected: None });
                self.queue.push_back(address);
            }
            Entry::Occupied(mut write) => {
                if let Some(rejected) = write.get_mut().rejected.take() {
                    self.rejected.remove(&(rejected.retry_at, address));
                    self.queue.push_back(address);
                }
            }
        }
    }

    /// Returns the next due address, with the oldest revision that queued it. The caller writes the
    /// address and calls `done` or `failed` within the same step.
    pub fn next(&mut self, now: Instant) -> Option<(Address, u64)> {
        let due =
            self.rejected.first().filter(|(retry_at, _)| *retry_at <= now).map(|first| first.1);
        let address = match due {
            Some(address) => {
                self.rejected.pop_first();
                address
            }
            None => self.queue.pop_front()?,
        };
        Some((address, self.writes.get(&address)?.revision))
    }

    /// Removes an address whose write the plane has accepted.
    pub fn done(&mut self, address: &Address) {
        self.writes.remove(address);
    }

    /// Records a rejection, and the time of the retry.
    pub fn failed(&mut self, address: Address, revision: u64, retry_at: Instant, error: &str) {
        let write = self.writes.entry(address).or_insert(PendingWrite { revision, rejected: None });
        let failures = write.rejected.as_ref().map_or(0, |rejected| rejected.failures) + 1;
        write.rejected = Some(Rejection { retry_at, failures, error: error.into() });
        self.rejected.insert((retry_at, address));
    }

    /// Returns the number of rejections since the address last changed.
    pub fn failures(&self, address: &Address) -> u32 {
        self.writes.get(address).and_then(|write| write.rejected.as_ref()).map_or(0, |r| r.failures)
    }

    /// Returns whether an address is queued, rejected, or being written.
    pub fn has(&self, address: &Address) -> bool {
        self.writes.contains_key(address)
    }

    /// Returns the message of an address's rejection: `Some(None)` if the address is queued and not
    /// rejected, `None` if [`WriteQueue::has`] is false.
    pub fn rejected(&self, address: &Address) -> Option<Option<&str>> {
        let write = self.writes.get(address)?;
        Some(write.rejected.as_ref().map(|rejected| &*rejected.error))
    }

    /// Returns whether any address is due at this time.
    pub fn has_due(&self, now: Instant) -> bool {
        !self.queue.is_empty()
            || self.rejected.first().is_some_and(|(retry_at, _)| *retry_at <= now)
    }

    /// Returns the oldest revision of the queued and rejected addresses.
    pub fn oldest(&self) -> Option<u64> {
        self.writes.values().map(|write| write.revision).min()
    }

    /// Returns the rejected addresses with their messages.
    pub fn errors(&self) -> impl Iterator<Item = (&Address, &str)> {
        self.writes.iter().filter_map(|(address, write)| {
            write.rejected.as_ref().map(|rejected| (address, &*rejected.error))
        })
    }
}
