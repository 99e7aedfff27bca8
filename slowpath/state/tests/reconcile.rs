//! Tests of the reconciler with a plane that the test controls.
#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not so")]

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use map_plane::{FaultyMaps, MapPlane, MemoryMaps, Options};
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::backend::Instance;
use state::dump::{self, Form, Record};
use state::frontend::{Kind, Progress, Status};
use state::name::{Name, Source};
use state::object::{FrontendSpec, ProxyRedirect, ServiceSpec};
use state::plane::{Generation, Plane, Refusal, Wanted};
use state::reconcile::{Now, Reconciler, Settings};
use state::service::Service;
use state::writer::{Initializer, Writer};
use std::sync::Arc;

/// Plane of maps in memory, with batches, rejections and acknowledgements that the test controls.
struct Ruled {
    plane: MapPlane<FaultyMaps<MemoryMaps>>,
    acknowledged: Option<Generation>,
    /// Generation returned by each commit; `None` for the plane's own count.
    generation: Option<Generation>,
    /// Addresses that are rejected.
    refused: Vec<Address>,
    begin: Result<(), Refusal>,
    commit: Result<(), Refusal>,
    /// Address whose batches cannot be committed.
    poison: Option<Address>,
    batch: Vec<Address>,
    prunes: usize,
    prune: Result<(), Refusal>,
    told: usize,
    restored: Vec<(Address, Endpoint)>,
}

impl Ruled {
    fn new() -> Ruled {
        let maps = FaultyMaps::new(MemoryMaps::default(), 0, 1);
        Ruled {
            plane: MapPlane::new(maps, Options::default()),
            acknowledged: None,
            generation: None,
            refused: Vec::new(),
            begin: Ok(()),
            commit: Ok(()),
            poison: None,
            batch: Vec::new(),
            prunes: 0,
            prune: Ok(()),
            told: 0,
            restored: Vec::new(),
        }
    }

    fn writes(&self) -> u64 {
        self.plane.maps().maps.writes()
    }
}

impl Plane for Ruled {
    fn begin(&mut self) -> Result<(), Refusal> {
        self.begin.clone()
    }

    fn update(&mut self, wanted: &Wanted) -> Result<(), Refusal> {
        self.told += 1;
        self.batch.push(*wanted.frontend.address());
        if self.refused.contains(wanted.frontend.address()) {
            return Err(Refusal::new("raise region.slots"));
        }
        self.plane.update(wanted)
    }

    fn delete(&mut self, address: &Address) -> Result<(), Refusal> {
        self.told += 1;
        if self.refused.contains(address) {
            return Err(Refusal::new("cannot be deleted"));
        }
        self.plane.delete(address)
    }

    fn prune(
        &mut self,
        wanted: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, Refusal> {
        self.prunes += 1;
        self.prune.clone()?;
        self.plane.prune(wanted, at_most)
    }

    fn commit(&mut self) -> Result<Generation, Refusal> {
        let batch = std::mem::take(&mut self.batch);
        self.commit.clone()?;
        if self.poison.is_some_and(|poison| batch.contains(&poison)) {
            return Err(Refusal::new("there is room for 64 tunnels"));
        }
        let committed = self.plane.commit()?;
        Ok(self.generation.unwrap_or(committed))
    }

    fn acknowledged(&self) -> Option<Generation> {
        self.acknowledged
    }

    fn quarantined(&self) -> Vec<(Address, Endpoint)> {
        self.restored.clone()
    }

    fn dump(&self) -> Vec<Record> {
        self.plane.dump()
    }
}

/// A writer, a reconciler, a controlled plane, and a time that the test advances.
struct World {
    writer: Writer,
    reconciler: Reconciler,
    plane: Ruled,
    now: Now,
}

const SECOND: Duration = Duration::from_secs(1);
/// Every generation is acknowledged.
const ALL: Option<Generation> = Some(1000);

impl World {
    fn with(settings: Settings) -> World {
        let now = Now { steady: Instant::now(), wall: SystemTime::UNIX_EPOCH };
        let (writer, reconciler) = (Writer::new(), Reconciler::new(settings));
        World { writer, reconciler, plane: Ruled::new(), now }
    }

    /// Creates a world whose lcores acknowledge at once.
    fn new() -> World {
        let mut world = World::with(Settings::default());
        world.plane.acknowledged = ALL;
        world
    }

    fn pass(&mut self, time: Duration) {
        self.now.steady += time;
        self.now.wall += time;
    }

    fn step(&mut self) {
        let news = self.writer.news(self.reconciler.seen());
        self.reconciler.step(self.now, &news, &Appliance::default(), &mut self.plane);
    }

    /// Writes a service with a frontend and a backend, both derived from a number.
    fn put(&self, number: u8) -> u64 {
        self.put_service(number, |_| {})
    }

    fn put_service(&self, number: u8, change: impl FnOnce(&mut ServiceSpec)) -> u64 {
        let mut transaction = self.writer.begin(self.now.wall);
        let service = Service::new(name(number), source()).with(change).unwrap();
        let said = FrontendSpec::new(address(number), Kind::LoadBalancer);
        transaction.upsert_service_and_frontends(service, vec![said]).unwrap();
        let instance = Instance::new(endpoint(number), name(number), source());
        transaction.set_backends(&name(number), &source(), vec![instance]);
        transaction.commit()
    }

    fn delete(&self, number: u8) -> u64 {
        let mut transaction = self.writer.begin(self.now.wall);
        transaction.delete_service_and_frontends(&name(number), &source()).unwrap();
        transaction.set_backends(&name(number), &source(), vec![]);
        transaction.commit()
    }

    fn complete(&self, initializer: &Initializer) {
        let mut transaction = self.writer.begin(self.now.wall);
        transaction.complete(initializer);
        transaction.commit();
    }

    fn status(&self, number: u8) -> Status {
        self.writer.tables().frontend(&address(number)).unwrap().status()
    }

    fn is_done(&self, number: u8) -> bool {
        self.status(number).progress == Progress::Done
    }

    fn lines(&self) -> Vec<String> {
        dump::text(&self.plane.dump(), &Form::COMPARED)
    }

    fn has(&self, number: u8) -> bool {
        self.lines().iter().any(|line| line.starts_with(&format!("SVC: ADDR={} ", address(number))))
    }

    fn health(&self) -> String {
        self.reconciler.health(&self.writer.tables()).to_string()
    }
}

fn name(number: u8) -> Name {
    Name::new(&format!("web-{number}")).unwrap()
}

fn source() -> Source {
    Source::new("test")
}

fn address(number: u8) -> Address {
    Address::new(IpAddr::from([203, 0, 113, number]), 80, 6)
}

fn endpoint(number: u8) -> Endpoint {
    Endpoint { addr: IpAddr::from([10, 0, 0, number]), port: 8080, protocol: 6 }
}

#[test]
fn what_was_written_is_done_once_all_lcores_acknowledge() {
    let mut world = World::with(Settings::default());
    let revision = world.put(1);
    world.step();
    assert!(world.has(1));
    assert_eq!(world.status(1).progress, Progress::Pending, "nobody moves packets");
    assert!(world.reconciler.reconciled() < revision);

    world.plane.acknowledged = Some(1);
    world.step();
    assert_eq!(world.status(1).progress, Progress::Pending, "lcores are a generation behind");
    world.pass(SECOND);
    world.plane.acknowledged = Some(2);
    world.step();
    let status = world.status(1);
    assert_eq!((status.progress, status.since), (Progress::Done, world.now.wall));
    assert_eq!(world.reconciler.reconciled(), revision);
    assert_eq!(world.health(), "OK, 1 objects");
}

#[test]
fn what_is_said_late_of_an_older_row_is_not_taken_for_the_newer() {
    let mut world = World::with(Settings::default());
    world.put(1);
    world.step();
    let news = world.writer.news(world.reconciler.seen());
    let second = world.put_service(1, |service| service.affinity_s = 30);
    world.plane.acknowledged = Some(2);
    world.reconciler.step(world.now, &news, &Appliance::default(), &mut world.plane);
    assert_eq!(world.status(1).progress, Progress::Pending);
    world.step();
    assert!(world.reconciler.reconciled() < second);
    world.plane.acknowledged = Some(3);
    world.step();
    assert!(world.is_done(1));
    assert_eq!(world.reconciler.reconciled(), second);
}

#[test]
fn generations_wrap() {
    let mut world = World::with(Settings::default());
    world.plane.generation = Some(Generation::MAX);
    world.put(1);
    world.step();
    world.plane.acknowledged = Some(Generation::MAX - 1);
    world.step();
    assert!(!world.is_done(1));
    world.plane.acknowledged = Some(1);
    world.step();
    assert!(world.is_done(1));
}

#[test]
fn a_refusal_holds_up_nobody_and_is_tried_again_ever_less_often() {
    // No full pass during the test: it would hide frontends that wait for a retry.
    let pass = Duration::from_secs(30 * 86_400);
    let mut world = World::with(Settings { pass, ..Settings::default() });
    world.plane.acknowledged = ALL;
    world.plane.refused = vec![address(1)];
    let first = world.put(1);
    let second = world.put(2);
    world.step();
    assert!(world.is_done(2));
    let refused = Progress::Error("raise region.slots".into());
    let status = world.status(1);
    assert_eq!((status.progress, status.since), (refused.clone(), world.now.wall));
    assert_eq!(world.health(), "degraded, 1 of 2 objects: 203.0.113.1:80/TCP: raise region.slots");
    assert_eq!(world.reconciler.reconciled(), first - 1);
    assert!(second > first);

    let mut waits = Vec::new();
    let mut waited = Duration::ZERO;
    while waits.len() < 14 {
        let told = world.plane.told;
        let step = Duration::from_millis(10);
        world.pass(step);
        waited += step;
        world.step();
        if world.plane.told > told {
            waits.push(waited.as_millis());
            waited = Duration::ZERO;
        }
    }
    let doubling = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200];
    assert_eq!(waits[..11], doubling);
    assert_eq!(waits[11..], [60_000; 3]);
    assert_eq!(world.status(1).progress, refused);
    assert!(world.status(1).since < world.now.wall, "since when it has been refused");

    world.plane.refused.clear();
    world.pass(Duration::from_secs(60));
    world.step();
    assert!(world.is_done(1));
    assert_eq!(world.health(), "OK, 2 objects");
}

#[test]
fn a_changed_row_is_told_at_once_and_its_back_off_begins_anew() {
    let mut world = World::new();
    world.plane.refused = vec![address(1)];
    world.put(1);
    for _ in 0..5 {
        world.step();
        world.pass(SECOND);
    }
    let told = world.plane.told;
    world.put_service(1, |service| service.mss = 1400);
    world.step();
    assert_eq!(world.plane.told, told + 1);
    world.pass(Duration::from_millis(50));
    world.step();
    assert_eq!(world.plane.told, told + 2);
}

#[test]
fn a_row_that_was_refused_is_pending_until_its_generation_is_acknowledged() {
    let mut world = World::with(Settings::default());
    world.plane.refused = vec![address(1)];
    world.put(1);
    world.step();
    world.plane.refused.clear();
    world.pass(SECOND);
    world.step();
    assert_eq!(world.status(1).progress, Progress::Pending);
    world.plane.acknowledged = ALL;
    world.step();
    assert!(world.is_done(1));
}

#[test]
fn failed_deletes_are_tried_again() {
    let mut world = World::new();
    world.put(1);
    world.step();
    world.plane.refused = vec![address(1)];
    let revision = world.delete(1);
    world.step();
    assert!(world.has(1));
    assert_eq!(world.reconciler.errors().collect::<Vec<_>>(), [(&address(1), "cannot be deleted")]);
    assert_eq!(world.health(), "degraded, 1 of 0 objects: 203.0.113.1:80/TCP: cannot be deleted");
    assert!(world.reconciler.reconciled() < revision);
    world.plane.refused.clear();
    world.pass(Duration::from_millis(50));
    world.step();
    assert!(world.lines().is_empty());
    assert_eq!(world.reconciler.reconciled(), revision);
}

#[test]
fn an_impossible_combination_is_an_error_of_its_frontend() {
    let mut world = World::new();
    let proxy = |service: &mut ServiceSpec| {
        service.affinity_s = 30;
        service.proxy_redirect = Some(Arc::new(ProxyRedirect { port: 2000, ports: vec![80] }));
    };
    world.put_service(1, proxy);
    world.step();
    let Progress::Error(text) = world.status(1).progress else { panic!("it was taken") };
    assert!(text.contains("service web-1 has session affinity and sends port 80"), "{text}");
}

#[test]
fn a_batch_that_cannot_be_committed_is_told_again() {
    let mut world = World::new();
    world.plane.commit = Err(Refusal::new("the region has no room; raise tables.slots"));
    let revision = world.put(1);
    for wait in [50, 100, 200] {
        world.step();
        assert!(matches!(world.status(1).progress, Progress::Error(_)));
        world.pass(Duration::from_millis(wait));
    }
    assert_eq!(world.plane.told, 3, "after 50, 100 and 200 ms");
    world.plane.commit = Ok(());
    world.step();
    assert!(world.is_done(1));
    assert_eq!(world.reconciler.reconciled(), revision);
}

#[test]
fn one_that_no_batch_can_be_committed_with_holds_up_nobody_else() {
    let mut world = World::new();
    for number in 1..=5 {
        world.put(number);
    }
    world.plane.poison = Some(address(3));
    for _ in 0..6 {
        world.step();
    }
    for number in [1, 2, 4, 5] {
        assert!(world.is_done(number), "{number}");
    }
    assert!(matches!(world.status(3).progress, Progress::Error(_)));
    world.put(6);
    world.step();
    assert!(world.is_done(6));
    world.plane.poison = None;
    world.pass(SECOND);
    world.step();
    assert!(world.is_done(3));
}

#[test]
fn where_no_batch_can_begin_everything_waits_and_health_says_why() {
    let mut world = World::new();
    world.plane.begin = Err(Refusal::new("lcore 3 still reads generation 7"));
    world.put(1);
    world.step();
    assert_eq!(world.status(1).progress, Progress::Pending);
    assert_eq!(world.health(), "degraded, 0 of 1 objects: lcore 3 still reads generation 7");
    world.plane.begin = Ok(());
    world.step();
    assert!(world.is_done(1));
    assert_eq!(world.health(), "OK, 1 objects");
}

#[test]
fn nothing_is_told_before_sources_said_all_or_had_a_minute() {
    let mut world = World::new();
    let source = world.writer.register_initializer("kubernetes");
    let revision = world.put(1);
    world.step();
    world.pass(Duration::from_secs(59));
    world.step();
    assert_eq!(world.plane.told, 0);
    assert_eq!(world.reconciler.reconciled(), 0);
    world.pass(SECOND);
    world.step();
    assert!(world.is_done(1));
    assert!(world.reconciler.reconciled() >= revision);
    assert_eq!(world.plane.prunes, 0, "a source is missing still");
    world.complete(&source);
    world.step();
    assert_eq!(world.plane.prunes, 1);
}

#[test]
fn it_runs_as_soon_as_sources_said_all() {
    let mut world = World::new();
    let sources = ["file", "api"].map(|name| world.writer.register_initializer(name));
    world.put(1);
    world.step();
    world.complete(&sources[0]);
    world.step();
    assert_eq!(world.plane.told, 0);
    world.complete(&sources[1]);
    world.step();
    assert!(world.is_done(1));
    assert_eq!(world.plane.prunes, 1);
}

#[test]
fn it_prunes_every_half_hour_and_on_demand() {
    let mut world = World::new();
    world.step();
    assert_eq!(world.plane.prunes, 1);
    world.pass(Duration::from_secs(30 * 60 - 1));
    world.step();
    assert_eq!(world.plane.prunes, 1);
    world.pass(SECOND);
    world.step();
    assert_eq!(world.plane.prunes, 2);
    world.reconciler.prune_now(world.now);
    world.step();
    assert_eq!(world.plane.prunes, 3);
    world.step();
    assert_eq!(world.plane.prunes, 3);
}

#[test]
fn a_failed_prune_is_tried_again_and_holds_up_nobody() {
    let mut world = World::new();
    world.plane.prune = Err(Refusal::new("the write failed"));
    world.put(1);
    world.step();
    assert!(world.is_done(1));
    assert_eq!(world.health(), "degraded, 0 of 1 objects: pruning: the write failed");
    world.plane.prune = Ok(());
    world.pass(Duration::from_millis(49));
    world.step();
    assert_eq!(world.plane.prunes, 1);
    world.pass(Duration::from_millis(1));
    world.step();
    assert_eq!(world.plane.prunes, 2);
    assert_eq!(world.health(), "OK, 1 objects");
}

#[test]
fn a_full_pass_changes_nothing_where_nothing_differs() {
    let mut world = World::new();
    for number in 1..=20 {
        world.put(number);
    }
    world.step();
    let before = (world.plane.plane.commit().unwrap(), world.plane.writes(), world.lines());
    let since = world.status(1).since;
    let told = world.plane.told;
    world.pass(Settings::default().pass);
    world.step();
    assert_eq!(world.plane.told, told + 20, "everything was told again");
    let after = (world.plane.plane.commit().unwrap(), world.plane.writes(), world.lines());
    assert_eq!(after, before);
    assert_eq!(world.status(1).since, since);
    assert!(!world.reconciler.has_work(world.now.steady));
}

#[test]
fn a_full_pass_repairs() {
    use map_plane::{Key, Map, Maps};
    let mut world = World::new();
    for number in 1..=3 {
        world.put(number);
    }
    world.step();
    let lines = world.lines();
    for key in world.plane.plane.maps().keys(Map::Maglev) {
        world.plane.plane.maps_mut().delete(&key).unwrap();
    }
    world.plane.plane.maps_mut().delete(&Key::Service(address(2), 0)).unwrap();
    assert_ne!(world.lines(), lines);
    world.reconciler.say_again();
    world.step();
    assert_eq!(world.lines(), lines);
}

#[test]
fn one_step_tells_a_bounded_number() {
    let mut world = World::with(Settings { at_once: 4, ..Settings::default() });
    world.plane.acknowledged = ALL;
    for number in 1..=10 {
        world.put(number);
    }
    let mut told = Vec::new();
    while world.reconciler.reconciled() < world.writer.tables().revision() {
        world.step();
        told.push(world.plane.told);
    }
    assert_eq!(told, [4, 8, 10]);
    assert!(world.is_done(10), "in the order of revisions, the last comes last");
    world.reconciler.say_again();
    let mut steps = 0;
    while world.reconciler.has_work(world.now.steady) {
        world.step();
        steps += 1;
    }
    assert_eq!((world.plane.told, steps), (20, 3));
}

#[test]
fn whoever_missed_the_news_looks_at_everything() {
    let mut world = World::new();
    world.put(1);
    world.put(2);
    world.step();
    // More changes than the history keeps.
    let mut transaction = world.writer.begin(world.now.wall);
    let service = Service::new(name(3), source());
    let port = |port| FrontendSpec::new(Address { port, ..address(3) }, Kind::LoadBalancer);
    transaction.upsert_service_and_frontends(service, (1..20_000).map(port).collect()).unwrap();
    transaction.commit();
    world.delete(2);
    let revision = world.put(4);
    assert!(world.writer.news(world.reconciler.seen()).touched.is_none());
    world.step();
    assert!(world.reconciler.reconciled() < revision);
    while world.reconciler.has_work(world.now.steady) {
        world.step();
    }
    assert_eq!(world.reconciler.reconciled(), revision);
    assert!(world.has(1) && !world.has(2) && world.has(4));
    assert_eq!(world.lines().iter().filter(|line| line.contains("SLOT=0")).count(), 20_001);
    assert_eq!(world.plane.prunes, 2);
}

#[test]
fn quarantine_is_honoured_after_a_restart_until_somebody_has_looked() {
    let mut world = World::new();
    world.put(1);
    world.put(2);
    world.plane.restored = vec![(address(1), endpoint(1)), (address(2), endpoint(2))];
    world.step();
    let quarantined =
        |world: &World| world.lines().iter().filter(|line| line.contains("+quarantined")).count();
    assert_eq!(quarantined(&world), 2);
    assert_eq!(world.status(1).note, Some("no backend is healthy and serving"));

    let mut transaction = world.writer.begin(world.now.wall);
    transaction.update_backend_health(&name(1), &endpoint(1), true).unwrap();
    transaction.commit();
    world.step();
    assert_eq!(quarantined(&world), 1);
    assert_eq!(world.status(1).note, None);

    // The other backend is not checked, but does not stay out of service forever.
    world.pass(Duration::from_secs(30 * 60));
    world.step();
    world.step();
    assert_eq!(quarantined(&world), 0);
}

#[test]
fn a_note_of_selection_is_shown_on_the_frontend() {
    let mut world = World::new();
    world.put_service(1, |service| {
        service.external_policy = config::services::TrafficPolicy::Local;
    });
    let mut instance = Instance::new(endpoint(1), name(1), source());
    let place = state::backend::Place { node: "elsewhere".into(), ..Default::default() };
    instance.place = Some(Arc::new(place));
    let mut transaction = world.writer.begin(world.now.wall);
    transaction.set_backends(&name(1), &source(), vec![instance]);
    transaction.commit();
    world.step();
    let status = world.status(1);
    assert_eq!(status.progress, Progress::Done);
    assert!(status.note.unwrap().starts_with("no local backend"), "{:?}", status.note);
}

#[test]
fn an_address_goes_from_one_service_to_another_without_a_gap() {
    let mut world = World::new();
    world.put(1);
    world.step();
    let id = |world: &World| {
        let records = world.plane.dump();
        records.into_iter().find_map(|record| match record {
            Record::Service { id, .. } => Some(id),
            _ => None,
        })
    };
    let before = id(&world);
    let mut transaction = world.writer.begin(world.now.wall);
    transaction.delete_service_and_frontends(&name(1), &source()).unwrap();
    let service = Service::new(name(2), source());
    let said = FrontendSpec::new(address(1), Kind::LoadBalancer);
    transaction.upsert_service_and_frontends(service, vec![said]).unwrap();
    let instance = Instance::new(endpoint(2), name(2), source());
    transaction.set_backends(&name(2), &source(), vec![instance]);
    transaction.commit();
    world.step();
    assert!(world.is_done(1));
    assert_eq!(id(&world), before, "the identifier is bound to the address");
    assert!(world.lines().contains(&"BE: ADDR=10.0.0.2:8080/TCP STATE=active".to_owned()));
    assert!(!world.lines().iter().any(|line| line.contains("10.0.0.1:")));
}
