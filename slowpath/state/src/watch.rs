//! How readers learn of changes: coarsely, each new snapshot; finely, what each revision touched.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::address::{Address, Endpoint};
use crate::name::Name;
use crate::tables::Tables;

/// How many names, addresses and endpoints are remembered, over all revisions. A reader that is
/// further behind looks at everything.
const REMEMBERED: usize = 16_384;

/// What a revision changed, added or took away; the snapshot tells which of them. A revision that
/// only completes an initializer has nothing here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// The revision.
    pub revision: u64,
    /// Services whose row, frontends or instances are others, by name.
    pub services: Vec<Name>,
    /// Frontends with new rows, and those that are gone.
    pub frontends: Vec<Address>,
    /// Endpoints of instances that are new, others or gone.
    pub endpoints: Vec<Endpoint>,
}

impl Touched {
    /// What it counts for in [`REMEMBERED`].
    fn items(&self) -> usize {
        1 + self.services.len() + self.frontends.len() + self.endpoints.len()
    }
}

/// A snapshot, and what was touched since an earlier one.
#[derive(Clone, Debug)]
pub struct News {
    /// The tables as they are.
    pub tables: Tables,
    /// What each revision touched that came after the one that was named, the oldest first. None:
    /// that is too long ago, everything has to be looked at.
    pub touched: Option<Vec<Arc<Touched>>>,
}

/// What the writer publishes.
#[derive(Debug)]
pub(crate) struct Watch {
    published: Mutex<Published>,
    current: watch::Sender<Tables>,
}

#[derive(Debug, Default)]
struct Published {
    tables: Tables,
    history: VecDeque<Arc<Touched>>,
    items: usize,
    /// The latest revision of which it is not known any more what it touched.
    forgotten: u64,
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

    pub(crate) fn publish(&self, tables: Tables, touched: Touched) {
        self.published.lock().take(tables.clone(), touched);
        // Without the lock: a receiver that looks at its snapshot may ask for news meanwhile. The
        // snapshot before may take long to be dropped, and is so here.
        self.current.send_replace(tables);
    }

    pub(crate) fn news(&self, since: u64) -> News {
        let published = self.published.lock();
        let history = &published.history;
        let touched = (since >= published.forgotten).then(|| {
            let first = history.partition_point(|touched| touched.revision <= since);
            history.range(first..).cloned().collect()
        });
        News { tables: published.tables.clone(), touched }
    }
}

impl Published {
    fn take(&mut self, tables: Tables, touched: Touched) {
        self.tables = tables;
        self.items += touched.items();
        self.history.push_back(Arc::new(touched));
        while self.items > REMEMBERED
            && let Some(oldest) = self.history.pop_front()
        {
            self.items -= oldest.items();
            self.forgotten = oldest.revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(watch: &Watch, revision: u64, services: usize) {
        let tables = Tables { revision, ..Tables::default() };
        let services = vec![Name::new("web").unwrap(); services];
        watch.publish(tables, Touched { revision, services, ..Touched::default() });
    }

    fn since(watch: &Watch, revision: u64) -> Option<Vec<u64>> {
        let touched = watch.news(revision).touched?;
        Some(touched.iter().map(|touched| touched.revision).collect())
    }

    #[test]
    fn readers_learn_what_came_after_what_they_have_seen() {
        let watch = Watch::new();
        assert_eq!(since(&watch, 0), Some(vec![]));
        for revision in 1..=3 {
            publish(&watch, revision, 1);
        }
        assert_eq!(since(&watch, 0), Some(vec![1, 2, 3]));
        assert_eq!(since(&watch, 2), Some(vec![3]));
        assert_eq!(since(&watch, 3), Some(vec![]));
        assert_eq!(watch.news(3).tables.revision(), 3);
    }

    #[test]
    fn what_is_too_long_ago_is_forgotten() {
        let watch = Watch::new();
        publish(&watch, 1, 10);
        publish(&watch, 2, REMEMBERED / 2);
        publish(&watch, 3, REMEMBERED / 2 - 2);
        assert_eq!(since(&watch, 0), None);
        assert_eq!(since(&watch, 1), Some(vec![2, 3]));
        publish(&watch, 4, REMEMBERED);
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
