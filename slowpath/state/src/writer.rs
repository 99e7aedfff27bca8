//! The only writer of the tables: all changes are made here, in transactions.
//!
//! ```text
//!   begin(now) --> writes, each checked before anything is changed --> commit --> one revision
//!                                                                        |
//!                         snapshot and the keys that changed, for readers (watch.rs)
//! ```
//! Several sources write, each its own services and backends; one transaction is open at a time. A
//! write that changes nothing creates no row and no revision. If a service, its backends or their
//! health change, all its frontends and those that are redirected to it get new rows, which are
//! pending until all lcores have acknowledged the plane's update.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::frontend::Frontend;
use crate::name::{Name, Precedence};
use crate::service::Service;
use crate::tables::{Entry, Tables};
use crate::watch::{TableChanges, TouchedKeys, Watch};

mod backends;
mod error;
mod frontends;
mod services;

pub use error::Error;

/// Function that may change a service before it becomes a row, for example to set a proxy port
/// before the first write. Its first argument is the tables of the transaction so far. Changes that
/// it makes to name and source are ignored.
pub type Hook = Box<dyn Fn(&Tables, &mut Service) + Send>;

/// Writer of the tables. A process has one writer.
pub struct Writer {
    state: Mutex<State>,
    watch: Watch,
}

#[derive(Default)]
struct State {
    precedence: Precedence,
    hooks: Vec<Hook>,
    /// Number of the next [`Initializer`].
    next_initializer: u64,
}

/// Token of a source that has not completed its initial list ([`Writer::register_initializer`]).
#[derive(Debug)]
#[must_use = "nothing is pruned until a transaction completes the token"]
pub struct Initializer(u64);

/// Set of changes that are published together, or discarded if the transaction is dropped. Other
/// writers wait for the end of the transaction; readers do not.
#[must_use = "a transaction without `commit` changes nothing"]
pub struct Transaction<'w> {
    state: MutexGuard<'w, State>,
    watch: &'w Watch,
    now: SystemTime,
    /// New precedence, which applies to this transaction and from its commit on to all others.
    precedence: Option<Precedence>,
    next: Tables,
    touched: TouchedKeys,
    /// Whether anything changed, so that the commit creates a revision.
    written: bool,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// Creates a writer of empty tables at revision 0, without a preferred source.
    pub fn new() -> Writer {
        Writer { state: Mutex::default(), watch: Watch::new() }
    }

    /// Returns the current tables.
    pub fn tables(&self) -> Tables {
        self.watch.tables()
    }

    /// Returns the current tables, and what changed since a revision.
    pub fn changes_since(&self, since: u64) -> TableChanges {
        self.watch.changes_since(since)
    }

    /// Returns a receiver that is notified of each revision and holds the latest tables.
    pub fn subscribe(&self) -> watch::Receiver<Tables> {
        self.watch.subscribe()
    }

    /// Begins a transaction. If another one is open, waits for its end: a thread that begins a
    /// second transaction while it holds one deadlocks. `now` is the timestamp of the rows written.
    pub fn begin(&self, now: SystemTime) -> Transaction<'_> {
        let (state, next) = (self.state.lock(), self.watch.tables());
        let touched = TouchedKeys { revision: next.revision + 1, ..TouchedKeys::default() };
        let (watch, precedence, written) = (&self.watch, None, false);
        Transaction { state, watch, now, precedence, next, touched, written }
    }

    // Listed in docs/provenance.md (`ServiceHook`). Only tests add hooks.
    /// Adds a hook. Hooks are called in the order in which they were added, for each service
    /// written from now on.
    pub fn add_hook(&self, hook: Hook) {
        self.state.lock().hooks.push(hook);
    }

    /// Registers a source that has not written its initial list: nothing is pruned from a plane
    /// until a transaction completes the returned token. A source registers before it writes the
    /// list.
    pub fn register_initializer(&self, name: &str) -> Initializer {
        let mut transaction = self.begin(SystemTime::UNIX_EPOCH);
        let number = transaction.state.next_initializer;
        transaction.state.next_initializer += 1;
        Arc::make_mut(&mut transaction.next.initializers).insert(number, name.into());
        transaction.written = true;
        transaction.commit();
        Initializer(number)
    }
}

impl Transaction<'_> {
    /// Returns the tables including the changes made so far. The new rows of frontends appear only
    /// at [`Transaction::commit`].
    pub fn tables(&self) -> &Tables {
        &self.next
    }

    /// Marks the initial list of the token's source as complete. A repeated call has no effect.
    pub fn complete(&mut self, initializer: &Initializer) {
        if self.next.initializers.contains_key(&initializer.0) {
            Arc::make_mut(&mut self.next.initializers).remove(&initializer.0);
            self.written = true;
        }
    }

    /// Publishes the changes as one revision and returns its number, or the current revision if
    /// nothing changed.
    pub fn commit(mut self) -> u64 {
        if let Some(precedence) = self.precedence.take() {
            self.state.precedence = precedence;
        }
        if !self.written {
            return self.next.revision;
        }
        let revision = self.touched.revision;
        self.next.revision = revision;
        self.renew_rows();
        self.watch.publish(self.next, self.touched);
        revision
    }

    /// Creates new rows for the frontends of the services that this transaction changed, and for
    /// frontends redirected to those services.
    fn renew_rows(&mut self) {
        let mut names = mem::take(&mut self.touched.services);
        names.sort_unstable();
        names.dedup();
        let mut redirected = Vec::new();
        for name in &names {
            self.renew_rows_of(name, |_| true);
            redirected.extend(self.next.redirected_to(name).copied());
        }
        for address in redirected {
            if let Some(owner) = self.next.owners.get(&address).cloned() {
                self.renew_rows_of(&owner, |row| row.address() == &address);
            }
        }
        let TouchedKeys { services, frontends, endpoints, .. } = &mut self.touched;
        *services = names;
        frontends.sort_unstable();
        frontends.dedup();
        endpoints.sort_unstable();
        endpoints.dedup();
    }

    /// Creates new rows for the selected frontends of a service, unless this transaction has
    /// created rows for them that refer to the service's current row.
    fn renew_rows_of(&mut self, name: &Name, selects: impl Fn(&Frontend) -> bool) {
        let (revision, now) = (self.touched.revision, self.now);
        let Some(entry) = self.next.entries.get(name) else { return };
        let Some(service) = entry.service.clone() else { return };
        let is_stale =
            |row: &Frontend| row.revision != revision || !Arc::ptr_eq(&row.service, &service);
        let addresses = entry.frontends.iter().filter(|row| selects(row)).map(|row| *row.address());
        self.touched.frontends.extend(addresses);
        if !entry.frontends.iter().any(|row| selects(row) && is_stale(row)) {
            return;
        }
        let Some(entry) = self.next.entries.get_mut(name) else { return };
        for row in &mut Arc::make_mut(entry).frontends {
            if selects(row) && is_stale(row) {
                let (spec, to) = (row.spec.clone(), row.redirect_to.clone());
                *row = Arc::new(Frontend::new(spec, Arc::clone(&service), to, revision, now));
            }
        }
    }

    /// Changes the entry of a service name, and removes the entry if it becomes empty.
    fn change<R>(&mut self, name: &Name, change: impl FnOnce(&mut Entry) -> R) -> R {
        self.written = true;
        self.touched.services.push(name.clone());
        let Some(entry) = self.next.entries.get_mut(name) else {
            let mut entry = Entry::default();
            let result = change(&mut entry);
            if !entry.is_empty() {
                self.next.entries.insert(name.clone(), Arc::new(entry));
            }
            return result;
        };
        let entry = Arc::make_mut(entry);
        let result = change(entry);
        if entry.is_empty() {
            self.next.entries.remove(name);
        }
        result
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer of {:?}", self.watch)
    }
}

#[cfg(test)]
mod tests;
