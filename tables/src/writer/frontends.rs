//! Operations on frontends: hash entries, and marks of addresses and scopes that have frontends.

use std::net::IpAddr;
use std::sync::atomic::{Ordering, fence};

use packet::addr::Addr;

use super::free_space::Unlinked;
use super::{UpdateError, Writer, checksum_seed};
use crate::checksum::checksum;
use crate::layout::Section;
use crate::lookup::{Entry, MAX_CHAIN, address_mark, is_probe_mark, scope_mark};
use crate::record::{ADDRESS_MARK, FrontendKey};

fn is_scope_mark(key: &FrontendKey) -> bool {
    *key == scope_mark(key.scope_key)
}

/// Marks that a frontend requires.
fn marks_of(key: &FrontendKey) -> impl Iterator<Item = FrontendKey> {
    let address = (key.prefix_len == 128).then(|| address_mark(key.scope_key, &key.addr));
    let scope = (key.scope_key != 0).then(|| scope_mark(key.scope_key));
    address.into_iter().chain(scope)
}

impl Writer<'_> {
    /// Assigns a frontend to a service, replacing any earlier assignment. `note` is any number that
    /// the caller needs in its lists of frontends ([`TableSet::frontend_notes`]).
    ///
    /// [`TableSet::frontend_notes`]: crate::set::TableSet::frontend_notes
    pub fn put_noted_frontend(
        &mut self,
        key: &FrontendKey,
        service: u32,
        note: u32,
    ) -> Result<(), UpdateError> {
        check_key(key)?;
        if self.prepared().service(service).is_none() {
            return Err(self.no_service(service));
        }
        let before = self.frontend(key);
        if before == Some((service, note)) {
            return Ok(());
        }
        let capacity = self.region.sizes().frontends;
        if before.is_none() && self.index.frontends == capacity {
            let (setting, used) = ("region.max_frontends", self.index.frontends);
            return Err(UpdateError::Full {
                what: "frontends",
                setting,
                used,
                capacity,
                retired: 0,
            });
        }
        self.begin()?;
        let marks: Vec<FrontendKey> =
            marks_of(key).filter(|mark| !self.index.marks.contains_key(mark)).collect();
        self.reserve_entries(1 + marks.len())?;
        for one in marks.iter().chain([key]) {
            self.check_chain(one)?;
        }
        if before.is_some() {
            self.end_frontend(key);
        }
        self.count_marks(key);
        for mark in marks {
            self.link(mark, (0, 0));
        }
        self.link(*key, (service, note));
        self.count_frontend(key, service);
        Ok(())
    }

    /// Returns service and note of a frontend in the next generation.
    pub fn frontend(&self, key: &FrontendKey) -> Option<(u32, u32)> {
        let (_, entry) = self.views.frontends.find(key, self.next())?;
        Some((entry.target(), entry.note()))
    }

    /// Returns the number of frontends of a service in the next generation.
    pub fn frontends_of(&self, service: u32) -> u32 {
        self.index.service_uses.get(service as usize).copied().unwrap_or(0)
    }

    /// Adds a frontend that the next generation sees to the index.
    pub(super) fn count_frontend(&mut self, key: &FrontendKey, service: u32) {
        self.index.kinds.add(key);
        self.index.frontends += 1;
        if let Some(uses) = self.index.service_uses.get_mut(service as usize) {
            *uses += 1;
        }
    }

    /// Adds the marks that a frontend requires to the index.
    pub(super) fn count_marks(&mut self, key: &FrontendKey) {
        for mark in marks_of(key) {
            let count = self.index.marks.entry(mark).or_insert(0);
            *count += 1;
            self.index.kinds.scopes += u32::from(*count == 1 && is_scope_mark(&mark));
        }
    }

    /// Adds a mark found at attach to the index. Only probe marks count: others follow from
    /// frontends.
    pub(super) fn learn_mark(&mut self, key: &FrontendKey) {
        if is_probe_mark(key) {
            self.index.kinds.add_probe(&key.addr);
        }
    }

    /// Removes a frontend, if it exists.
    pub fn remove_frontend(&mut self, key: &FrontendKey) -> Result<(), UpdateError> {
        if self.views.frontends.find(key, self.next()).is_none() {
            return Ok(());
        }
        self.begin()?;
        self.end_frontend(key);
        Ok(())
    }

    /// Removes a frontend from the next generation, with the marks that no other frontend requires.
    fn end_frontend(&mut self, key: &FrontendKey) {
        let Some(service) = self.end_entry(key) else { return };
        self.index.kinds.remove(key);
        self.index.frontends -= 1;
        if let Some(uses) = self.index.service_uses.get_mut(service as usize) {
            *uses -= 1;
        }
        for mark in marks_of(key) {
            let left = self.index.marks.get_mut(&mark).map(|count| {
                *count -= 1;
                *count
            });
            if left == Some(0) {
                self.index.marks.remove(&mark);
                self.index.kinds.scopes -= u32::from(is_scope_mark(&mark));
                self.end_entry(&mark);
            }
        }
    }

    /// Adds an entry that the next generation sees. The caller has ensured that one is free.
    pub(super) fn link(&mut self, key: FrontendKey, (target, note): (u32, u32)) {
        let Some(number) = self.index.entries.free.pop() else { return };
        let frontends = self.views.frontends;
        let head = frontends.head(&key);
        let first = head.load(Ordering::Relaxed);
        frontends.entries[number as usize].fill(
            &self.region_writer,
            key,
            (target, note),
            first,
            self.next(),
        );
        frontends.set_chain_bit(&self.region_writer, &key, true);
        if key.prefix_len == 128 {
            self.views.addresses.write(&self.region_writer, &key.addr);
        }
        self.region_writer.store_word(head, number + 1);
        self.sum ^= entry_sum(&frontends.entries[number as usize]);
    }

    /// Ends the entry of `key` from the next generation on and returns its target. The entry is
    /// unlinked from its chain when no reader sees it any more ([`Writer::reuse_entries`]).
    pub(super) fn end_entry(&mut self, key: &FrontendKey) -> Option<u32> {
        let next = self.next();
        let (number, entry) = self.views.frontends.find(key, next)?;
        self.sum ^= entry_sum(entry);
        entry.lifetime.end(&self.region_writer, next);
        self.index.entries.ending.push(number);
        Some(entry.target())
    }

    /// Ensures that `count` entries are free.
    pub(super) fn reserve_entries(&mut self, count: usize) -> Result<(), UpdateError> {
        if self.index.entries.free.len() < count {
            // With XDP programs as readers, one more grace period frees entries that they may be
            // visiting.
            if let Some(grace) =
                self.grace.as_ref().filter(|_| !self.index.entries.unlinked.is_empty())
            {
                grace.wait().map_err(|e| UpdateError::Kernel(e.to_string()))?;
            }
            self.free_unlinked();
        }
        if self.index.entries.free.len() >= count {
            return Ok(());
        }
        let (used, capacity, retired) = self.entry_usage();
        let (what, setting) = ("frontend entries", "region.max_frontends");
        Err(UpdateError::Full { what, setting, used, capacity, retired })
    }

    /// Returns the numbers of hash entries in use, in total, and of removed ones that a reader may
    /// still see or visit.
    pub(super) fn entry_usage(&self) -> (u32, u32, u32) {
        let entries = &self.index.entries;
        let capacity = self.views.frontends.entries.len() as u32;
        let unlinked =
            entries.unlinked.iter().map(|unlinked| unlinked.entries.len()).sum::<usize>();
        let retired = (entries.ending.len() + unlinked) as u32;
        (capacity - retired - entries.free.len() as u32, capacity, retired)
    }

    /// Checks that the chain of `key` stays within the length that readers walk if entries are
    /// added.
    pub(super) fn check_chain(&self, key: &FrontendKey) -> Result<(), UpdateError> {
        let frontends = &self.views.frontends;
        let mut link = frontends.head(key).load(Ordering::Relaxed);
        // Up to three entries may be added: the frontend and its two marks may hash to one chain.
        for _ in 0..MAX_CHAIN - 3 {
            let Some(number) = link.checked_sub(1) else { return Ok(()) };
            let Some(entry) = frontends.entries.get(number as usize) else { break };
            link = entry.next.load(Ordering::Relaxed);
        }
        Err(UpdateError::ChainTooLong)
    }

    /// Unlinks entries that no reader sees any more, and frees those unlinked long enough ago.
    pub(super) fn reuse_entries(&mut self) {
        self.free_unlinked();
        let ended = std::mem::take(&mut self.index.entries.ending);
        for number in &ended {
            self.unlink(*number);
        }
        self.keep_unlinked(ended);
    }

    /// Frees entries that were unlinked long enough ago.
    fn free_unlinked(&mut self) {
        let now = self.ticks();
        for unlinked in std::mem::take(&mut self.index.entries.unlinked) {
            if unlinked.is_unvisited(&now) {
                self.index.entries.free.extend(unlinked.entries);
            } else {
                self.index.entries.unlinked.push(unlinked);
            }
        }
    }

    /// Holds unlinked entries until no reader can be visiting them.
    pub(super) fn keep_unlinked(&mut self, entries: Vec<u32>) {
        // An lcore that `ticks` does not see joins later, and finds the chains without these
        // entries.
        fence(Ordering::SeqCst);
        let ticks = self.ticks();
        if ticks.is_empty() {
            self.index.entries.free.extend(entries);
        } else if !entries.is_empty() {
            self.index.entries.unlinked.push(Unlinked { entries, ticks });
        }
    }

    /// Returns the iteration count of each live lcore. XDP programs count as one lcore that is
    /// always live; a grace period counts as two iterations.
    fn ticks(&self) -> Vec<(usize, u64)> {
        if let Some(grace) = &self.grace {
            return vec![(0, 2 * grace.periods())];
        }
        self.region.live_lcores().map(|(i, lcore)| (i, lcore.tick())).collect()
    }

    /// Removes an entry from its chain by one store.
    pub(super) fn unlink(&self, number: u32) {
        let frontends = &self.views.frontends;
        let gone = &frontends.entries[number as usize];
        let mut link = frontends.head(gone.key());
        for _ in 0..=frontends.entries.len() {
            let Some(at) = link.load(Ordering::Relaxed).checked_sub(1) else { return };
            if at == number {
                self.region_writer.store_word(link, gone.next.load(Ordering::Relaxed));
                if frontends.head(gone.key()).load(Ordering::Relaxed) == 0 {
                    frontends.set_chain_bit(&self.region_writer, gone.key(), false);
                }
                return;
            }
            let Some(entry) = frontends.entries.get(at as usize) else { return };
            link = &entry.next;
        }
    }
}

/// Checksum of an entry, independent of its position.
pub(super) fn entry_sum(entry: &Entry) -> u64 {
    let target = entry.target();
    super::sum(Section::Frontends, target, entry.key())
        ^ checksum(checksum_seed(Section::FrontendHeads, target), &entry.note().to_le_bytes())
}

fn check_key(key: &FrontendKey) -> Result<(), UpdateError> {
    let (addr, prefix_len) = (IpAddr::from(key.addr), key.prefix_len);
    let why = if key.proto == ADDRESS_MARK {
        "protocol 255 is reserved; set tcp, udp, a number below 255, or any"
    } else if prefix_len > 128 {
        "a prefix has at most 128 bits (32 for IPv4)"
    } else if key.addr.is_v4() && prefix_len < 96 {
        "an IPv4 prefix has 96 to 128 bits in the 128-bit form"
    } else if key.addr.masked(prefix_len) != key.addr {
        "the address has bits set beyond its prefix; clear them"
    } else if prefix_len == 128 && key.addr == Addr::UNSPECIFIED {
        "the unspecified address receives no packets; use a prefix of 0 bits for all addresses"
    } else {
        return Ok(());
    };
    Err(UpdateError::Key { addr, prefix_len, why })
}
