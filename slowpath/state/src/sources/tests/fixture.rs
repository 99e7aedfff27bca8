//! Fixture: a store on a disk that may fail, the sources' state, and the tables that follow the
//! store.

use std::collections::BTreeSet;

use super::memory_disk::MemoryDisk;
use super::*;
use crate::name::Precedence;
use crate::object::ChangeError;
use crate::reflect::Reflector;
use crate::store::Store;
use crate::writer::Writer;
use config::checked::ArmName;

/// State of a process, its disk, which outlives it, and the time.
pub struct Fixture {
    memory_disk: MemoryDisk,
    pub store: Store<MemoryDisk>,
    pub sources: Sources,
    pub settings: Settings,
    pub writer: Writer,
    reflector: Reflector,
    precedence: Precedence,
    pub now: Now,
}

impl Fixture {
    pub fn new() -> Fixture {
        let own = vec![Source::new("file")];
        let settings = Settings { own, ..Settings::default() };
        let memory_disk = MemoryDisk::default();
        let store = Store::open(memory_disk.clone());
        let now = Now { steady: Instant::now(), wall: UNIX_EPOCH + Duration::from_secs(1 << 30) };
        let sources = Sources::new(settings.clone(), store.objects(), now);
        let precedence = Precedence::default();
        Fixture {
            memory_disk,
            store,
            sources,
            settings,
            writer: Writer::new(),
            reflector: Reflector::new(precedence.clone(), ArmName::Egress),
            precedence,
            now,
        }
    }

    /// Ends the process, sets the wall clock 10 days forward, and starts another process from the
    /// disk.
    pub fn restart(&mut self) {
        self.now.wall += Duration::from_secs(10 * 86_400);
        self.store = Store::open(self.memory_disk.clone());
        self.sources = Sources::new(self.settings.clone(), self.store.objects(), self.now);
        self.writer = Writer::new();
        self.reflector = Reflector::new(self.precedence.clone(), ArmName::Egress);
        let events = self.store.objects().as_events();
        self.reflect(&events);
    }

    pub fn fail_disk(&self, times: u32) {
        self.memory_disk.fail(times);
    }

    /// Sets the configuration of a source.
    pub fn set(&mut self, source: &str, setting: Setting) {
        self.settings.sources.insert(Source::new(source), setting);
        self.configure();
    }

    pub fn configure(&mut self) {
        self.sources.configure(self.settings.clone());
    }

    /// Sets the sources in order of preference.
    pub fn prefer(&mut self, order: &[&str]) {
        self.precedence = Precedence::new(order.iter().map(|name| Source::new(name)));
        let mut to = self.writer.begin(self.now.wall);
        let objects = self.store.objects();
        self.reflector.set_precedence(self.precedence.clone(), objects, &mut to);
        to.commit();
    }

    /// Advances the time second by second, with a tick in each.
    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let second = Duration::from_secs(1);
            self.now = Now { steady: self.now.steady + second, wall: self.now.wall + second };
            for batch in self.sources.tick(self.store.objects(), self.now) {
                // A batch that is not stored is returned again by the next tick.
                let _ = self.store_batch(batch);
            }
        }
    }

    /// Commits a batch to the store and writes its events into the tables.
    fn store_batch(&mut self, batch: Batch) -> Result<(), ChangeError> {
        let answer = self.store.commit(&[batch], self.now.wall).pop().unwrap();
        let events = self.store.take_events();
        self.reflect(&events);
        answer.map(drop)
    }

    fn reflect(&mut self, events: &[crate::object::Event]) {
        let mut to = self.writer.begin(self.now.wall);
        self.reflector.apply(self.store.objects(), events, &mut to);
        to.commit();
    }

    pub fn begin(&mut self, source: &str, revision: &str) -> Result<u64, Error> {
        let request = Begin { revision: revision.into(), lease_s: None };
        let begun = self.sources.begin(source, &request, self.store.objects(), self.now)?;
        self.store_batch(begun.1).map_err(|error| Error::Invalid(Box::new(error)))?;
        Ok(begun.0.session)
    }

    pub fn add(
        &mut self,
        source: &str,
        id: u64,
        number: u64,
        objects: Vec<Object>,
    ) -> Result<Added, Error> {
        self.sources.add(source, id, number, objects, self.now)
    }

    /// Commits the list, whatever it removes.
    pub fn commit(&mut self, source: &str, id: u64) -> Result<Committed, Error> {
        self.commit_as(source, id, true)
    }

    /// Commits the list. If it is held, records the removal as the API does.
    pub fn commit_as(
        &mut self,
        source: &str,
        id: u64,
        allow_removal: bool,
    ) -> Result<Committed, Error> {
        let (objects, request) = (self.store.objects(), Commit { allow_removal });
        let result = self.sources.commit(source, id, &request, objects, self.now);
        if let Err(Error::Held(held)) = &result {
            let record = held.record(objects, self.now.wall);
            self.store_batch(record).unwrap();
        }
        let (committed, batch) = result?;
        self.store_batch(batch).map_err(|error| Error::Invalid(Box::new(error)))?;
        self.sources.committed(source, id);
        Ok(committed)
    }

    pub fn confirm(&mut self, source: &str) -> Result<Confirmed, Error> {
        let objects = self.store.objects();
        let (confirmed, batch) = self.sources.confirm(source, objects, self.now)?;
        self.store_batch(batch).unwrap();
        Ok(confirmed)
    }

    pub fn abort(&mut self, source: &str, id: u64) -> Result<(), Error> {
        self.sources.abort(source, id)
    }

    pub fn renew(&mut self, source: &str, lease_s: Option<u32>) -> Result<Renewed, Error> {
        let request = Lease { lease_s };
        let renewed = self.sources.renew(source, &request, self.store.objects(), self.now)?;
        self.store_batch(renewed.1).map_err(|error| Error::Invalid(Box::new(error)))?;
        Ok(renewed.0)
    }

    /// Replaces the list in a session of one chunk.
    pub fn replace(
        &mut self,
        source: &str,
        revision: &str,
        objects: Vec<Object>,
    ) -> Result<Committed, Error> {
        let id = self.begin(source, revision)?;
        self.add(source, id, 0, objects)?;
        self.commit(source, id)
    }

    pub fn report(&self, source: &str) -> Report {
        let all = self.sources.report(self.store.objects(), self.now);
        all.into_iter().find(|report| report.source.as_str() == source).unwrap()
    }

    /// Returns the stored objects of a source, except its own object.
    pub fn names(&self, source: &str) -> Vec<String> {
        let of = |object: &&Arc<Object>| {
            object.source.as_str() == source && object.kind() != Kind::Source
        };
        let all = self.store.objects().all().filter(of);
        let mut names: Vec<String> =
            all.map(|object| format!("{} {}", object.kind(), object.name)).collect();
        names.sort();
        names
    }

    fn used(&self, service: &str) -> Vec<Arc<crate::backend::Instance>> {
        let tables = self.writer.tables();
        let entry = tables.entry(&Name::new(service).unwrap()).cloned();
        entry.iter().flat_map(|entry| entry.used()).cloned().collect()
    }

    /// Returns the backends of a service that get new flows.
    pub fn serving(&self, service: &str) -> Vec<String> {
        let used = self.used(service).into_iter();
        let serves = used.filter(|one| one.effective() == crate::backend::State::Active);
        serves.map(|one| one.endpoint.to_string()).collect()
    }

    /// Returns the sources of a service's backends in use, by endpoint.
    pub fn sources_of(&self, service: &str) -> Vec<String> {
        self.used(service).iter().map(|one| one.source.to_string()).collect()
    }

    /// Returns the frontends with the revisions of their rows.
    pub fn rows(&self) -> BTreeSet<(String, u64)> {
        let tables = self.writer.tables();
        tables.frontends().map(|row| (row.address().to_string(), row.revision)).collect()
    }
}
