//! Power failures at any byte, with all stages from objects on a disk to maps. After each,
//! acknowledged changes are stored, other changes are stored completely or not at all, and the maps
//! agree with the objects.
//!
//! `SIMULATION_SEED=7 cargo test -p state --test planes` replays one lifetime.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use crate::fixture::{Fixture, at, name};
use config::checked::ArmName;
use fastrand::Rng;
use state::backend::State;
use state::frontend::Kind;
use state::name::{Name, Precedence, Source};
use state::object::{
    API, BackendSpec, BackendsSpec, Change, FrontendSpec, Key, Object, Objects, ServiceSpec, Spec,
};
use state::reflect::Reflector;
use state::store::{Disk, Store};

/// Number of lifetimes, each with several power failures.
const LIFETIMES: u64 = 40;

/// Files that outlive the process, and power that may fail.
#[derive(Clone, Default)]
struct MemoryDisk(Rc<RefCell<DiskContents>>);

#[derive(Default)]
struct DiskContents {
    /// Durable contents and written contents, by name of the file.
    files: BTreeMap<String, (Vec<u8>, Vec<u8>)>,
    /// Number of appended bytes and of other operations until the power fails; `None` for never.
    power: Option<usize>,
}

impl DiskContents {
    /// Returns how much of `work` (bytes, or 1 for another operation) is done before the power
    /// fails.
    fn work(&mut self, work: usize) -> (usize, io::Result<()>) {
        match self.power {
            None => (work, Ok(())),
            Some(left) if left >= work => {
                self.power = Some(left - work);
                (work, Ok(()))
            }
            Some(left) => {
                self.power = Some(0);
                (left, Err(io::Error::other("no power")))
            }
        }
    }

    /// Restores the power. Of unsynced appended data, a random prefix is kept; other unsynced
    /// changes of a file are all kept or all lost. Renames are always kept.
    fn restart(&mut self, rng: &mut Rng) {
        self.power = None;
        for (durable, now) in self.files.values_mut() {
            let shared = now.starts_with(durable);
            match shared {
                true => now.truncate(durable.len() + rng.usize(..now.len() - durable.len() + 1)),
                false if rng.u32(..2) == 0 => now.clone_from(durable),
                false => {}
            }
            durable.clone_from(now);
        }
    }
}

impl Disk for MemoryDisk {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.borrow().files.get(file).map(|(_, now)| now.clone()))
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut contents = self.0.borrow_mut();
        let (done, result) = contents.work(bytes.len());
        contents.files.entry(file.into()).or_default().1.extend(&bytes[..done]);
        result
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        let mut contents = self.0.borrow_mut();
        contents.work(1).1?;
        contents.files.entry(file.into()).or_default().1.truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        let mut contents = self.0.borrow_mut();
        contents.work(1).1?;
        let (durable, now) = contents.files.entry(file.into()).or_default();
        durable.clone_from(now);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut contents = self.0.borrow_mut();
        contents.work(1).1?;
        let file = contents.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        contents.files.insert(to.into(), file);
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.0.borrow_mut().work(1).1
    }
}

/// Process: the store, the reflector that reads the store's objects, and the fixture with the maps.
struct Process {
    disk: MemoryDisk,
    store: Store<MemoryDisk>,
    reflector: Reflector,
    fixture: Fixture,
    reflected: u64,
}

impl Process {
    /// Starts a process with the contents of the disk.
    fn open(disk: MemoryDisk, mut fixture: Fixture) -> Process {
        let store = Store::open(disk.clone());
        let mut reflector = reflector();
        let initializer = fixture.writer.register_initializer(API);
        fixture.steps();
        reflect_all(&mut reflector, store.objects(), &fixture);
        fixture.write(|to| to.complete(&initializer));
        let reflected = store.objects().revision();
        Process { disk, store, reflector, fixture, reflected }
    }

    /// Commits a change; returns whether it was acknowledged.
    fn commit(&mut self, change: Change) -> bool {
        let answers = self.store.commit(&[vec![change]], self.fixture.now.wall);
        let events = self.store.take_events();
        self.reflected = self.store.objects().revision();
        let (reflector, objects) = (&mut self.reflector, self.store.objects());
        self.fixture.write(|to| reflector.apply(objects, &events, to));
        answers[0].is_ok()
    }
}

fn reflector() -> Reflector {
    Reflector::new(Precedence::default(), ArmName::Egress)
}

fn reflect_all(reflector: &mut Reflector, objects: &Objects, fixture: &Fixture) {
    let events = objects.as_events();
    fixture.write(|to| reflector.apply(objects, &events, to));
}

fn desired_objects(objects: &Objects) -> BTreeMap<Key, Spec> {
    objects.all().map(|object| (object.key(), object.spec.clone())).collect()
}

/// Returns a random change, and applies it to the desired objects.
fn random_change(rng: &mut Rng, desired: &mut BTreeMap<Key, Spec>) -> Change {
    let number = rng.usize(..4);
    let (service, list) = (name(&format!("shop/web-{number}")), format!("shop/list-{number}"));
    let object = match rng.u32(..2) == 0 {
        true => {
            let frontend = |n: usize| {
                FrontendSpec::new(
                    at(&format!("203.0.113.{}", 10 * number + n), 80),
                    Kind::LoadBalancer,
                )
            };
            let frontends = (0..3).filter(|_| rng.u32(..2) == 0).map(frontend).collect();
            let affinity_s = rng.u32(..2);
            let spec = ServiceSpec { frontends, affinity_s, ..ServiceSpec::default() };
            Object::new(service, Source::new(API), Spec::Service(Arc::new(spec)))
        }
        false => {
            let mut endpoints = Vec::new();
            for n in 1..=4 {
                let state = [State::Active, State::Active, State::Terminating][rng.usize(..3)];
                let addr = format!("10.0.0.{n}").parse().unwrap();
                if rng.u32(..2) == 0 {
                    endpoints.push(BackendSpec { state, ..BackendSpec::new(addr, 8080, 6) });
                }
            }
            let spec = BackendsSpec { service, endpoints };
            Object::new(Name::new(&list).unwrap(), Source::new(API), Spec::Backends(Arc::new(spec)))
        }
    };
    let key = object.key();
    if desired.contains_key(&key) && rng.u32(..4) == 0 {
        desired.remove(&key);
        return Change::delete(key);
    }
    desired.insert(key, object.spec.clone());
    Change::put(object)
}

#[test]
fn acknowledged_changes_survive_crashes_and_reach_the_maps() {
    match std::env::var("SIMULATION_SEED") {
        Ok(seed) => run_lifetime(seed.parse().unwrap()),
        Err(_) => (1..=LIFETIMES).for_each(run_lifetime),
    }
}

/// Runs a lifetime with four power failures.
fn run_lifetime(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let mut process = Process::open(MemoryDisk::default(), Fixture::new());
    let mut desired = BTreeMap::new();
    for _ in 0..4 {
        process.disk.0.borrow_mut().power = Some(rng.usize(..6_000));
        let mut pending = desired.clone();
        loop {
            process.fixture.plane.maps_mut().per_mille = 100;
            let change = random_change(rng, &mut pending);
            if !process.commit(change) {
                break;
            }
            desired.clone_from(&pending);
            process.fixture.step();
        }
        let Process { disk, fixture, .. } = process;
        disk.0.borrow_mut().restart(rng);
        process = Process::open(disk, fixture.restart());
        let actual = desired_objects(process.store.objects());
        assert!(actual == desired || actual == pending, "seed {seed}: {actual:?}, not {desired:?}");
        desired = actual;
        process.fixture.settle();

        let fresh = Fixture::new();
        reflect_all(&mut reflector(), process.store.objects(), &fresh);
        let mut fresh = fresh;
        fresh.settle();
        assert_eq!(process.fixture.lines(), fresh.lines(), "seed {seed}");
    }
}
