//! The endpoints over a store whose disk may fail, a clock that tests set, and the tables that
//! follow the store. Has the methods of the state machine's fixture, as HTTP requests, so that
//! `model.rs` runs on both.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::Extension;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use config::checked::ArmName;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use state::appliance::Appliance;
use state::name::{Precedence, Source};
use state::object::{Event, Object};
use state::reconcile::Now;
use state::reflect::Reflector;
use state::sources::{Setting, Settings, Sources};
use state::store::{AnyDisk, Shared, Store};
use state::tables::Tables;
use state::writer::Writer;
use tokio::runtime::Runtime;

use super::memory_disk::MemoryDisk;
use crate::audit::Audit;
use crate::principal::Principal;
use crate::sources::tick;
use crate::{Api, Control, Outcome, Problem, Role, Wait, router};

/// A control loop for tests: clock, configuration, and the outcome that waiters receive.
pub struct TestControl {
    now: Mutex<Now>,
    pub settings: Mutex<Settings>,
    pub outcome: Mutex<Option<Outcome>>,
    pub waits: Mutex<Vec<Wait>>,
}

impl Control for TestControl {
    fn tables(&self) -> (Tables, Arc<Appliance>) {
        (Writer::new().tables(), Arc::default())
    }

    fn wait(&self, mut wait: Wait) {
        if let Some(outcome) = self.outcome.lock().clone() {
            let (closed, _) = tokio::sync::oneshot::channel();
            let answer = std::mem::replace(&mut wait.answer, closed);
            answer.send(outcome).unwrap();
        }
        self.waits.lock().push(wait);
    }

    fn sources(&self) -> Settings {
        self.settings.lock().clone()
    }

    fn now(&self) -> Now {
        *self.now.lock()
    }
}

/// State of a process with the API, and the disk that outlives it.
pub struct Fixture {
    runtime: Runtime,
    memory_disk: MemoryDisk,
    pub control: Arc<TestControl>,
    pub store: Arc<Shared<AnyDisk>>,
    api: Api,
    pub writer: Writer,
    reflector: Reflector,
    precedence: Precedence,
    /// Revision of the store up to which its changes are in the tables.
    applied_revision: u64,
}

/// The parsed report of a source.
#[derive(Debug, Deserialize)]
pub struct SourceReport {
    pub lease_status: String,
    pub left_s: Option<u64>,
    pub revision: String,
    pub session: Option<Value>,
}

fn api(memory_disk: &MemoryDisk, control: &Arc<TestControl>) -> Api {
    let disk: AnyDisk = Box::new(memory_disk.clone());
    let store = Arc::new(Shared::new(Store::open(disk)));
    drop(store.start().unwrap());
    let sources = Sources::new(control.sources(), &store.objects(), control.now());
    let control = Arc::clone(control) as _;
    let (documents, audit) = (Arc::default(), Audit::default());
    let sources = Arc::new(Mutex::new(sources));
    Api { store, control, sources, documents, audit, credentials: None }
}

impl Fixture {
    pub fn new() -> Fixture {
        let memory_disk = MemoryDisk::default();
        let wall = UNIX_EPOCH + Duration::from_secs(1 << 30);
        let own = vec![Source::new("file")];
        let control = Arc::new(TestControl {
            now: Mutex::new(Now { steady: Instant::now(), wall }),
            settings: Mutex::new(Settings { own, ..Settings::default() }),
            outcome: Mutex::new(None),
            waits: Mutex::default(),
        });
        let api = api(&memory_disk, &control);
        let precedence = Precedence::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Fixture {
            runtime,
            memory_disk,
            control,
            store: Arc::clone(&api.store),
            api,
            writer: Writer::new(),
            reflector: Reflector::new(precedence.clone(), ArmName::Egress),
            precedence,
            applied_revision: 0,
        }
    }

    /// Ends the process and starts another on the same disk. The wall clock is set forward by ten
    /// days, which must not expire a lease.
    pub fn restart(&mut self) {
        self.control.now.lock().wall += Duration::from_secs(10 * 86_400);
        self.store.close();
        self.api = api(&self.memory_disk, &self.control);
        self.store = Arc::clone(&self.api.store);
        self.writer = Writer::new();
        self.reflector = Reflector::new(self.precedence.clone(), ArmName::Egress);
        let events = self.store.objects().as_events();
        self.reflect(&events);
    }

    /// Makes the next `times` writes to the disk fail.
    pub fn fail_disk(&self, times: u32) {
        self.memory_disk.fail(times);
    }

    /// Changes the configuration of a source.
    pub fn set(&mut self, source: &str, setting: Setting) {
        self.control.settings.lock().sources.insert(Source::new(source), setting);
    }

    /// Sets the precedence of sources, highest first.
    pub fn prefer(&mut self, order: &[&str]) {
        self.precedence = Precedence::new(order.iter().map(|name| Source::new(name)));
        let mut to = self.writer.begin(self.control.now().wall);
        let objects = self.store.objects();
        self.reflector.set_precedence(self.precedence.clone(), &objects, &mut to);
        to.commit();
    }

    /// Advances the time second by second, and handles expired leases after each.
    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let second = Duration::from_secs(1);
            {
                let mut now = self.control.now.lock();
                *now = Now { steady: now.steady + second, wall: now.wall + second };
            }
            tick(&self.api);
            self.follow();
        }
    }

    /// Applies the store's new changes to the tables.
    fn follow(&mut self) {
        let events = self.store.changes_since(self.applied_revision).events.unwrap();
        self.reflect(&events);
    }

    fn reflect(&mut self, events: &[Event]) {
        let objects = self.store.objects();
        self.applied_revision = objects.revision();
        let mut to = self.writer.begin(self.control.now().wall);
        self.reflector.apply(&objects, events, &mut to);
        to.commit();
    }

    /// Sends a request below `/v1/sources`, optionally with a body.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(format!("/v1/sources{path}"));
        let request = match body {
            None => request.body(Body::empty()),
            Some(json) => {
                let typed = request.header(header::CONTENT_TYPE, "application/json");
                typed.body(Body::from(json.to_string()))
            }
        };
        let principal = Extension(Principal::local("test", Role::Admin));
        let routes = TowerToHyperService::new(router(self.api.clone()).layer(principal));
        let exchange = async {
            let response = routes.call(request.unwrap()).await.unwrap();
            let status = response.status();
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        };
        let answer = self.runtime.block_on(exchange);
        self.follow();
        answer
    }

    /// Sends a request and deserializes its response: a `T`, or an error document of the API.
    fn send<T: serde::de::DeserializeOwned>(
        &mut self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<T, Problem> {
        let (status, json) = self.request(method, path, body);
        if status.is_success() {
            return Ok(serde_json::from_value(json).unwrap());
        }
        let problem: Problem = serde_json::from_value(json).unwrap();
        assert_eq!(problem.status, status.as_u16(), "{problem:?}");
        Err(problem)
    }

    pub fn begin(&mut self, source: &str, revision: &str) -> Result<u64, Problem> {
        let body = json!({ "revision": revision });
        let begun: Value = self.send("POST", &format!("/{source}/sessions"), Some(body))?;
        Ok(begun["session"].as_u64().unwrap())
    }

    pub fn add(
        &mut self,
        source: &str,
        id: u64,
        number: u64,
        objects: Vec<Object>,
    ) -> Result<Value, Problem> {
        let objects = serde_json::to_value(objects).unwrap();
        self.send("PUT", &format!("/{source}/sessions/{id}/chunks/{number}"), Some(objects))
    }

    /// Commits and permits any removal.
    pub fn commit(&mut self, source: &str, id: u64) -> Result<Value, Problem> {
        let body = json!({ "allow_removal": true });
        self.send("POST", &format!("/{source}/sessions/{id}/commit"), Some(body))
    }

    pub fn abort(&mut self, source: &str, id: u64) -> Result<(), Problem> {
        self.send("DELETE", &format!("/{source}/sessions/{id}"), None)
    }

    pub fn renew(&mut self, source: &str, lease_s: Option<u32>) -> Result<Value, Problem> {
        let body = lease_s.map(|lease_s| json!({ "lease_s": lease_s }));
        self.send("POST", &format!("/{source}/renew"), body)
    }

    pub fn report(&mut self, source: &str) -> SourceReport {
        self.send("GET", &format!("/{source}"), None).unwrap()
    }

    /// Returns the frontends with the revisions of their rows.
    pub fn rows(&self) -> BTreeSet<(String, u64)> {
        let tables = self.writer.tables();
        tables.frontends().map(|row| (row.address().to_string(), row.revision)).collect()
    }

    /// Returns the kinds and names of a source's stored objects, without its `Source` object.
    pub fn names(&self, source: &str) -> Vec<String> {
        let objects = self.store.objects();
        let of = |object: &&Arc<Object>| {
            object.source.as_str() == source && object.kind() != state::object::Kind::Source
        };
        objects.all().filter(of).map(|o| format!("{} {}", o.kind(), o.name)).collect()
    }
}
