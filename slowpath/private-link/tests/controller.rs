//! Tests of the controller and of the lease, with a clock that the tests advance.
#![expect(clippy::unwrap_used, reason = "a test states what it expects")]

#[expect(dead_code, reason = "this test uses a part of the emulator")]
mod emulator;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use azure::arm::{Arm, ArmFuture, ArmRequest, OperationHandle, Progress, Resource, WriteOutcome};
use azure::id::ResourceId;
use clouds::failure::Failure;
use clouds::retry::Pause;
use fastrand::Rng;
use private_link::controller::{Controller, ObjectStore, StoreError, StoreFuture};
use private_link::lease::{Lease, Ownership};
use private_link::object::{Aspect, Object, Status};
use private_link::status_view::{Totals, rows};
use private_link::time::Time;
use private_link::{Event, Role, Settings};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use emulator::sample::{self, BEGUN, GUEST, PROVIDER, network};
use emulator::{Azure, once};

/// Period of the lease.
const PERIOD: Duration = Duration::from_secs(90);

/// A clock that stands still until the test advances it to the earliest time that a task awaits.
#[derive(Clone)]
struct ManualClock {
    now: watch::Sender<Duration>,
    waits: Arc<Mutex<BTreeSet<Duration>>>,
}

impl Pause for ManualClock {
    fn now(&self) -> Duration {
        *self.now.borrow()
    }

    fn wait(&self, pause: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (then, mut now) = (self.now() + pause, self.now.subscribe());
        self.waits.lock().unwrap().insert(then);
        Box::pin(async move {
            let _ = now.wait_for(|now| *now >= then).await;
        })
    }
}

/// The emulator with delayed reads of resources. Records the maximum number of concurrent reads,
/// and panics if a private link service is read twice at once.
#[derive(Clone)]
struct Slow {
    azure: Azure,
    in_flight: Arc<Mutex<BTreeMap<String, usize>>>,
    max_in_flight: Arc<AtomicUsize>,
    /// Listing connections is denied.
    denied: Arc<AtomicBool>,
}

impl Arm for Slow {
    fn get<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Resource> {
        Box::pin(async move {
            {
                let mut in_flight = self.in_flight.lock().unwrap();
                let own = in_flight.entry(request.path.clone()).or_default();
                *own += 1;
                assert!(
                    *own < 2 || !request.path.contains("privateLinkServices"),
                    "{}",
                    request.path
                );
                self.max_in_flight.fetch_max(in_flight.values().sum(), Ordering::Relaxed);
            }
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let response = self.azure.get(request).await;
            *self.in_flight.lock().unwrap().get_mut(&request.path).unwrap() -= 1;
            response
        })
    }

    fn list<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, Vec<Value>> {
        if self.denied.load(Ordering::Relaxed)
            && request.path.contains("privateEndpointConnections")
        {
            let denied =
                request.operation.failed(Failure::Denied, "AuthorizationFailed", "not you");
            return Box::pin(std::future::ready(Err(denied)));
        }
        self.azure.list(request)
    }

    fn put<'a>(
        &'a self,
        request: &'a ArmRequest,
        body: &'a Value,
        etag: Option<&'a str>,
    ) -> ArmFuture<'a, WriteOutcome> {
        self.azure.put(request, body, etag)
    }

    fn delete<'a>(&'a self, request: &'a ArmRequest) -> ArmFuture<'a, WriteOutcome> {
        self.azure.delete(request)
    }

    fn poll<'a>(&'a self, handle: &'a OperationHandle) -> ArmFuture<'a, Progress> {
        self.azure.poll(handle)
    }
}

/// A store in memory.
#[derive(Default)]
struct Store {
    objects: Mutex<BTreeMap<String, Object>>,
    changed: Notify,
    events: Mutex<Vec<(String, &'static str)>>,
    /// Objects with events that no `save_status` has stored yet.
    unsaved: Mutex<BTreeSet<String>>,
    /// The disk is full: writes fail.
    full: AtomicBool,
    /// Number of attempted writes.
    attempted_writes: AtomicUsize,
}

impl Store {
    fn of(names: &[&str]) -> Arc<Store> {
        let store = Store::default();
        let objects = names.iter().map(|name| ((*name).to_owned(), sample::object(name)));
        *store.objects.lock().unwrap() = objects.collect();
        Arc::new(store)
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Object)) {
        change(self.objects.lock().unwrap().get_mut(name).unwrap());
        self.changed.notify_one();
    }

    fn is(&self, name: &str, aspect: Aspect) -> bool {
        self.objects.lock().unwrap().get(name).is_some_and(|object| object.status.is(aspect))
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.attempted_writes.fetch_add(1, Ordering::Relaxed);
        match self.full.load(Ordering::Relaxed) {
            true => Err(StoreError("the disk is full".to_owned())),
            false => Ok(()),
        }
    }
}

impl ObjectStore for Store {
    fn list(&self) -> Vec<Object> {
        self.objects.lock().unwrap().values().cloned().collect()
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.changed.notified())
    }

    fn save_status<'a>(&'a self, name: &'a str, status: &'a Status) -> StoreFuture<'a> {
        Box::pin(async move {
            self.check_writable()?;
            self.unsaved.lock().unwrap().remove(name);
            if let Some(object) = self.objects.lock().unwrap().get_mut(name) {
                let json = serde_json::to_string(status).unwrap();
                object.status = serde_json::from_str(&json).unwrap();
            }
            Ok(())
        })
    }

    fn set_finalizer<'a>(&'a self, name: &'a str, has_finalizer: bool) -> StoreFuture<'a> {
        Box::pin(async move {
            self.check_writable()?;
            let mut objects = self.objects.lock().unwrap();
            if let Some(object) = objects.get_mut(name) {
                object.has_finalizer = has_finalizer;
                if object.deletion.is_some() && !has_finalizer {
                    objects.remove(name);
                }
            }
            drop(objects);
            self.changed.notify_one();
            Ok(())
        })
    }

    fn record_event(&self, name: &str, event: &Event) {
        self.unsaved.lock().unwrap().insert(name.to_owned());
        self.events.lock().unwrap().push((name.to_owned(), event.reason));
    }
}

struct Fixture {
    azure: Azure,
    slow: Slow,
    pause: ManualClock,
    /// Start of the emulator's clock, in seconds since 1970.
    begun: u64,
}

impl Fixture {
    fn new() -> Fixture {
        let azure = sample::azure();
        azure.state().slowness = 20;
        let (in_flight, max_in_flight, denied) = (Arc::default(), Arc::default(), Arc::default());
        let slow = Slow { azure: azure.clone(), in_flight, max_in_flight, denied };
        let pause = ManualClock { now: watch::channel(Duration::ZERO).0, waits: Arc::default() };
        let begun = azure.state().now();
        Fixture { azure, slow, pause, begun }
    }

    /// Starts the controller of `appliance` with this store as a task.
    fn run(&self, store: &Arc<Store>, appliance: &str, ownership: Ownership) -> JoinHandle<()> {
        let (guard, cancel) = watch::channel(false);
        let (now, begun) = (self.pause.now.subscribe(), self.begun);
        let azure: Arc<dyn Arm> = Arc::new(Slow { in_flight: Arc::default(), ..self.slow.clone() });
        let controller = Controller {
            objects: Arc::clone(store) as Arc<dyn ObjectStore>,
            service: Arc::clone(&azure),
            endpoint: azure,
            pause: Arc::new(self.pause.clone()),
            clock: Arc::new(move || Time(begun + now.borrow().as_secs())),
            settings: Settings { fleet: "east".to_owned() },
            appliance: appliance.to_owned(),
            ownership,
        };
        tokio::spawn(async move {
            controller.run(cancel).await;
            drop(guard);
        })
    }

    /// Runs all tasks until they wait, advances the clock to the next time that a task waits for,
    /// and repeats this until the condition is true. Panics after `seconds`.
    async fn until(&self, seconds: u64, what: &str, condition: impl Fn() -> bool) {
        let end = self.pause.now() + Duration::from_secs(seconds);
        loop {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
            if condition() {
                return;
            }
            let now = self.pause.now();
            assert!(now < end, "not within {seconds} s: {what}");
            let next = {
                let mut waits = self.pause.waits.lock().unwrap();
                *waits = waits.split_off(&(now + Duration::from_nanos(1)));
                waits.first().copied()
            };
            let next = next.unwrap_or(end).min(end);
            self.azure.state().pass(self.begun + next.as_secs());
            self.pause.now.send_replace(next);
        }
    }
}

fn owned_by_weir_0() -> Ownership {
    Ownership::Named("weir-0".to_owned())
}

#[tokio::test]
async fn objects_are_reconciled_concurrently_one_round_each() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..12).map(|n| format!("shop/web{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let store = Store::of(&names);
    let run = fixture.run(&store, "weir-0", owned_by_weir_0());
    let all = || names.iter().all(|name| store.is(name, Aspect::Available));
    fixture.until(3_600, "all are available", all).await;
    let max_in_flight = fixture.slow.max_in_flight.load(Ordering::Relaxed);
    assert!((2..=8).contains(&max_in_flight), "{max_in_flight} concurrent reads");
    let totals = Totals::of(&store.list());
    assert_eq!((totals.objects, totals.available, totals.operations), (12, 12, 0));
    assert_eq!(totals.connections["Approved"], 12);
    let address = store.list()[0].status.endpoint.address.unwrap().to_string();
    let row = &rows(&store.list(), Time(fixture.begun + 7_000))[0];
    let cells = row.cells();
    assert_eq!(
        (&cells[0], &cells[2], &cells[3]),
        (&names[0].into(), &address.as_str().into(), &"True".into())
    );
    assert!(cells[1].starts_with("pls-shop-web0.") && cells[4] == "116m", "{cells:?}");
    // A new process continues.
    run.abort();
    let service = network(PROVIDER, "privateLinkServices", "pls-shop-web3").to_string();
    fixture.azure.state().remove(&service);
    fixture.run(&store, "weir-0", owned_by_weir_0());
    let events = || store.events.lock().unwrap().clone();
    let noticed = || events().contains(&("shop/web3".to_owned(), "ServiceDeleted"));
    fixture.until(600, "the deletion is noticed", noticed).await;
    fixture.until(3_600, "it is recreated", all).await;
    for name in &names {
        store.edit(name, |object| object.deletion = Some(Time(1)));
    }
    fixture.until(7_200, "all are gone", || store.list().is_empty()).await;
    let cloud = fixture.azure.state();
    assert!(cloud.foreign_changes.is_empty());
    assert_eq!(cloud.own_ids().len(), 1, "only the subnet is left");
}

#[tokio::test]
async fn failing_store_is_retried_with_backoff() {
    let fixture = Fixture::new();
    let store = Store::of(&["shop/web"]);
    store.full.store(true, Ordering::Relaxed);
    fixture.run(&store, "weir-0", owned_by_weir_0());
    let ten_minutes = || fixture.pause.now() >= Duration::from_secs(600);
    fixture.until(1_000, "ten minutes pass", ten_minutes).await;
    let tried = store.attempted_writes.load(Ordering::Relaxed);
    // After 3, 6, 12, 24 and then always 30 s: about twenty attempts in ten minutes.
    assert!((15..=26).contains(&tried), "{tried}");
    store.full.store(false, Ordering::Relaxed);
    fixture.until(1_000, "it is available", || store.is("shop/web", Aspect::Available)).await;
}

#[tokio::test]
async fn events_are_stored_without_a_status_change() {
    let fixture = Fixture::new();
    let store = Store::of(&["shop/web"]);
    fixture.run(&store, "weir-0", owned_by_weir_0());
    fixture.until(3_600, "it is available", || store.is("shop/web", Aspect::Available)).await;
    let before = store.list().remove(0).status;
    fixture.slow.denied.store(true, Ordering::Relaxed);
    let failed = ("shop/web".to_owned(), "ConnectionsFailed");
    let recorded = || store.events.lock().unwrap().contains(&failed);
    fixture.until(900, "the event is recorded", recorded).await;
    fixture.until(5, "the event is stored", || store.unsaved.lock().unwrap().is_empty()).await;
    assert_eq!(store.list().remove(0).status, before);
}

#[tokio::test]
async fn lease_is_held_by_one_and_taken_over_by_the_other() {
    let fixture = Fixture::new();
    let zone = network(PROVIDER, "privateDnsZones", "weir.lease");
    let stores = [Store::of(&["shop/web"]), Store::of(&["shop/web"])];
    let runs = ["weir-0", "weir-1"].map(|appliance| {
        let at = usize::from(appliance == "weir-1");
        fixture.run(&stores[at], appliance, Ownership::Lease { zone: zone.clone(), period: PERIOD })
    });
    let message = |store: &Store| {
        let object = store.list().remove(0);
        object.status.condition(Aspect::Observed).map(|c| c.message.clone()).unwrap_or_default()
    };
    let reported = |text: &'static str| stores.iter().all(|store| message(store).contains(text));
    fixture
        .until(300, "the reason for no owner", || reported("az network private-dns zone create"))
        .await;
    fixture.azure.state().set(zone.as_str(), json!({}));
    let available = |at: usize| stores[at].is("shop/web", Aspect::Available);
    fixture.until(3_600, "one of them is the owner", || available(0) || available(1)).await;
    let leader = usize::from(available(1));
    let other = 1 - leader;
    let name = ["weir-0", "weir-1"][leader];
    fixture
        .until(300, "the other one reports the owner", || message(&stores[other]).contains(name))
        .await;
    assert!(
        !stores[other].is("shop/web", Aspect::Available) && !stores[other].list()[0].has_finalizer
    );
    runs[leader].abort();
    fixture.until(3_600, "the other one takes over", || available(other)).await;
    assert!(fixture.azure.state().foreign_changes.is_empty());
}

#[test]
fn a_lease_with_the_greatest_counter_is_renewed() {
    let azure = sample::bare();
    let zone: ResourceId = network(GUEST, "privateDnsZones", "weir.lease");
    let record = zone.child("TXT", "_weir-lease");
    let body = |renewals: u64| {
        let texts = ["holder=weir-0".to_owned(), format!("times={renewals}")];
        json!({ "properties": { "ttl": 60, "txtRecords": [{ "value": texts }] } })
    };
    azure.state().set(zone.as_str(), json!({}));
    azure.state().set(record.as_str(), body(u64::MAX));
    azure.state().pass(BEGUN);
    let mut lease = Lease::new("weir-0", &zone, PERIOD);
    once(lease.step(&azure, &azure)).unwrap();
    assert_eq!(lease.role(Duration::from_secs(BEGUN)), Role::Owner);
    let stored = azure.state().get(record.as_str()).unwrap();
    assert_eq!(stored["properties"], body(0)["properties"]);
}

/// Simulates random histories of three appliances, with calls that fail and hang.
#[test]
fn at_most_one_appliance_holds_the_lease() {
    let mut owned_seconds = 0;
    for seed in 1..=200 {
        let mut rng = Rng::with_seed(seed);
        let azure = sample::bare();
        let zone: ResourceId = network(GUEST, "privateDnsZones", "weir.lease");
        azure.state().set(zone.as_str(), json!({}));
        azure.state().rng = Some(Rng::with_seed(rng.u64(..)));
        azure.state().faults = 2 + rng.u64(..20);
        let names = ["weir-0", "weir-1", "weir-2"];
        let mut leases = names.map(|name| (Lease::new(name, &zone, PERIOD), 0_u64));
        for now in 0..2_000 {
            azure.state().pass(BEGUN + now);
            for (at, (lease, due)) in leases.iter_mut().enumerate() {
                if *due > now {
                    continue;
                }
                // A process that ends during the step starts anew.
                if once(lease.step(&azure, &azure)).is_none() {
                    *lease = Lease::new(names[at], &zone, PERIOD);
                }
                *due = now + 30 + if rng.u32(..20) == 0 { rng.u64(..400) } else { 0 };
            }
            let is_owner = |(lease, _): &&(Lease, u64)| {
                lease.role(Duration::from_secs(BEGUN + now)) == Role::Owner
            };
            let owners = leases.iter().filter(is_owner).count();
            assert!(owners < 2, "seed {seed} at {now}: {leases:#?}");
            owned_seconds += owners;
        }
    }
    assert!(owned_seconds > 200 * 500, "an owner for a quarter of the time: {owned_seconds}");
}
