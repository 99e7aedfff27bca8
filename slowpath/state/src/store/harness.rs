//! Properties that a store has for any bytes in its log, for unit tests and the fuzz target
//! `store_log`.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::{Disk, LOG, Store};
use crate::name::{Name, Source};
use crate::object::{API, ApplianceSpec, Change, Object, Spec};

/// Files in memory.
#[derive(Clone, Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl Disk for Files {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.get(file).cloned())
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.entry(file.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.0.entry(file.to_owned()).or_default().truncate(len);
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let bytes = self.0.remove(from).ok_or(io::ErrorKind::NotFound)?;
        self.0.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a store with a log of these bytes and checks the result:
/// - If the log is damaged, it is unchanged and copied, the damage has an offset within it, and
///   changes are rejected.
/// - Otherwise the log is copied if it is cut, the store has the same objects when it is opened
///   again, and a change is durable.
pub fn harness(log: &[u8]) {
    let disk = Files(BTreeMap::from([(LOG.to_owned(), log.to_vec())]));
    let mut store = Store::open(disk);
    let spec = Spec::Appliance(Arc::new(ApplianceSpec::default()));
    let new = Name::new("new").map(|name| Object::new(name, Source::new(API), spec));
    let new = new.expect("the name is valid");
    let change = [vec![Change::put(new.clone())]];
    let file = |store: &Store<Files>, name: &str| store.disk.0.get(name).cloned();
    if let Some(damage) = store.damage().cloned() {
        assert!(damage.offset < log.len() as u64 && !damage.fault.is_empty());
        assert!(store.commit(&change, UNIX_EPOCH).iter().all(Result::is_err));
        assert_eq!(store.objects().revision(), 0);
        assert_eq!(file(&store, LOG).as_deref(), Some(log));
        assert_eq!(file(&store, "log.damaged").as_deref(), Some(log));
        return;
    }
    let retained = file(&store, LOG).unwrap_or_default();
    assert!(log.starts_with(&retained));
    assert_eq!(store.cut().is_some(), retained.len() < log.len());
    if store.cut().is_some() {
        assert_eq!(file(&store, "log.cut").as_deref(), Some(log));
    }
    let reopened = Store::open(store.disk.clone());
    assert!(reopened.damage().is_none() && reopened.cut().is_none());
    assert!(reopened.objects().all().eq(store.objects().all()));
    // The change is rejected if the log contains an object of this name that is in deletion.
    if store.commit(&change, UNIX_EPOCH).iter().all(Result::is_ok) {
        let reopened = Store::open(store.disk.clone());
        assert!(reopened.damage().is_none());
        assert!(reopened.objects().all().eq(store.objects().all()));
        assert!(reopened.objects().get(&new.key()).is_some());
    }
}
