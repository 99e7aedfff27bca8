//! Random histories of three sources that name the same services and endpoints, compared with a
//! simple model. The crate `api` includes this file as well, with a fixture that sends the requests
//! to its routes.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::fixture::Fixture;
use super::{CASES, Setting, address, backend, frontend, object};
use super::{Name, OnExpiry, Source};
use backend::State;
use object::{API, BackendSpec, BackendsSpec, Object, ServiceSpec, Spec};

const SOURCES: [&str; 3] = ["a", "b", "c"];
const SERVICES: usize = 3;
/// Leases in seconds, by source; the third has none.
const LEASES: [u32; 3] = [10, 20, 0];

#[derive(Clone, Debug)]
enum Step {
    Begin(usize),
    /// Source; service; whether the service also has a frontend that no other source has; and two
    /// sets of endpoints as bits: those that the service has, and those that are terminating if the
    /// service has them.
    Add(usize, usize, bool, u8, u8),
    Commit(usize),
    Abort(usize),
    Renew(usize),
    /// Number of seconds that pass.
    Pass(u64),
    /// Sources in order of preference.
    Prefer(Vec<usize>),
    /// Source, and its new `on_expiry`: 0 keep, 1 quarantine, 2 release.
    Expiry(usize, u8),
    /// The next write to the disk fails.
    Fault,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let source = 0..SOURCES.len();
    prop_oneof![
        3 => source.clone().prop_map(Step::Begin),
        8 => (source.clone(), 0..SERVICES, any::<bool>(), 0_u8..16, 0_u8..16)
            .prop_map(|(s, n, own, on, off)| Step::Add(s, n, own, on, off)),
        4 => source.clone().prop_map(Step::Commit),
        1 => source.clone().prop_map(Step::Abort),
        2 => source.clone().prop_map(Step::Renew),
        3 => (1_u64..15).prop_map(Step::Pass),
        2 => proptest::sample::subsequence(vec![0, 1, 2], 0..=3).prop_shuffle()
            .prop_map(Step::Prefer),
        1 => (source, 0_u8..3).prop_map(|(s, n)| Step::Expiry(s, n)),
        1 => Just(Step::Fault),
        1 => Just(Step::Restart),
    ]
}

/// Services of a source: whether each has a frontend of the source's own in addition to the shared
/// one, and its backends.
type ServiceModels = BTreeMap<usize, (bool, BTreeMap<u8, State>)>;

/// Expected state of a source.
#[derive(Clone, Debug, Default)]
struct SourceModel {
    /// Whether the source has begun a session.
    begun: bool,
    /// Committed list.
    services: ServiceModels,
    /// How the objects were handled when the lease expired; `None` while the lease is valid.
    expired: Option<OnExpiry>,
    /// Open session: its number, the number of the next chunk, and the services in it.
    open: Option<(u64, u64, ServiceModels)>,
    /// Seconds since the session's last request.
    idle: u64,
    /// Seconds until the lease expires; `None` without a lease.
    left: Option<u64>,
    on_expiry: OnExpiry,
}

#[derive(Clone, Debug, Default)]
struct Model {
    all: [SourceModel; 3],
    /// Sources in order of preference.
    order: Vec<usize>,
    /// Whether the next write to the disk fails.
    fault: bool,
}

impl Model {
    /// Returns whether a write to the disk succeeds, and clears the fault.
    fn write_succeeds(&mut self) -> bool {
        !std::mem::take(&mut self.fault)
    }

    fn restart_lease(&mut self, n: usize) {
        self.all[n].left = (LEASES[n] > 0).then_some(LEASES[n].into());
    }

    fn rank(&self, n: usize) -> usize {
        self.order.iter().position(|other| *other == n).unwrap_or(self.order.len())
    }

    fn is_quarantined(&self, n: usize) -> bool {
        self.all[n].expired == Some(OnExpiry::Quarantine)
    }

    /// Returns the source whose service is used; of sources without preference, the first by name.
    fn chosen(&self, service: usize) -> Option<usize> {
        let sources = (0..3).filter(|n| self.all[*n].services.contains_key(&service));
        sources.min_by_key(|n| self.rank(*n))
    }

    /// Returns the sources that have an endpoint, in order of precedence, each with the endpoint's
    /// state.
    fn at(&self, service: usize, endpoint: u8) -> Vec<(usize, State)> {
        let state_at = |n: &usize| self.all[*n].services.get(&service)?.1.get(&endpoint).copied();
        let mut all: Vec<(usize, State)> =
            (0..3).filter_map(|n| Some((n, state_at(&n)?))).collect();
        all.sort_by_key(|(n, _)| (self.is_quarantined(*n), self.rank(*n), *n));
        for (n, state) in &mut all {
            if self.is_quarantined(*n) {
                *state = State::Quarantined;
            }
        }
        all
    }

    fn tick(&mut self) {
        for n in 0..3 {
            let one = &mut self.all[n];
            one.idle += 1;
            if one.idle >= 60 {
                one.open = None;
            }
            one.left = one.left.map(|left| left.saturating_sub(1));
            let (handling, is_over) = (Some(one.on_expiry), one.left == Some(0));
            let is_handled = one.expired == handling || one.expired == Some(OnExpiry::Release);
            if !is_over || !one.begun || is_handled {
                continue;
            }
            if !self.write_succeeds() {
                continue;
            }
            let one = &mut self.all[n];
            one.expired = handling;
            if handling == Some(OnExpiry::Release) {
                one.services.clear();
            }
        }
    }
}

fn name(service: usize) -> String {
    format!("shop/{service}")
}

fn endpoint(n: u8) -> std::net::IpAddr {
    [10, 0, 0, n + 1].into()
}

fn service_model(own: bool, on: u8, off: u8) -> (bool, BTreeMap<u8, State>) {
    let state = |n: u8| match (on >> n & 1, off >> n & 1) {
        (0, _) => None,
        (_, 1) => Some(State::Terminating),
        _ => Some(State::Active),
    };
    (own, (0..4).filter_map(|n| Some((n, state(n)?))).collect())
}

/// Returns the frontends of a service in a source's list: one that all sources share, and if `own`,
/// one that only this source has.
fn frontends(source: usize, service: usize, own: bool) -> Vec<String> {
    let mut all = vec![format!("203.0.113.{}", 100 + service)];
    all.extend(own.then(|| format!("203.0.113.{}", 10 * service + source)));
    all
}

fn objects(source: usize, service: usize, of: &(bool, BTreeMap<u8, State>)) -> Vec<Object> {
    let name = Name::new(&name(service)).unwrap();
    let member = |(n, state): (&u8, &State)| BackendSpec {
        state: *state,
        ..BackendSpec::new(endpoint(*n), 80, 6)
    };
    let list = BackendsSpec { service: name.clone(), endpoints: of.1.iter().map(member).collect() };
    let frontends = frontends(source, service, of.0).into_iter().map(|address| {
        let address = address::Address::new(address.parse().unwrap(), 80, 6);
        object::FrontendSpec::new(address, frontend::Kind::LoadBalancer)
    });
    let spec = ServiceSpec { frontends: frontends.collect(), ..ServiceSpec::default() };
    let put = |spec| Object::new(name.clone(), Source::new(API), spec);
    vec![put(Spec::Service(Arc::new(spec))), put(Spec::Backends(Arc::new(list)))]
}

fn apply(fixture: &mut Fixture, model: &mut Model, step: &Step) {
    match step {
        Step::Begin(n) => begin(fixture, model, *n),
        Step::Add(n, service, own, on, off) => {
            let (id, number) = match &model.all[*n].open {
                Some((id, next, _)) => (*id, *next),
                None => (1, 0),
            };
            let of = service_model(*own, *on, *off);
            let twice = |open: &(u64, u64, ServiceModels)| open.2.contains_key(service);
            let good = model.all[*n].open.as_ref().is_some_and(|open| !twice(open));
            let added = fixture.add(SOURCES[*n], id, number, objects(*n, *service, &of));
            assert_eq!(added.is_ok(), good, "{added:?}");
            if let Some((_, next, services)) = model.all[*n].open.as_mut().filter(|_| good) {
                services.insert(*service, of);
                *next += 1;
                model.all[*n].idle = 0;
                model.restart_lease(*n);
            }
        }
        Step::Commit(n) => commit(fixture, model, *n),
        Step::Abort(n) => {
            let open = model.all[*n].open.take();
            let id = open.as_ref().map_or(1, |open| open.0);
            assert_eq!(fixture.abort(SOURCES[*n], id).is_ok(), open.is_some());
        }
        Step::Renew(n) => {
            let one = &model.all[*n];
            let may_renew = one.begun && one.expired != Some(OnExpiry::Release);
            let changes = one.expired.is_some();
            let renewed = fixture.renew(SOURCES[*n], None).is_ok();
            let succeeds = may_renew && (!changes || model.write_succeeds());
            assert_eq!(renewed, succeeds);
            if may_renew {
                model.restart_lease(*n);
            }
            if succeeds {
                model.all[*n].expired = None;
            }
        }
        Step::Pass(seconds) => (0..*seconds).for_each(|_| {
            fixture.pass(1);
            model.tick();
        }),
        Step::Prefer(order) => {
            model.order.clone_from(order);
            let names: Vec<&str> = order.iter().map(|n| SOURCES[*n]).collect();
            fixture.prefer(&names);
        }
        Step::Expiry(n, which) => {
            let all = [OnExpiry::Keep, OnExpiry::Quarantine, OnExpiry::Release];
            let on_expiry = all[usize::from(*which)];
            model.all[*n].on_expiry = on_expiry;
            fixture.set(SOURCES[*n], Setting { lease_s: LEASES[*n], on_expiry });
        }
        Step::Fault => {
            model.fault = true;
            fixture.fail_disk(1);
        }
        Step::Restart => {
            fixture.restart();
            for n in 0..3 {
                model.all[n].open = None;
                if model.all[n].begun {
                    model.restart_lease(n);
                } else {
                    model.all[n].left = None;
                }
            }
        }
    }
}

fn begin(fixture: &mut Fixture, model: &mut Model, n: usize) {
    let succeeds = model.all[n].begun || model.write_succeeds();
    let begun = fixture.begin(SOURCES[n], "7");
    assert_eq!(begun.is_ok(), succeeds);
    model.restart_lease(n);
    let one = &mut model.all[n];
    one.begun |= succeeds;
    one.idle = 0;
    // If the disk failed, the session is open, but its number was not returned.
    one.open = begun.ok().map(|id| (id, 0, ServiceModels::new()));
}

fn commit(fixture: &mut Fixture, model: &mut Model, n: usize) {
    let Some((id, _, services)) = model.all[n].open.clone() else {
        assert!(fixture.commit(SOURCES[n], 1).is_err());
        return;
    };
    let revision = fixture.store.objects().revision();
    let committed = fixture.commit(SOURCES[n], id);
    model.restart_lease(n);
    model.all[n].idle = 0;
    let fails = model.fault && committed.is_err();
    if fails {
        model.fault = false;
        assert_eq!(fixture.store.objects().revision(), revision, "all or nothing");
        return;
    }
    assert!(committed.is_ok(), "{committed:?}");
    if fixture.store.objects().revision() != revision {
        assert!(!model.fault, "a commit was acknowledged although the disk failed");
    }
    let one = &mut model.all[n];
    (one.services, one.expired, one.open) = (services, None, None);
}

fn check(fixture: &mut Fixture, model: &Model) {
    let tables = fixture.writer.tables();
    for service in 0..SERVICES {
        let of = Name::new(&name(service)).unwrap();
        let entry = tables.entry(&of).cloned().unwrap_or_default();
        let chosen = model.chosen(service);
        let source = entry.service.as_ref().map(|row| row.source.to_string());
        assert_eq!(source.as_deref(), chosen.map(|n| SOURCES[n]), "{of}");
        let rows = entry.frontends.iter().map(|row| row.address().prefix.addr.to_string());
        let mut expected =
            chosen.map_or(Vec::new(), |n| frontends(n, service, model.all[n].services[&service].0));
        let mut rows: Vec<String> = rows.collect();
        rows.sort();
        expected.sort();
        assert_eq!(rows, expected, "{of}");
        let mut expected: Vec<(String, &str, State)> = Vec::new();
        for n in 0..4 {
            let all = model.at(service, n).into_iter();
            expected.extend(all.map(|(by, state)| (endpoint(n).to_string(), SOURCES[by], state)));
        }
        let instances = entry.instances.iter();
        let instances: Vec<(String, &str, State)> = instances
            .map(|one| (one.endpoint.addr.to_string(), one.source.as_str(), one.state))
            .collect();
        assert_eq!(instances, expected, "{of}");
    }
    let lease_status = |one: &SourceModel| match one.expired {
        None => "valid",
        Some(OnExpiry::Keep) => "Persisted",
        Some(OnExpiry::Quarantine) => "Quarantined",
        Some(OnExpiry::Release) => "Released",
    };
    for (n, one) in model.all.iter().enumerate().filter(|(_, one)| one.begun) {
        let report = fixture.report(SOURCES[n]);
        let reported = report.lease_status.to_string();
        assert_eq!(
            (reported.as_str(), report.left_s),
            (lease_status(one), one.left),
            "{}",
            SOURCES[n]
        );
    }
}

/// Checks that the frontend rows of each service are the same as before the step if its expected
/// state is.
fn check_rows(
    fixture: &Fixture,
    before: &(Model, std::collections::BTreeSet<(String, u64)>),
    now: &Model,
) {
    let rows = fixture.rows();
    for service in 0..SERVICES {
        let view = |model: &Model| {
            let all: Vec<_> = (0..4).map(|n| model.at(service, n)).collect();
            let frontends = model.chosen(service).map(|n| model.all[n].services[&service].0);
            (model.chosen(service), frontends, all)
        };
        if view(&before.0) == view(now) {
            let Some(n) = now.chosen(service) else { continue };
            for address in frontends(n, service, now.all[n].services[&service].0) {
                let of = |row: &&(String, u64)| row.0 == format!("{address}:80/TCP");
                assert_eq!(
                    rows.iter().find(of),
                    before.1.iter().find(of),
                    "a row was written again although nothing changed"
                );
            }
        }
    }
}

fn play(steps: &[Step]) {
    let (mut fixture, mut model) = (Fixture::new(), Model::default());
    for (n, lease_s) in LEASES.into_iter().enumerate() {
        fixture.set(SOURCES[n], Setting { lease_s, on_expiry: OnExpiry::Keep });
    }
    for step in steps {
        let before = (model.clone(), fixture.rows());
        apply(&mut fixture, &mut model, step);
        check(&mut fixture, &model);
        if !matches!(step, Step::Restart) {
            check_rows(&fixture, &before, &model);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn tables_match_the_model_after_random_histories(
        steps in prop::collection::vec(step(), 1..80)
    ) {
        play(&steps);
    }
}
