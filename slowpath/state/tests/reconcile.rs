//! Tests of the reconciler with a plane that the test controls.
#![expect(clippy::unwrap_used, reason = "a test may panic on a failed expectation")]

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use map_plane::{FaultyMaps, MapPlane, MemoryMaps, Options};
use state::address::{Address, Endpoint};
use state::appliance::Appliance;
use state::backend::Instance;
use state::dump::{self, Record, TextFormat};
use state::frontend::{Kind, Progress, Status};
use state::name::{Name, Source};
use state::object::{FrontendSpec, ProxyRedirect, ServiceSpec};
use state::plane::{DesiredFrontend, Generation, Plane, PlaneError};
use state::reconcile::{Now, Reconciler, Settings};
use state::service::Service;
use state::writer::{Initializer, Writer};
use std::sync::Arc;

/// Plane of maps in memory, with batches, rejections and acknowledgements that the test controls.
struct ControlledPlane {
    plane: MapPlane<FaultyMaps<MemoryMaps>>,
    /// Generation that [`Plane::acknowledged`] returns.
    acknowledged: Option<Generation>,
    /// Generation that each commit returns; `None` for the map plane's own.
    generation: Option<Generation>,
    /// Addresses that are rejected.
    rejected: Vec<Address>,
    /// Result of [`Plane::begin`].
    begin: Result<(), PlaneError>,
    /// Error of each commit, if any.
    commit: Result<(), PlaneError>,
    /// Address that makes the commit of every batch with it fail.
    uncommittable: Option<Address>,
    /// Addresses updated in the current batch.
    batch: Vec<Address>,
    /// Number of calls of [`Plane::prune`].
    prunes: usize,
    /// Error of each prune, if any.
    prune: Result<(), PlaneError>,
    /// Number of calls of [`Plane::update`] and [`Plane::delete`].
    update_calls: usize,
    /// Backends that [`Plane::quarantined`] returns.
    restored: Vec<(Address, Endpoint)>,
}

impl ControlledPlane {
    fn new() -> ControlledPlane {
        let maps = FaultyMaps::new(MemoryMaps::default(), 0, 1);
        ControlledPlane {
            plane: MapPlane::new(maps, Options::default()),
            acknowledged: None,
            generation: None,
            rejected: Vec::new(),
            begin: Ok(()),
            commit: Ok(()),
            uncommittable: None,
            batch: Vec::new(),
            prunes: 0,
            prune: Ok(()),
            update_calls: 0,
            restored: Vec::new(),
        }
    }

    fn writes(&self) -> u64 {
        self.plane.maps().maps.writes()
    }
}

impl Plane for ControlledPlane {
    fn begin(&mut self) -> Result<(), PlaneError> {
        self.begin.clone()
    }

    fn update(&mut self, desired: &DesiredFrontend) -> Result<(), PlaneError> {
        self.update_calls += 1;
        self.batch.push(*desired.frontend.address());
        if self.rejected.contains(desired.frontend.address()) {
            return Err(PlaneError::new("raise region.slots"));
        }
        self.plane.update(desired)
    }

    fn delete(&mut self, address: &Address) -> Result<(), PlaneError> {
        self.update_calls += 1;
        if self.rejected.contains(address) {
            return Err(PlaneError::new("cannot be deleted"));
        }
        self.plane.delete(address)
    }

    fn prune(
        &mut self,
        desired: &dyn Fn(&Address) -> bool,
        at_most: usize,
    ) -> Result<bool, PlaneError> {
        self.prunes += 1;
        self.prune.clone()?;
        self.plane.prune(desired, at_most)
    }

    fn commit(&mut self) -> Result<Generation, PlaneError> {
        let batch = std::mem::take(&mut self.batch);
        self.commit.clone()?;
        if self.uncommittable.is_some_and(|address| batch.contains(&address)) {
            return Err(PlaneError::new("64 tunnels are the maximum"));
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

/// Writer, reconciler, controlled plane, and a time that the test advances.
struct Fixture {
    writer: Writer,
    reconciler: Reconciler,
    plane: ControlledPlane,
    now: Now,
}

const SECOND: Duration = Duration::from_secs(1);
/// Acknowledged generation that is later than any that a test commits.
const ALL: Option<Generation> = Some(1000);

impl Fixture {
    fn with(settings: Settings) -> Fixture {
        let now = Now { steady: Instant::now(), wall: SystemTime::UNIX_EPOCH };
        let (writer, reconciler) = (Writer::new(), Reconciler::new(settings));
        Fixture { writer, reconciler, plane: ControlledPlane::new(), now }
    }

    /// Creates a fixture whose lcores acknowledge every generation immediately.
    fn new() -> Fixture {
        let mut fixture = Fixture::with(Settings::default());
        fixture.plane.acknowledged = ALL;
        fixture
    }

    fn advance(&mut self, time: Duration) {
        self.now.steady += time;
        self.now.wall += time;
    }

    fn step(&mut self) {
        let changes = self.writer.changes_since(self.reconciler.observed());
        self.reconciler.step(self.now, &changes, &Appliance::default(), &mut self.plane);
    }

    /// Writes a service with a frontend and a backend, both derived from a number.
    fn put(&self, number: u8) -> u64 {
        self.put_service(number, |_| {})
    }

    fn put_service(&self, number: u8, change: impl FnOnce(&mut ServiceSpec)) -> u64 {
        let mut transaction = self.writer.begin(self.now.wall);
        let service = Service::new(name(number), source()).with(change).unwrap();
        let spec = FrontendSpec::new(address(number), Kind::LoadBalancer);
        transaction.upsert_service_and_frontends(service, vec![spec]).unwrap();
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
        dump::text(&self.plane.dump(), &TextFormat::WITHOUT_IDENTIFIERS)
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
fn row_is_done_once_all_lcores_acknowledge() {
    let mut fixture = Fixture::with(Settings::default());
    let revision = fixture.put(1);
    fixture.step();
    assert!(fixture.has(1));
    assert_eq!(fixture.status(1).progress, Progress::Pending, "no lcore runs");
    assert!(fixture.reconciler.reconciled() < revision);

    fixture.plane.acknowledged = Some(1);
    fixture.step();
    assert_eq!(fixture.status(1).progress, Progress::Pending, "lcores are a generation behind");
    fixture.advance(SECOND);
    fixture.plane.acknowledged = Some(2);
    fixture.step();
    let status = fixture.status(1);
    assert_eq!((status.progress, status.since), (Progress::Done, fixture.now.wall));
    assert_eq!(fixture.reconciler.reconciled(), revision);
    assert_eq!(fixture.health(), "OK, 1 frontends");
}

#[test]
fn late_result_of_an_older_row_does_not_affect_the_newer() {
    let mut fixture = Fixture::with(Settings::default());
    fixture.put(1);
    fixture.step();
    let changes = fixture.writer.changes_since(fixture.reconciler.observed());
    let second = fixture.put_service(1, |service| service.affinity_s = 30);
    fixture.plane.acknowledged = Some(2);
    fixture.reconciler.step(fixture.now, &changes, &Appliance::default(), &mut fixture.plane);
    assert_eq!(fixture.status(1).progress, Progress::Pending);
    fixture.step();
    assert!(fixture.reconciler.reconciled() < second);
    fixture.plane.acknowledged = Some(3);
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(fixture.reconciler.reconciled(), second);
}

#[test]
fn generations_wrap() {
    let mut fixture = Fixture::with(Settings::default());
    fixture.plane.generation = Some(Generation::MAX);
    fixture.put(1);
    fixture.step();
    fixture.plane.acknowledged = Some(Generation::MAX - 1);
    fixture.step();
    assert!(!fixture.is_done(1));
    fixture.plane.acknowledged = Some(1);
    fixture.step();
    assert!(fixture.is_done(1));
}

#[test]
fn rejected_frontend_is_retried_with_backoff_without_blocking_others() {
    // No full pass during the test: it would write the other frontend, and the test counts writes.
    let pass = Duration::from_secs(30 * 86_400);
    let mut fixture = Fixture::with(Settings { pass, ..Settings::default() });
    fixture.plane.acknowledged = ALL;
    fixture.plane.rejected = vec![address(1)];
    let first = fixture.put(1);
    let second = fixture.put(2);
    fixture.step();
    assert!(fixture.is_done(2));
    let rejected = Progress::Error("raise region.slots".into());
    let status = fixture.status(1);
    assert_eq!((status.progress, status.since), (rejected.clone(), fixture.now.wall));
    assert_eq!(
        fixture.health(),
        "degraded, 1 of 2 frontends: 203.0.113.1:80/TCP: raise region.slots"
    );
    assert_eq!(fixture.reconciler.reconciled(), first - 1);
    assert!(second > first);

    let mut waits = Vec::new();
    let mut waited = Duration::ZERO;
    while waits.len() < 14 {
        let writes = fixture.plane.update_calls;
        let step = Duration::from_millis(10);
        fixture.advance(step);
        waited += step;
        fixture.step();
        if fixture.plane.update_calls > writes {
            waits.push(waited.as_millis());
            waited = Duration::ZERO;
        }
    }
    let doubling = [50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200];
    assert_eq!(waits[..11], doubling);
    assert_eq!(waits[11..], [60_000; 3]);
    assert_eq!(fixture.status(1).progress, rejected);
    assert!(fixture.status(1).since < fixture.now.wall, "time of the first rejection");

    fixture.plane.rejected.clear();
    fixture.advance(Duration::from_secs(60));
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(fixture.health(), "OK, 2 frontends");
}

#[test]
fn changed_row_is_written_at_once_and_resets_its_backoff() {
    let mut fixture = Fixture::new();
    fixture.plane.rejected = vec![address(1)];
    fixture.put(1);
    for _ in 0..5 {
        fixture.step();
        fixture.advance(SECOND);
    }
    let writes = fixture.plane.update_calls;
    fixture.put_service(1, |service| service.mss = 1400);
    fixture.step();
    assert_eq!(fixture.plane.update_calls, writes + 1);
    fixture.advance(Duration::from_millis(50));
    fixture.step();
    assert_eq!(fixture.plane.update_calls, writes + 2);
}

#[test]
fn accepted_retry_is_pending_until_acknowledged() {
    let mut fixture = Fixture::with(Settings::default());
    fixture.plane.rejected = vec![address(1)];
    fixture.put(1);
    fixture.step();
    fixture.plane.rejected.clear();
    fixture.advance(SECOND);
    fixture.step();
    assert_eq!(fixture.status(1).progress, Progress::Pending);
    fixture.plane.acknowledged = ALL;
    fixture.step();
    assert!(fixture.is_done(1));
}

#[test]
fn failed_deletion_is_retried() {
    let mut fixture = Fixture::new();
    fixture.put(1);
    fixture.step();
    fixture.plane.rejected = vec![address(1)];
    let revision = fixture.delete(1);
    fixture.step();
    assert!(fixture.has(1));
    assert_eq!(
        fixture.reconciler.errors().collect::<Vec<_>>(),
        [(&address(1), "cannot be deleted")]
    );
    assert_eq!(
        fixture.health(),
        "degraded, 1 of 0 frontends: 203.0.113.1:80/TCP: cannot be deleted"
    );
    assert!(fixture.reconciler.reconciled() < revision);
    fixture.plane.rejected.clear();
    fixture.advance(Duration::from_millis(50));
    fixture.step();
    assert!(fixture.lines().is_empty());
    assert_eq!(fixture.reconciler.reconciled(), revision);
}

#[test]
fn unsupported_combination_is_an_error_of_its_frontend() {
    let mut fixture = Fixture::new();
    let proxy = |service: &mut ServiceSpec| {
        service.affinity_s = 30;
        service.proxy_redirect = Some(Arc::new(ProxyRedirect { port: 2000, ports: vec![80] }));
    };
    fixture.put_service(1, proxy);
    fixture.step();
    let Progress::Error(text) = fixture.status(1).progress else {
        panic!("the change was accepted")
    };
    assert!(text.contains("service web-1 has session affinity and sends port 80"), "{text}");
}

#[test]
fn failed_commit_is_retried() {
    let mut fixture = Fixture::new();
    fixture.plane.commit = Err(PlaneError::new("the region is full; raise tables.slots"));
    let revision = fixture.put(1);
    for wait in [50, 100, 200] {
        fixture.step();
        assert!(matches!(fixture.status(1).progress, Progress::Error(_)));
        fixture.advance(Duration::from_millis(wait));
    }
    assert_eq!(fixture.plane.update_calls, 3, "immediately, after 50 ms, and after another 100 ms");
    fixture.plane.commit = Ok(());
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(fixture.reconciler.reconciled(), revision);
}

#[test]
fn frontend_that_fails_every_commit_does_not_block_others() {
    let mut fixture = Fixture::new();
    for number in 1..=5 {
        fixture.put(number);
    }
    fixture.plane.uncommittable = Some(address(3));
    for _ in 0..6 {
        fixture.step();
    }
    for number in [1, 2, 4, 5] {
        assert!(fixture.is_done(number), "{number}");
    }
    assert!(matches!(fixture.status(3).progress, Progress::Error(_)));
    fixture.put(6);
    fixture.step();
    assert!(fixture.is_done(6));
    fixture.plane.uncommittable = None;
    fixture.advance(SECOND);
    fixture.step();
    assert!(fixture.is_done(3));
}

#[test]
fn failed_begin_is_reported_by_health() {
    let mut fixture = Fixture::new();
    fixture.plane.begin = Err(PlaneError::new("lcore 3 still reads generation 7"));
    fixture.put(1);
    fixture.step();
    assert_eq!(fixture.status(1).progress, Progress::Pending);
    assert_eq!(fixture.health(), "degraded, 0 of 1 frontends: lcore 3 still reads generation 7");
    fixture.plane.begin = Ok(());
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(fixture.health(), "OK, 1 frontends");
}

#[test]
fn waits_for_initial_lists_or_the_timeout() {
    let mut fixture = Fixture::new();
    let source = fixture.writer.register_initializer("kubernetes");
    let revision = fixture.put(1);
    fixture.step();
    fixture.advance(Duration::from_secs(59));
    fixture.step();
    assert_eq!(fixture.plane.update_calls, 0);
    assert_eq!(fixture.reconciler.reconciled(), 0);
    fixture.advance(SECOND);
    fixture.step();
    assert!(fixture.is_done(1));
    assert!(fixture.reconciler.reconciled() >= revision);
    assert_eq!(fixture.plane.prunes, 0, "one source is not complete yet");
    fixture.complete(&source);
    fixture.step();
    assert_eq!(fixture.plane.prunes, 1);
}

#[test]
fn runs_once_initial_lists_are_complete() {
    let mut fixture = Fixture::new();
    let sources = ["file", "api"].map(|name| fixture.writer.register_initializer(name));
    fixture.put(1);
    fixture.step();
    fixture.complete(&sources[0]);
    fixture.step();
    assert_eq!(fixture.plane.update_calls, 0);
    fixture.complete(&sources[1]);
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(fixture.plane.prunes, 1);
}

#[test]
fn prunes_every_half_hour_and_on_demand() {
    let mut fixture = Fixture::new();
    fixture.step();
    assert_eq!(fixture.plane.prunes, 1);
    fixture.advance(Duration::from_secs(30 * 60 - 1));
    fixture.step();
    assert_eq!(fixture.plane.prunes, 1);
    fixture.advance(SECOND);
    fixture.step();
    assert_eq!(fixture.plane.prunes, 2);
    fixture.reconciler.prune_now(fixture.now);
    fixture.step();
    assert_eq!(fixture.plane.prunes, 3);
    fixture.step();
    assert_eq!(fixture.plane.prunes, 3);
}

#[test]
fn failed_prune_is_retried_without_blocking_others() {
    let mut fixture = Fixture::new();
    fixture.plane.prune = Err(PlaneError::new("the write failed"));
    fixture.put(1);
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(fixture.health(), "degraded, 0 of 1 frontends: pruning: the write failed");
    fixture.plane.prune = Ok(());
    fixture.advance(Duration::from_millis(49));
    fixture.step();
    assert_eq!(fixture.plane.prunes, 1);
    fixture.advance(Duration::from_millis(1));
    fixture.step();
    assert_eq!(fixture.plane.prunes, 2);
    assert_eq!(fixture.health(), "OK, 1 frontends");
}

#[test]
fn prune_whose_commit_fails_is_reported_and_repeated() {
    let mut fixture = Fixture::new();
    fixture.step();
    fixture.plane.commit = Err(PlaneError::new("the region is damaged"));
    fixture.reconciler.prune_now(fixture.now);
    fixture.step();
    fixture.step();
    assert_eq!(fixture.plane.prunes, 2, "the retry waits for 50 ms");
    assert_eq!(fixture.health(), "degraded, 0 of 0 frontends: pruning: the region is damaged");
    fixture.advance(Duration::from_millis(50));
    fixture.step();
    fixture.advance(Duration::from_millis(99));
    fixture.step();
    assert_eq!(fixture.plane.prunes, 3, "the next one waits for 100 ms");
    fixture.plane.commit = Ok(());
    fixture.advance(Duration::from_millis(1));
    fixture.step();
    assert_eq!((fixture.plane.prunes, fixture.health().as_str()), (4, "OK, 0 frontends"));

    // The write that makes the commit fail is retried after a delay, the prune at the next step.
    fixture.put(1);
    fixture.plane.uncommittable = Some(address(1));
    fixture.reconciler.prune_now(fixture.now);
    fixture.step();
    fixture.step();
    assert_eq!((fixture.plane.prunes, fixture.plane.update_calls), (6, 1));
    fixture.step();
    assert_eq!(fixture.plane.prunes, 6);
}

#[test]
fn full_pass_over_an_up_to_date_plane_changes_nothing() {
    let mut fixture = Fixture::new();
    for number in 1..=20 {
        fixture.put(number);
    }
    fixture.step();
    let before = (fixture.plane.plane.commit().unwrap(), fixture.plane.writes(), fixture.lines());
    let since = fixture.status(1).since;
    let writes = fixture.plane.update_calls;
    fixture.advance(Settings::default().pass);
    fixture.step();
    assert_eq!(fixture.plane.update_calls, writes + 20, "all frontends are written again");
    let after = (fixture.plane.plane.commit().unwrap(), fixture.plane.writes(), fixture.lines());
    assert_eq!(after, before);
    assert_eq!(fixture.status(1).since, since);
    assert!(!fixture.reconciler.has_work(fixture.now.steady));
}

#[test]
fn full_pass_restores_deleted_entries() {
    use map_plane::{Key, Map, Maps};
    let mut fixture = Fixture::new();
    for number in 1..=3 {
        fixture.put(number);
    }
    fixture.step();
    let lines = fixture.lines();
    for key in fixture.plane.plane.maps().keys(Map::Maglev) {
        fixture.plane.plane.maps_mut().delete(&key).unwrap();
    }
    fixture.plane.plane.maps_mut().delete(&Key::Service(address(2), 0)).unwrap();
    assert_ne!(fixture.lines(), lines);
    fixture.reconciler.start_full_pass();
    fixture.step();
    assert_eq!(fixture.lines(), lines);
}

#[test]
fn step_writes_a_bounded_number_of_frontends() {
    let mut fixture = Fixture::with(Settings { frontends_per_step: 4, ..Settings::default() });
    fixture.plane.acknowledged = ALL;
    for number in 1..=10 {
        fixture.put(number);
    }
    let mut writes = Vec::new();
    while fixture.reconciler.reconciled() < fixture.writer.tables().revision() {
        fixture.step();
        writes.push(fixture.plane.update_calls);
    }
    assert_eq!(writes, [4, 8, 10]);
    assert!(fixture.is_done(10), "writes are in the order of revisions");
    fixture.reconciler.start_full_pass();
    let mut steps = 0;
    while fixture.reconciler.has_work(fixture.now.steady) {
        fixture.step();
        steps += 1;
    }
    assert_eq!((fixture.plane.update_calls, steps), (20, 3));
}

#[test]
fn missed_changes_cause_a_full_pass() {
    let mut fixture = Fixture::new();
    fixture.put(1);
    fixture.put(2);
    fixture.step();
    // More changes than the history of the tables has.
    let mut transaction = fixture.writer.begin(fixture.now.wall);
    let service = Service::new(name(3), source());
    let port = |port| FrontendSpec::new(Address { port, ..address(3) }, Kind::LoadBalancer);
    transaction.upsert_service_and_frontends(service, (1..20_000).map(port).collect()).unwrap();
    transaction.commit();
    fixture.delete(2);
    let revision = fixture.put(4);
    assert!(fixture.writer.changes_since(fixture.reconciler.observed()).touched.is_none());
    fixture.step();
    assert!(fixture.reconciler.reconciled() < revision);
    while fixture.reconciler.has_work(fixture.now.steady) {
        fixture.step();
    }
    assert_eq!(fixture.reconciler.reconciled(), revision);
    assert!(fixture.has(1) && !fixture.has(2) && fixture.has(4));
    assert_eq!(fixture.lines().iter().filter(|line| line.contains("SLOT=0")).count(), 20_001);
    assert_eq!(fixture.plane.prunes, 2);
}

#[test]
fn missed_changes_are_not_reconciled_until_a_prune_is_committed() {
    let mut fixture = Fixture::new();
    fixture.put(1);
    fixture.step();
    // More changes than the history of the tables has.
    let mut transaction = fixture.writer.begin(fixture.now.wall);
    let service = Service::new(name(3), source());
    let port = |port| FrontendSpec::new(Address { port, ..address(3) }, Kind::LoadBalancer);
    transaction.upsert_service_and_frontends(service, (1..20_000).map(port).collect()).unwrap();
    transaction.commit();
    let revision = fixture.delete(1);
    assert!(fixture.writer.changes_since(fixture.reconciler.observed()).touched.is_none());
    fixture.plane.prune = Err(PlaneError::new("the write failed"));
    while fixture.reconciler.has_work(fixture.now.steady) || fixture.plane.prunes == 1 {
        fixture.step();
    }
    fixture.plane.prune = Ok(());
    fixture.plane.commit = Err(PlaneError::new("the region is damaged"));
    fixture.advance(SECOND);
    fixture.step();
    assert!(fixture.reconciler.reconciled() < revision);
    fixture.plane.commit = Ok(());
    fixture.advance(SECOND);
    fixture.step();
    assert_eq!(fixture.reconciler.reconciled(), revision);
    assert!(!fixture.has(1));
}

#[test]
fn quarantine_survives_a_restart_until_the_first_health_check() {
    let mut fixture = Fixture::new();
    fixture.put(1);
    fixture.put(2);
    fixture.plane.restored = vec![(address(1), endpoint(1)), (address(2), endpoint(2))];
    fixture.step();
    let quarantined = |fixture: &Fixture| {
        fixture.lines().iter().filter(|line| line.contains("+quarantined")).count()
    };
    assert_eq!(quarantined(&fixture), 2);
    assert_eq!(fixture.status(1).note, Some("no backend is healthy and serving"));

    let mut transaction = fixture.writer.begin(fixture.now.wall);
    transaction.update_backend_health(&name(1), &endpoint(1), true).unwrap();
    transaction.commit();
    fixture.step();
    assert_eq!(quarantined(&fixture), 1);
    assert_eq!(fixture.status(1).note, None);

    // The other backend is not checked. A prune half an hour after the start ends its quarantine.
    fixture.advance(Duration::from_secs(30 * 60));
    fixture.step();
    fixture.step();
    assert_eq!(quarantined(&fixture), 0);
}

#[test]
fn a_note_of_selection_is_shown_on_the_frontend() {
    let mut fixture = Fixture::new();
    fixture.put_service(1, |service| {
        service.external_policy = config::services::TrafficPolicy::Local;
    });
    let mut instance = Instance::new(endpoint(1), name(1), source());
    let placement = state::backend::Placement { node: "elsewhere".into(), ..Default::default() };
    instance.placement = Some(Arc::new(placement));
    let mut transaction = fixture.writer.begin(fixture.now.wall);
    transaction.set_backends(&name(1), &source(), vec![instance]);
    transaction.commit();
    fixture.step();
    let status = fixture.status(1);
    assert_eq!(status.progress, Progress::Done);
    assert!(status.note.unwrap().starts_with("no local backend"), "{:?}", status.note);
}

#[test]
fn address_moves_between_services_without_a_gap() {
    let mut fixture = Fixture::new();
    fixture.put(1);
    fixture.step();
    let id = |fixture: &Fixture| {
        let records = fixture.plane.dump();
        records.into_iter().find_map(|record| match record {
            Record::Service { id, .. } => Some(id),
            _ => None,
        })
    };
    let before = id(&fixture);
    let mut transaction = fixture.writer.begin(fixture.now.wall);
    transaction.delete_service_and_frontends(&name(1), &source()).unwrap();
    let service = Service::new(name(2), source());
    let spec = FrontendSpec::new(address(1), Kind::LoadBalancer);
    transaction.upsert_service_and_frontends(service, vec![spec]).unwrap();
    let instance = Instance::new(endpoint(2), name(2), source());
    transaction.set_backends(&name(2), &source(), vec![instance]);
    transaction.commit();
    fixture.step();
    assert!(fixture.is_done(1));
    assert_eq!(id(&fixture), before, "the identifier is bound to the address");
    assert!(fixture.lines().contains(&"BE: ADDR=10.0.0.2:8080/TCP STATE=active".to_owned()));
    assert!(!fixture.lines().iter().any(|line| line.contains("10.0.0.1:")));
}
