//! Queue of addresses to write, each once: changed ones in the order of revisions, and rejected
//! ones when their retry is due.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use foldhash::HashMap;

use crate::address::Address;

#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: HashMap<Address, Job>,
    /// Addresses with changes.
    queue: VecDeque<Address>,
    /// Rejected addresses, by the time of their retry.
    refused: BTreeSet<(Instant, Address)>,
}

#[derive(Debug)]
struct Job {
    /// Oldest revision that queued the address.
    revision: u64,
    /// `None` while the address is in `queue`.
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Refused {
    again: Instant,
    /// Number of consecutive failures.
    failures: u32,
    why: Box<str>,
}

impl Jobs {
    /// Queues an address that changed. An earlier rejection concerned another row and is dropped.
    pub fn add(&mut self, address: Address, revision: u64) {
        match self.jobs.entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(Job { revision, refused: None });
                self.queue.push_back(address);
            }
            Entry::Occupied(mut job) => {
                if let Some(refused) = job.get_mut().refused.take() {
                    self.refused.remove(&(refused.again, address));
                    self.queue.push_back(address);
                }
            }
        }
    }

    /// Returns the next due address, with the oldest revision that queued it. The caller writes it
    /// at once and then calls `done` or `failed`.
    pub fn next(&mut self, now: Instant) -> Option<(Address, u64)> {
        let due = self.refused.first().filter(|(again, _)| *again <= now).map(|first| first.1);
        let address = match due {
            Some(address) => {
                self.refused.pop_first();
                address
            }
            None => self.queue.pop_front()?,
        };
        Some((address, self.jobs.get(&address)?.revision))
    }

    pub fn done(&mut self, address: &Address) {
        self.jobs.remove(address);
    }

    /// Records a rejection, and the time of the retry.
    pub fn failed(&mut self, address: Address, revision: u64, again: Instant, why: &str) {
        let job = self.jobs.entry(address).or_insert(Job { revision, refused: None });
        let failures = job.refused.as_ref().map_or(0, |refused| refused.failures) + 1;
        job.refused = Some(Refused { again, failures, why: why.into() });
        self.refused.insert((again, address));
    }

    /// Returns the number of rejections since the address last changed.
    pub fn failures(&self, address: &Address) -> u32 {
        self.jobs.get(address).and_then(|job| job.refused.as_ref()).map_or(0, |r| r.failures)
    }

    pub fn has(&self, address: &Address) -> bool {
        self.jobs.contains_key(address)
    }

    /// Returns, for an address that is not done, the message of its rejection, if it was rejected.
    pub fn refused(&self, address: &Address) -> Option<Option<&str>> {
        let job = self.jobs.get(address)?;
        Some(job.refused.as_ref().map(|refused| &*refused.why))
    }

    pub fn has_due(&self, now: Instant) -> bool {
        !self.queue.is_empty() || self.refused.first().is_some_and(|(again, _)| *again <= now)
    }

    /// Returns the oldest revision that is not written.
    pub fn oldest(&self) -> Option<u64> {
        self.jobs.values().map(|job| job.revision).min()
    }

    /// Returns the rejected addresses with their messages.
    pub fn errors(&self) -> impl Iterator<Item = (&Address, &str)> {
        self.jobs.iter().filter_map(|(address, job)| {
            job.refused.as_ref().map(|refused| (address, &*refused.why))
        })
    }
}
