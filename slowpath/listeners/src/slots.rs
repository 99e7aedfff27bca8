//! Connection limits: maxima per listener and per source, reserved slots, and eviction.
//!
//! A connection that has not sent a complete request can be evicted; one whose request is being
//! served cannot. If there is no slot for a new connection, the oldest evictable connection is
//! closed: first those that never got a response, and those whose last response was sent and that
//! only have to be closed; then those that got a response, and are idle or are sending a further
//! request. For a source that has reached its own limit, only connections of that source are
//! considered. Sources with reserved slots have a pool of their own, which other sources cannot
//! fill.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::limits::{Counts, Limits, MAX_CLOSING, ReservedNetworks, SlotError, Timeout, Timeouts};
use crate::source::{Source, SourceKey};

#[derive(Default)]
struct Counters {
    accepted: AtomicU64,
    evicted: AtomicU64,
    refused_source: AtomicU64,
    refused_full: AtomicU64,
    refused_descriptors: AtomicU64,
    accept_errors: AtomicU64,
    timeouts: [AtomicU64; 4],
}

/// Order of eviction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum EvictionClass {
    /// The connection never got a response, or its last response was sent and it only has to be
    /// closed.
    Unanswered,
    /// The connection got a response, and is idle or is sending a further request.
    Idle,
}

/// Connections of one listener, or of several listeners with shared limits.
pub struct Slots {
    limits: Limits,
    timeouts: Timeouts,
    reserved_for: ReservedNetworks,
    table: Mutex<Table>,
    counters: Counters,
    closed: Notify,
}

#[derive(Default)]
struct Table {
    /// The number assigned last. Connections and eviction keys are numbered in one sequence, so
    /// that a lower number is older.
    last_id: u64,
    entries: HashMap<u64, Entry>,
    /// Pool 0 has the connections of sources without reserved slots, pool 1 of those with.
    pools: [Pool; 2],
    /// Number of evicted connections that are still open.
    closing: usize,
}

#[derive(Default)]
struct Pool {
    open: usize,
    by_source: HashMap<SourceKey, usize>,
    /// Evictable connections in the order of eviction: by class, then by the number of the key. The
    /// values are the connection's number and source.
    evictable: BTreeMap<(EvictionClass, u64), (u64, SourceKey)>,
}

struct Entry {
    pool: usize,
    source: SourceKey,
    /// Position in `evictable`, unless a request is being served.
    eviction_key: Option<(EvictionClass, u64)>,
    evict: oneshot::Sender<()>,
}

/// The slot of a connection, released on drop.
pub struct Slot {
    slots: Arc<Slots>,
    id: u64,
    evicted: AtomicBool,
    /// Whether the current request was received completely.
    received: AtomicBool,
}

impl Slots {
    /// Creates an instance without connections, with default timeouts. `reserved_for` are the
    /// networks with reserved slots.
    pub fn new(limits: Limits, reserved_for: ReservedNetworks) -> Arc<Slots> {
        Slots::with_timeouts(limits, reserved_for, Timeouts::default())
    }

    /// Creates an instance without connections, as [`Slots::new`], with these timeouts.
    pub fn with_timeouts(
        limits: Limits,
        reserved_for: ReservedNetworks,
        timeouts: Timeouts,
    ) -> Arc<Slots> {
        Arc::new(Slots {
            limits,
            timeouts,
            reserved_for,
            table: Mutex::default(),
            counters: Counters::default(),
            closed: Notify::new(),
        })
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        let counters = &self.counters;
        let open = {
            let table = self.table.lock();
            table.entries.len() + table.closing
        };
        Counts {
            open,
            accepted: counters.accepted.load(Relaxed),
            evicted: counters.evicted.load(Relaxed),
            refused_source: counters.refused_source.load(Relaxed),
            refused_full: counters.refused_full.load(Relaxed),
            refused_descriptors: counters.refused_descriptors.load(Relaxed),
            accept_errors: counters.accept_errors.load(Relaxed),
            timeouts: std::array::from_fn(|i| counters.timeouts[i].load(Relaxed)),
        }
    }

    /// Returns the timeouts.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Counts a connection that was closed because of a timeout.
    pub fn timed_out(&self, what: Timeout) {
        self.counters.timeouts[what as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn accept_failed(&self) {
        self.counters.accept_errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused_for_descriptors(&self) {
        self.counters.refused_descriptors.fetch_add(1, Relaxed);
    }

    /// Assigns a slot to a connection, and evicts another one if necessary. The receiver resolves
    /// when the connection itself is evicted.
    ///
    /// # Errors
    /// Returns an error if there is no free slot and no connection can be evicted.
    pub fn admit(
        self: &Arc<Slots>,
        source: Source,
    ) -> Result<(Slot, oneshot::Receiver<()>), SlotError> {
        let (key, pool) = (source.key(), usize::from(self.is_reserved(source)));
        let limit = if pool == 1 { self.limits.reserved } else { self.limits.connections };
        let mut table = self.table.lock();
        let own = table.pools[pool].by_source.get(&key).copied().unwrap_or(0);
        let (has_slot, error) = if own >= self.limits.per_source {
            (self.evict(&mut table, pool, Some(key)), SlotError::Source)
        } else if table.pools[pool].open >= limit {
            (self.evict(&mut table, pool, None), SlotError::Full)
        } else {
            (true, SlotError::Full)
        };
        if !has_slot {
            let counter = match error {
                SlotError::Source => &self.counters.refused_source,
                SlotError::Full => &self.counters.refused_full,
            };
            counter.fetch_add(1, Relaxed);
            return Err(error);
        }
        let (evict, evicted) = oneshot::channel();
        let id = table.insert(pool, key, evict);
        drop(table);
        self.counters.accepted.fetch_add(1, Relaxed);
        let (slots, received) = (Arc::clone(self), AtomicBool::new(false));
        Ok((Slot { slots, id, evicted: AtomicBool::new(false), received }, evicted))
    }

    /// Evicts the next connection in order, if possible of a source without reserved slots. Returns
    /// false if none can be evicted.
    pub(crate) fn evict_one(&self) -> bool {
        let mut table = self.table.lock();
        self.evict(&mut table, 0, None) || self.evict(&mut table, 1, None)
    }

    /// Waits until at most `at_most` evicted connections still hold descriptors.
    pub(crate) async fn wait_for_closed(&self, at_most: usize) {
        loop {
            let closed = self.closed.notified();
            if self.table.lock().closing <= at_most {
                return;
            }
            closed.await;
        }
    }

    /// Waits until fewer than [`MAX_CLOSING`] evicted connections hold descriptors.
    pub(crate) async fn wait_until_accepting(&self) {
        self.wait_for_closed(MAX_CLOSING - 1).await;
    }

    fn is_reserved(&self, source: Source) -> bool {
        match source {
            Source::Address(addr) => self.reserved_for.contains(addr),
            Source::User(_) => false,
        }
    }

    /// Evicts the next connection of a pool in the order of eviction; with `source`, the next one
    /// of that source. Returns false if none can be evicted.
    fn evict(&self, table: &mut Table, pool: usize, source: Option<SourceKey>) -> bool {
        let mut evictable = table.pools[pool].evictable.values();
        let found = evictable.find(|(_, key)| source.is_none_or(|source| source == *key));
        let Some((id, _)) = found.copied() else { return false };
        if let Some(entry) = table.remove(id) {
            table.closing += 1;
            // The connection may end by itself at the same time.
            let _ = entry.evict.send(());
        }
        self.counters.evicted.fetch_add(1, Relaxed);
        true
    }
}

impl Table {
    fn insert(&mut self, pool: usize, source: SourceKey, evict: oneshot::Sender<()>) -> u64 {
        self.last_id += 1;
        let (id, eviction_key) = (self.last_id, (EvictionClass::Unanswered, self.last_id));
        let slots = &mut self.pools[pool];
        slots.open += 1;
        *slots.by_source.entry(source).or_default() += 1;
        slots.evictable.insert(eviction_key, (id, source));
        self.entries.insert(id, Entry { pool, source, eviction_key: Some(eviction_key), evict });
        id
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        let pool = &mut self.pools[entry.pool];
        pool.open -= 1;
        if let Some(eviction_key) = entry.eviction_key {
            pool.evictable.remove(&eviction_key);
        }
        if let Some(count) = pool.by_source.get_mut(&entry.source) {
            *count -= 1;
            if *count == 0 {
                pool.by_source.remove(&entry.source);
            }
        }
        Some(entry)
    }

    /// Makes a connection evictable with this class; `None` protects it from eviction.
    fn set_class(&mut self, id: u64, class: Option<EvictionClass>) {
        self.last_id += 1;
        let since = self.last_id;
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let pool = &mut self.pools[entry.pool];
        if let Some(eviction_key) = entry.eviction_key.take() {
            pool.evictable.remove(&eviction_key);
        }
        if let Some(class) = class {
            pool.evictable.insert((class, since), (id, entry.source));
            entry.eviction_key = Some((class, since));
        }
    }
}

impl Slot {
    /// Returns the slots of the listener.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Records that a request begins. Until it is received completely, the connection can be
    /// evicted.
    pub(crate) fn request_begins(&self) {
        self.received.store(false, Relaxed);
    }

    /// Records that the request was received completely. The connection is not evicted until the
    /// response ends.
    pub(crate) fn request_received(&self) {
        if !self.received.swap(true, Relaxed) {
            self.slots.table.lock().set_class(self.id, None);
        }
    }

    /// Returns whether the request was received completely.
    pub(crate) fn is_received(&self) -> bool {
        self.received.load(Relaxed)
    }

    /// Records that the response has ended. `closes`: no further request is read from the
    /// connection.
    pub(crate) fn response_ended(&self, closes: bool) {
        let class = if closes { EvictionClass::Unanswered } else { EvictionClass::Idle };
        self.slots.table.lock().set_class(self.id, Some(class));
    }

    /// Records that the connection was evicted and is about to be closed.
    pub(crate) fn mark_evicted(&self) {
        self.evicted.store(true, Relaxed);
    }

    /// Returns whether the connection was evicted.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.load(Relaxed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.slots.table.lock();
        if table.remove(self.id).is_none() {
            table.closing -= 1;
            drop(table);
            self.slots.closed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
