//! Runs a case: objects, tables, reconciler and a plane, with a simulated clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use config::checked::ArmName;
use config::yaml::Documents;
use serde_json::{Value, json};
use slowpath::sources::desired;
use state::address::Address;
use state::appliance::Appliance;
use state::dump::{self, TextFormat};
use state::frontend::Progress;
use state::kubernetes;
use state::name::{Name, Precedence, Source};
use state::object::{Change, Event, Key, Object, Objects};
use state::reconcile::{Now, Reconciler, Settings};
use state::reflect::{Reflector, VerdictChange};
use state::show::{Row, Table};
use state::writer::{Initializer, Writer};

use super::planes::{PlaneKind, TestPlane};
use super::script::{Case, Section};

/// A time that is longer than any retry delay and any timeout of the reconciler.
const ROUND: Duration = Duration::from_secs(61);

/// State of a plane and the tables after a step.
pub struct ObservedState {
    /// Services, frontends, backends.
    pub rows: [Vec<Row>; 3],
    pub conditions: Vec<String>,
    /// The dump without identifiers.
    pub lines: Vec<String>,
    /// Frontends that the plane rejects, with the cause.
    pub refused: BTreeMap<String, String>,
}

/// The result of a case.
pub struct Run {
    /// State after each step.
    pub shown: Vec<ObservedState>,
    /// Number of injected write errors.
    pub faults: u64,
}

/// Runs a case; panics if a step can't be performed. The seed selects the writes that fail.
pub fn play(case: &Case, plane_kind: PlaneKind, seed: u64) -> Run {
    let mut stage = Stage::new(plane_kind.create(seed));
    let mut shown = Vec::new();
    for step in &case.steps {
        for section in &step.actions {
            stage.act(section);
            stage.settle(&format!("{} over {plane_kind:?}, `{}`", case.name, section.title));
        }
        shown.push(stage.shown());
    }
    Run { shown, faults: stage.test_plane.faults() }
}

struct Stage {
    test_plane: Box<dyn TestPlane>,
    objects: Objects,
    precedence: Precedence,
    process: Process,
    appliance: Appliance,
    now: Now,
}

/// The state of the control plane's process, which a restart loses.
struct Process {
    writer: Writer,
    reflector: Reflector,
    reconciler: Reconciler,
    /// The source whose list is not complete yet, after `restart waiting`.
    waiting: Option<Initializer>,
}

impl Process {
    fn new(precedence: &Precedence) -> Process {
        // No periodic passes within a case: the stage requests full passes and pruning.
        let long = Duration::from_secs(100 * 86_400);
        let settings = Settings { pass: long, prune: long, ..Settings::default() };
        Process {
            writer: Writer::new(),
            reflector: Reflector::new(precedence.clone(), ArmName::Egress),
            reconciler: Reconciler::new(settings),
            waiting: None,
        }
    }
}

impl Stage {
    fn new(test_plane: Box<dyn TestPlane>) -> Stage {
        let precedence = Precedence::default();
        Stage {
            test_plane,
            objects: Objects::default(),
            process: Process::new(&precedence),
            precedence,
            appliance: Appliance::default(),
            now: Now { steady: Instant::now(), wall: SystemTime::UNIX_EPOCH },
        }
    }

    /// Performs the action of a section.
    fn act(&mut self, section: &Section) {
        match section.words().as_slice() {
            ["appliance"] => self.set_appliance(&section.body),
            ["objects"] => self.change(puts(&section.body)),
            ["delete"] => self.change(deletes(section)),
            ["health"] => self.health(section),
            ["redirect"] => self.redirect(section),
            ["precedence"] => self.prefer(section),
            ["restart"] => self.restart(deletes(section), false),
            ["restart", "waiting"] => self.restart(deletes(section), true),
            ["initialized"] => {
                let waiting = self.process.waiting.take().expect("a source is waited for");
                let mut to = self.process.writer.begin(self.now.wall);
                to.complete(&waiting);
                to.commit();
            }
            other => panic!("unknown step {other:?}"),
        }
    }

    fn set_appliance(&mut self, yaml: &str) {
        let written = documents(yaml).into_iter().next().unwrap_or(Value::Null);
        self.appliance = configured(&written);
        self.test_plane.set_appliance(&self.appliance);
        // Copies of node ports are added by a full pass and removed by pruning.
        self.process.reconciler.start_full_pass();
        self.process.reconciler.prune_now(self.now);
    }

    /// Applies changes and derives the rows, in one transaction.
    fn change(&mut self, changes: Vec<Change>) {
        let events = self.apply(changes);
        self.reflect(&events);
    }

    /// Applies changes to the objects only.
    fn apply(&mut self, changes: Vec<Change>) -> Vec<Event> {
        let apply = |change: Change| match self.objects.apply(&change, self.now.wall) {
            Ok(event) => event,
            Err(error) => panic!("{error}"),
        };
        changes.into_iter().filter_map(apply).collect()
    }

    /// Derives the rows of the tables from changed objects.
    fn reflect(&mut self, events: &[Event]) {
        let Process { writer, reflector, .. } = &mut self.process;
        let mut to = writer.begin(self.now.wall);
        let changes = reflector.apply(&self.objects, events, &mut to);
        to.commit();
        self.record_verdicts(changes);
    }

    /// Sets the precedence of sources, highest first.
    fn prefer(&mut self, section: &Section) {
        self.precedence = Precedence::new(section.body.split_whitespace().map(Source::new));
        let Process { writer, reflector, .. } = &mut self.process;
        let mut to = writer.begin(self.now.wall);
        let changes = reflector.set_precedence(self.precedence.clone(), &self.objects, &mut to);
        to.commit();
        self.record_verdicts(changes);
    }

    /// Stores verdicts as conditions of the objects.
    fn record_verdicts(&mut self, changes: Vec<VerdictChange>) {
        let conditions = changes.into_iter().map(|one| one.into_change(self.now.wall)).collect();
        self.apply(conditions);
    }

    /// Sets the health verdicts of backends.
    fn health(&self, section: &Section) {
        let mut to = self.process.writer.begin(self.now.wall);
        for line in section.lines() {
            let [service, endpoint, verdict] = words(line);
            let service = Name::new(service).unwrap();
            let entry = to.tables().entry(&service).cloned();
            let at = entry.iter().flat_map(|entry| entry.used()).map(|instance| instance.endpoint);
            let at = at.into_iter().find(|at| at.to_string() == endpoint);
            let at = at.unwrap_or_else(|| panic!("{service} has no backend at {endpoint}"));
            let passes = match verdict {
                "passes" => true,
                "fails" => false,
                other => panic!("`{other}` is not a verdict; write fails or passes"),
            };
            to.update_backend_health(&service, &at, passes).unwrap();
        }
        to.commit();
    }

    /// Redirects frontends to the backends of other services, or ends that.
    fn redirect(&self, section: &Section) {
        let mut to = self.process.writer.begin(self.now.wall);
        for line in section.lines() {
            let [address, _, other] = words(line);
            let at: Address = *to
                .tables()
                .frontends()
                .map(|row| row.address())
                .find(|at| at.to_string() == address)
                .unwrap_or_else(|| panic!("there is no frontend at {address}"));
            let other = (other != "itself").then(|| Name::new(other).unwrap());
            to.set_redirect_to(&at, other).unwrap();
        }
        to.commit();
    }

    /// Restarts the process, and applies `changes` before the new process runs. Panics if the
    /// plane's dump has new lines, or if unchanged objects have other identifiers afterwards.
    fn restart(&mut self, changes: Vec<Change>, waiting: bool) {
        let before = self.dump_with_ids();
        self.process = Process::new(&self.precedence);
        if waiting {
            self.process.waiting = Some(self.process.writer.register_initializer("test"));
        }
        self.test_plane.restart(&self.appliance);
        let found = self.dump_with_ids();
        let unexpected: Vec<&String> = found.iter().filter(|line| !before.contains(line)).collect();
        assert!(unexpected.is_empty(), "after the restart: {unexpected:#?}\nbefore: {before:#?}");
        let same = changes.is_empty();
        self.apply(changes);
        let events = self.objects.as_events();
        self.reflect(&events);
        if same && !waiting {
            self.settle("a restart");
            let after = identifiers(&self.dump_with_ids());
            for (address, id) in identifiers(&before) {
                let now = after.get(&address);
                assert!(now.is_none_or(|now| *now == id), "{address} had {id} and has {now:?}");
            }
        }
    }

    /// Runs two steps of the reconciler, each followed by the work of other processes.
    fn step(&mut self) {
        let reconciler = &mut self.process.reconciler;
        let changes = self.process.writer.changes_since(reconciler.observed());
        reconciler.step(self.now, &changes, &self.appliance, self.test_plane.plane());
        self.test_plane.between_steps(self.now.steady);
        // Acknowledgments of lcores are read by the next step.
        reconciler.step(self.now, &changes, &self.appliance, self.test_plane.plane());
        self.test_plane.between_steps(self.now.steady);
    }

    /// Runs the reconciler until it has no work at the current time.
    fn steps(&mut self) {
        self.step();
        while self.process.reconciler.has_work(self.now.steady) {
            self.step();
        }
    }

    /// Advances the simulated clock, and runs the reconciler.
    fn advance(&mut self, time: Duration) {
        self.now = Now { steady: self.now.steady + time, wall: self.now.wall + time };
        self.steps();
    }

    /// Advances the time until there is no more work. Panics if a full pass after that writes
    /// something.
    fn settle(&mut self, at: &str) {
        for round in 0.. {
            assert!(round < 300, "{at}: writes keep failing");
            self.steps();
            self.advance(ROUND);
            if !self.fails() {
                break;
            }
        }
        // The region removes drained entries one after the other.
        (0..3).for_each(|_| self.advance(Duration::from_secs(2)));
        let before = self.test_plane.writes();
        let lines = self.dump_with_ids();
        self.process.reconciler.start_full_pass();
        self.process.reconciler.prune_now(self.now);
        self.steps();
        let after = self.dump_with_ids();
        assert_eq!(
            (self.test_plane.writes(), &after),
            (before, &lines),
            "{at}: nothing differed, and something was written"
        );
    }

    /// Returns whether a write is still to be retried after an injected error.
    fn fails(&self) -> bool {
        let reconciler = &self.process.reconciler;
        let is_injected = |text: &str| text.contains("injected failure");
        let pruning = reconciler.health(&self.process.writer.tables()).reason;
        reconciler.errors().any(|(_, why)| is_injected(why))
            || pruning.as_deref().is_some_and(is_injected)
    }

    /// Returns the dump with identifiers.
    fn dump_with_ids(&mut self) -> Vec<String> {
        dump::text(&self.test_plane.plane().dump(), &TextFormat::default())
    }

    /// Returns the current state of the tables and the plane.
    fn shown(&mut self) -> ObservedState {
        let tables = self.process.writer.tables();
        let refused = tables.frontends().filter_map(|row| match row.status().progress {
            Progress::Error(why) => Some((row.address().to_string(), why.to_string())),
            _ => None,
        });
        ObservedState {
            refused: refused.collect(),
            rows: Table::ALL.map(|table| table.rows(&tables, &self.appliance)),
            conditions: self.objects.all().flat_map(|object| conditions(object)).collect(),
            lines: dump::text(&self.test_plane.plane().dump(), &TextFormat::WITHOUT_IDENTIFIERS),
        }
    }
}

/// Returns the three words of a line; panics for another number.
fn words(line: &str) -> [&str; 3] {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.try_into().unwrap_or_else(|_| panic!("`{line}` does not have three words"))
}

fn documents(text: &str) -> Vec<Value> {
    let one = |document: Result<config::yaml::Document, _>| match document {
        Ok(document) => document.value,
        Err(broken) => panic!("{broken} in\n{text}"),
    };
    Documents::new(text).map(one).filter(|value| !value.is_null()).collect()
}

/// Returns the changes that create or replace the objects of YAML documents. If one of them is a
/// Kubernetes object, all are read as such.
fn puts(text: &str) -> Vec<Change> {
    let all = documents(text);
    let objects = if all.iter().any(|value| value["apiVersion"].is_string()) {
        let settings = kubernetes::Settings::new(Source::new("kubernetes"));
        let found = kubernetes::read([("case", text)], &settings);
        found.unwrap_or_else(|broken| panic!("{}", broken[0])).objects
    } else {
        let one = |json| Object::from_json(json).unwrap_or_else(|wrong| panic!("{wrong}"));
        all.iter().map(one).collect()
    };
    objects.into_iter().map(Change::put).collect()
}

/// Parses lines like `Service shop/web of api`.
fn deletes(section: &Section) -> Vec<Change> {
    let key = |line: &str| {
        let [kind, name, "of", source] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("`{line}` does not have the form `Service shop/web of api`");
        };
        let (kind, name) = (kind.parse().unwrap(), Name::new(name).unwrap());
        Change::delete(Key { kind, name, source: Source::new(source) })
    };
    section.lines().map(key).collect()
}

/// Formats conditions like `Service shop/web of api: Accepted=False Shadowed: ...`.
fn conditions(object: &Object) -> Vec<String> {
    let status = object.lifecycle().status.iter().flat_map(|status| &status.conditions);
    let line = |condition: &state::object::Condition| {
        let state = format!("{}={:?}", condition.aspect, condition.status);
        let line = format!("{}: {state} {}: {}", object.key(), condition.reason, condition.message);
        line.trim_end_matches([' ', ':']).to_owned()
    };
    status.map(line).collect()
}

/// Returns identifiers of services and backends by address, from a dump that includes them.
fn identifiers(lines: &[String]) -> BTreeMap<String, String> {
    let of = |line: &String| {
        let (what, rest) = line.split_once(": ID=")?;
        let (id, rest) = rest.split_once(" ADDR=")?;
        let address = rest.split(' ').next()?;
        ["REV", "BE"].contains(&what).then(|| (format!("{what} {address}"), id.to_owned()))
    };
    lines.iter().filter_map(of).collect()
}

/// Returns the appliance of a configuration with these keys. `addresses` are those of its ingress.
/// `zone_aware`, which the configuration can't turn off, is set separately.
fn configured(written: &Value) -> Appliance {
    let mut keys = written.as_object().cloned().unwrap_or_default();
    let zone_aware = keys.remove("zone_aware").is_none_or(|value| value == true);
    let address = |value: &Value| {
        let address: IpAddr = value.as_str().and_then(|text| text.parse().ok()).expect("address");
        format!("{address}/{}", if address.is_ipv4() { 24 } else { 64 })
    };
    let addresses = keys.remove("addresses").unwrap_or(json!([]));
    let addresses: Vec<String> =
        addresses.as_array().expect("a list of addresses").iter().map(address).collect();
    let mut text = String::from("name = \"edge\"\n");
    for (key, value) in keys {
        // JSON strings, numbers, booleans and lists of strings are valid TOML.
        text += &format!("{key} = {value}\n");
    }
    let has_none = addresses.is_empty();
    let addresses = if has_none { vec!["192.0.2.1/24".to_owned()] } else { addresses };
    text += &format!("[ingress]\ndevice = \"net_null0\"\naddress = {}\n", json!(addresses));
    text += "[fastpath]\nlcores = [1]\n";
    let config = config::from_toml(&text).unwrap_or_else(|wrong| panic!("{text}: {wrong}"));
    let appliance = Appliance { zone_aware, ..desired::appliance(&config) };
    // Every configuration has an address; a case without addresses has none.
    if has_none { Appliance { addresses: Vec::new(), ..appliance } } else { appliance }
}
