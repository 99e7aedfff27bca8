//! Change notification for readers of the tables: each new snapshot, and the keys that each
//! revision changed.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::address::{Address, Endpoint};
use crate::name::Name;
use crate::tables::Tables;

/// Maximum number of items in the history: its revisions, and their names, addresses and endpoints.
/// A reader that is further behind has to read the whole snapshot.
const HISTORY_MAX: usize = 16_384;

/// Keys that a revision added, changed or removed. The lists are empty for a revision that only
/// registers or completes an initializer, or changes priorities but not the order of instances.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TouchedKeys {
    /// Revision number.
    pub revision: u64,
    /// Services whose row, frontends or instances changed, sorted by name.
    pub services: Vec<Name>,
    /// Addresses of frontends with new rows, and of removed frontends.
    pub frontends: Vec<Address>,
    /// Endpoints of instances that were added, changed or removed.
    pub endpoints: Vec<Endpoint>,
}

impl TouchedKeys {
    /// Returns the number of items that count towards [`HISTORY_MAX`].
    fn items(&self) -> usize {
        1 + self.services.len() + self.frontends.len() + self.endpoints.len()
    }
}

/// Snapshot, with the changes since an earlier one.
#[derive(Clone, Debug)]
pub struct TableChanges {
    /// Current tables.
    pub tables: Tables,
    /// Changes of each revision after the reader's, oldest first. `None` if the history lacks some
    /// of them, so that the reader has to read the whole snapshot.
    pub touched: Option<Vec<Arc<TouchedKeys>>>,
}

/// Publishes the writer's snapshots to readers.
#[derive(Debug)]
pub(crate) struct Watch {
    published: Mutex<Published>,
    current: watch::Sender<Tables>,
}

#[derive(Debug, Default)]
struct Published {
    tables: Tables,
    history: VecDeque<Arc<TouchedKeys>>,
    items: usize,
    /// Latest revision whose changes were dropped from the history.
    dropped: u64,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch { published: Mutex::default(), current: watch::Sender::new(Tables::default()) }
    }

    pub(crate) fn tables(&self) -> Tables {
        self.published.lock().tables.clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Tables> {
        self.current.subscribe()
    }

    pub(crate) fn publish(&self, tables: Tables, touched: TouchedKeys) {
        self.published.lock().push(tables.clone(), touched);
        // Outside the lock: a woken receiver may call `changes_since` immediately, and dropping the
        // previous snapshot here may take long.
        self.current.send_replace(tables);
    }

    pub(crate) fn changes_since(&self, since: u64) -> TableChanges {
        let published = self.published.lock();
        let history = &published.history;
        let touched = (since >= published.dropped).then(|| {
            let first = history.partition_point(|touched| touched.revision <= since);
            history.range(first..).cloned().collect()
        });
        TableChanges { tables: published.tables.clone(), touched }
    }
}

impl Published {
    fn push(&mut self, tables: Tables, touched: TouchedKeys) {
        self.tables = tables;
        self.items += touched.items();
        self.history.push_back(Arc::new(touched));
        while self.items > HISTORY_MAX
            && let Some(oldest) = self.history.pop_front()
        {
            self.items -= oldest.items();
            self.dropped = oldest.revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(watch: &Watch, revision: u64, services: usize) {
        let tables = Tables { revision, ..Tables::default() };
        let services = vec![Name::new("web").unwrap(); services];
        watch.publish(tables, TouchedKeys { revision, services, ..TouchedKeys::default() });
    }

    fn since(watch: &Watch, revision: u64) -> Option<Vec<u64>> {
        let touched = watch.changes_since(revision).touched?;
        Some(touched.iter().map(|touched| touched.revision).collect())
    }

    #[test]
    fn readers_get_changes_since_their_revision() {
        let watch = Watch::new();
        assert_eq!(since(&watch, 0), Some(vec![]));
        for revision in 1..=3 {
            publish(&watch, revision, 1);
        }
        assert_eq!(since(&watch, 0), Some(vec![1, 2, 3]));
        assert_eq!(since(&watch, 2), Some(vec![3]));
        assert_eq!(since(&watch, 3), Some(vec![]));
        assert_eq!(watch.changes_since(3).tables.revision(), 3);
    }

    #[test]
    fn old_changes_are_dropped_from_the_history() {
        let watch = Watch::new();
        publish(&watch, 1, 10);
        publish(&watch, 2, HISTORY_MAX / 2);
        publish(&watch, 3, HISTORY_MAX / 2 - 2);
        assert_eq!(since(&watch, 0), None);
        assert_eq!(since(&watch, 1), Some(vec![2, 3]));
        publish(&watch, 4, HISTORY_MAX);
        assert_eq!((since(&watch, 3), since(&watch, 4)), (None, Some(vec![])));
        publish(&watch, 5, 1);
        assert_eq!(since(&watch, 4), Some(vec![5]));
        let published = watch.published.lock();
        assert_eq!((published.items, published.history.len()), (2, 1));
    }

    #[test]
    fn receivers_are_woken_with_the_snapshot() {
        let watch = Watch::new();
        let mut receiver = watch.subscribe();
        assert!(!receiver.has_changed().unwrap());
        publish(&watch, 1, 1);
        assert!(receiver.has_changed().unwrap());
        assert_eq!(receiver.borrow_and_update().revision(), 1);
    }
}
