//! The one writer of the tables. Open this first: all changes are made here, in transactions.
//!
//! ```text
//!   begin(now) --> writes, each checked before anything is changed --> commit --> one revision
//!                                                                        |
//!                             snapshot and what was touched, for readers (watch.rs)
//! ```
//! Several sources write at once, each about its own. What a source says again as it said it
//! before changes nothing: no row, no revision. A service that changes, or its backends, or their
//! health, gets fresh rows for all its frontends, and so do the frontends that are redirected to
//! it: that is how the reconciler learns that they are pending.

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
use crate::watch::{News, Touched, Watch};

mod backends;
mod error;
mod frontends;
mod services;

pub use error::Error;

/// May change a service that a source wrote, before it becomes a row: how a proxy's port gets in
/// before the first write. It sees the tables as they are in the transaction. It cannot change the
/// name and the source.
pub type Hook = Box<dyn Fn(&Tables, &mut Service) + Send>;

/// Writes tables. There is one in a process.
pub struct Writer {
    state: Mutex<State>,
    watch: Watch,
}

#[derive(Default)]
struct State {
    precedence: Precedence,
    hooks: Vec<Hook>,
    initializers: u64,
}

/// Who has not said all that he knows yet ([`Writer::register_initializer`]).
#[derive(Debug)]
#[must_use = "nothing is pruned until it is completed"]
pub struct Initializer(u64);

/// Changes that are published together, or not at all when it is dropped. Others that want to write
/// wait; readers don't.
#[must_use = "without `commit` nothing is changed"]
pub struct Transaction<'w> {
    state: MutexGuard<'w, State>,
    watch: &'w Watch,
    now: SystemTime,
    precedence: Option<Precedence>,
    next: Tables,
    touched: Touched,
    written: bool,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer::new()
    }
}

impl Writer {
    /// Of empty tables at revision 0, in which no source is preferred.
    pub fn new() -> Writer {
        Writer { state: Mutex::default(), watch: Watch::new() }
    }

    /// The tables as they are.
    pub fn tables(&self) -> Tables {
        self.watch.tables()
    }

    /// The tables as they are, and what was touched since a revision.
    pub fn news(&self, since: u64) -> News {
        self.watch.news(since)
    }

    /// Wakes at each revision, with the tables as they are then.
    pub fn subscribe(&self) -> watch::Receiver<Tables> {
        self.watch.subscribe()
    }

    /// Begins to write, as soon as nobody else does: a thread has one transaction at a time, or
    /// waits for itself. `now` is the time that rows will tell.
    pub fn begin(&self, now: SystemTime) -> Transaction<'_> {
        let (state, next) = (self.state.lock(), self.watch.tables());
        let touched = Touched { revision: next.revision + 1, ..Touched::default() };
        let (watch, precedence, written) = (&self.watch, None, false);
        Transaction { state, watch, now, precedence, next, touched, written }
    }

    // Nothing in Weir calls this yet: the seed names it, and a later issue uses it.
    /// Adds a hook, which is called for each service that is written from now on, after those that
    /// were added before.
    pub fn add_hook(&self, hook: Hook) {
        self.state.lock().hooks.push(hook);
    }

    /// Holds pruning back until a transaction completes the token: a source that has yet to say all
    /// that it knows registers before anybody prunes.
    pub fn register_initializer(&self, name: &str) -> Initializer {
        let mut transaction = self.begin(SystemTime::UNIX_EPOCH);
        let number = transaction.state.initializers;
        transaction.state.initializers += 1;
        Arc::make_mut(&mut transaction.next.initializers).insert(number, name.into());
        transaction.written = true;
        transaction.commit();
        Initializer(number)
    }
}

impl Transaction<'_> {
    /// The tables as they will be. Rows of frontends are fresh only after [`Transaction::commit`].
    pub fn tables(&self) -> &Tables {
        &self.next
    }

    /// Notes that a source has said all that it knows. It has no effect to say so twice.
    pub fn complete(&mut self, initializer: &Initializer) {
        if self.next.initializers.contains_key(&initializer.0) {
            Arc::make_mut(&mut self.next.initializers).remove(&initializer.0);
            self.written = true;
        }
    }

    /// Publishes the changes as one revision, and tells which; that of before when nothing changed.
    pub fn commit(mut self) -> u64 {
        if let Some(precedence) = self.precedence.take() {
            self.state.precedence = precedence;
        }
        if !self.written {
            return self.next.revision;
        }
        let revision = self.touched.revision;
        self.next.revision = revision;
        self.link();
        self.watch.publish(self.next, self.touched);
        revision
    }

    /// Gives fresh rows to the frontends of the services that were written, and to those that are
    /// redirected to them.
    fn link(&mut self) {
        let mut names = mem::take(&mut self.touched.services);
        names.sort_unstable();
        names.dedup();
        let mut redirected = Vec::new();
        for name in &names {
            self.link_rows(name, |_| true);
            redirected.extend(self.next.redirected_to(name).copied());
        }
        for address in redirected {
            if let Some(owner) = self.next.owners.get(&address).cloned() {
                self.link_rows(&owner, |row| row.address() == &address);
            }
        }
        let Touched { services, frontends, endpoints, .. } = &mut self.touched;
        *services = names;
        frontends.sort_unstable();
        frontends.dedup();
        endpoints.sort_unstable();
        endpoints.dedup();
    }

    fn link_rows(&mut self, name: &Name, which: impl Fn(&Frontend) -> bool) {
        let (revision, now) = (self.touched.revision, self.now);
        let Some(entry) = self.next.entries.get(name) else { return };
        let Some(service) = entry.service.clone() else { return };
        let is_stale =
            |row: &Frontend| row.revision != revision || !Arc::ptr_eq(&row.service, &service);
        let addresses = entry.frontends.iter().filter(|row| which(row)).map(|row| *row.address());
        self.touched.frontends.extend(addresses);
        if !entry.frontends.iter().any(|row| which(row) && is_stale(row)) {
            return;
        }
        let Some(entry) = self.next.entries.get_mut(name) else { return };
        for row in &mut Arc::make_mut(entry).frontends {
            if which(row) && is_stale(row) {
                let (said, to) = (row.said.clone(), row.redirect_to.clone());
                *row = Arc::new(Frontend::new(said, Arc::clone(&service), to, revision, now));
            }
        }
    }

    /// Changes what is known under a name, and forgets the name when nothing is.
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
