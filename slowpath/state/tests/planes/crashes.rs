//! Power failures at any byte, from objects on a disk to maps: acknowledged changes are there
//! afterwards, others completely or not at all, and the maps follow.
//!
//! `SIMULATION_SEED=7 cargo test -p state --test planes` replays one lifetime.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use crate::world::{World, at, name};
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

const LIVES: u64 = 40;

/// Files that outlive the process, and power that may fail.
#[derive(Clone, Default)]
struct Drive(Rc<RefCell<Platter>>);

#[derive(Default)]
struct Platter {
    /// Durable contents and written contents of each file.
    files: BTreeMap<String, (Vec<u8>, Vec<u8>)>,
    /// Bytes and calls until the power fails; `None` for never.
    power: Option<usize>,
}

impl Platter {
    /// Returns how much of some work is done before the power fails.
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

    /// Restores the power. Of unsynced appended data, a random prefix is kept.
    fn restart(&mut self, rng: &mut Rng) {
        self.power = None;
        for (kept, now) in self.files.values_mut() {
            let shared = now.starts_with(kept);
            match shared {
                true => now.truncate(kept.len() + rng.usize(..now.len() - kept.len() + 1)),
                false if rng.u32(..2) == 0 => now.clone_from(kept),
                false => {}
            }
            kept.clone_from(now);
        }
    }
}

impl Disk for Drive {
    fn read(&mut self, file: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.0.borrow().files.get(file).map(|(_, now)| now.clone()))
    }

    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        let (done, result) = platter.work(bytes.len());
        platter.files.entry(file.into()).or_default().1.extend(&bytes[..done]);
        result
    }

    fn truncate(&mut self, file: &str, len: u64) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        platter.work(1).1?;
        platter.files.entry(file.into()).or_default().1.truncate(len as usize);
        Ok(())
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        platter.work(1).1?;
        let (kept, now) = platter.files.entry(file.into()).or_default();
        kept.clone_from(now);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut platter = self.0.borrow_mut();
        platter.work(1).1?;
        let file = platter.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        platter.files.insert(to.into(), file);
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        self.0.borrow_mut().work(1).1
    }
}

/// A process: the store, the reflector that reads it, and the world with the maps.
struct House {
    drive: Drive,
    store: Store<Drive>,
    reflector: Reflector,
    world: World,
    reflected: u64,
}

impl House {
    /// Starts a process with the contents of the disk.
    fn open(drive: Drive, mut world: World) -> House {
        let store = Store::open(drive.clone());
        let mut reflector = reflector();
        let initializer = world.writer.register_initializer(API);
        world.steps();
        reflect_all(&mut reflector, store.objects(), &world);
        world.write(|to| to.complete(&initializer));
        let reflected = store.objects().revision();
        House { drive, store, reflector, world, reflected }
    }

    /// Commits a change; returns whether it was acknowledged.
    fn ask(&mut self, change: Change) -> bool {
        let answers = self.store.commit(&[vec![change]], self.world.now.wall);
        let events = self.store.take_events();
        self.reflected = self.store.objects().revision();
        let (reflector, objects) = (&mut self.reflector, self.store.objects());
        self.world.write(|to| reflector.apply(objects, &events, to));
        answers[0].is_ok()
    }
}

fn reflector() -> Reflector {
    Reflector::new(Precedence::default(), ArmName::Egress)
}

fn reflect_all(reflector: &mut Reflector, objects: &Objects, world: &World) {
    let events = objects.as_events();
    world.write(|to| reflector.apply(objects, &events, to));
}

fn wishes(objects: &Objects) -> BTreeMap<Key, Spec> {
    objects.all().map(|object| (object.key(), object.spec.clone())).collect()
}

/// Returns a random change, and applies it to the desired objects.
fn random_change(rng: &mut Rng, wanted: &mut BTreeMap<Key, Spec>) -> Change {
    let number = rng.usize(..4);
    let (service, list) = (name(&format!("shop/web-{number}")), format!("shop/list-{number}"));
    let object = match rng.u32(..2) == 0 {
        true => {
            let said = |n: usize| {
                FrontendSpec::new(
                    at(&format!("203.0.113.{}", 10 * number + n), 80),
                    Kind::LoadBalancer,
                )
            };
            let frontends = (0..3).filter(|_| rng.u32(..2) == 0).map(said).collect();
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
    if wanted.contains_key(&key) && rng.u32(..4) == 0 {
        wanted.remove(&key);
        return Change::delete(key);
    }
    wanted.insert(key, object.spec.clone());
    Change::put(object)
}

#[test]
fn what_was_answered_outlives_any_crash_and_the_maps_follow() {
    match std::env::var("SIMULATION_SEED") {
        Ok(seed) => live(seed.parse().unwrap()),
        Err(_) => (1..=LIVES).for_each(live),
    }
}

fn live(seed: u64) {
    let rng = &mut Rng::with_seed(seed);
    let mut house = House::open(Drive::default(), World::new());
    let mut wanted = BTreeMap::new();
    for _ in 0..4 {
        house.drive.0.borrow_mut().power = Some(rng.usize(..6_000));
        let mut under_way = wanted.clone();
        loop {
            house.world.plane.maps_mut().per_mille = 100;
            let change = random_change(rng, &mut under_way);
            if !house.ask(change) {
                break;
            }
            wanted.clone_from(&under_way);
            house.world.step();
        }
        let House { drive, world, .. } = house;
        drive.0.borrow_mut().restart(rng);
        house = House::open(drive, world.restart());
        let there = wishes(house.store.objects());
        assert!(there == wanted || there == under_way, "seed {seed}: {there:?}, not {wanted:?}");
        wanted = there;
        house.world.settle();

        let fresh = World::new();
        reflect_all(&mut reflector(), house.store.objects(), &fresh);
        let mut fresh = fresh;
        fresh.settle();
        assert_eq!(house.world.lines(), fresh.lines(), "seed {seed}");
    }
}
