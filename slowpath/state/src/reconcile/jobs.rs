//! Addresses that are to be told, each once: those with news in the order of revisions, and those
//! that were refused when their time has come.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use foldhash::HashMap;

use crate::address::Address;

#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: HashMap<Address, Job>,
    /// Those with news.
    queue: VecDeque<Address>,
    /// Those that were refused, by when they are due.
    refused: BTreeSet<(Instant, Address)>,
}

#[derive(Debug)]
struct Job {
    /// The oldest revision that asked for it.
    revision: u64,
    /// None while it is in the queue.
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Refused {
    again: Instant,
    /// How often one after the other.
    failures: u32,
    why: Box<str>,
}

impl Jobs {
    /// There is news of an address. If it was refused, that was another row.
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

    /// The next that is due, with the oldest revision that asks for it. It is told at once, and
    /// then `done` or `failed`.
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

    /// It was refused, and is to be told again at a time.
    pub fn failed(&mut self, address: Address, revision: u64, again: Instant, why: &str) {
        let job = self.jobs.entry(address).or_insert(Job { revision, refused: None });
        let failures = job.refused.as_ref().map_or(0, |refused| refused.failures) + 1;
        job.refused = Some(Refused { again, failures, why: why.into() });
        self.refused.insert((again, address));
    }

    /// How often it was refused since there was news of it.
    pub fn failures(&self, address: &Address) -> u32 {
        self.jobs.get(address).and_then(|job| job.refused.as_ref()).map_or(0, |r| r.failures)
    }

    pub fn has(&self, address: &Address) -> bool {
        self.jobs.contains_key(address)
    }

    /// Of an address that isn't done: why it was refused, if it was.
    pub fn refused(&self, address: &Address) -> Option<Option<&str>> {
        let job = self.jobs.get(address)?;
        Some(job.refused.as_ref().map(|refused| &*refused.why))
    }

    pub fn has_due(&self, now: Instant) -> bool {
        !self.queue.is_empty() || self.refused.first().is_some_and(|(again, _)| *again <= now)
    }

    /// The oldest revision that isn't told.
    pub fn oldest(&self) -> Option<u64> {
        self.jobs.values().map(|job| job.revision).min()
    }

    /// Those that were refused, and why.
    pub fn errors(&self) -> impl Iterator<Item = (&Address, &str)> {
        self.jobs.iter().filter_map(|(address, job)| {
            job.refused.as_ref().map(|refused| (address, &*refused.why))
        })
    }
}
