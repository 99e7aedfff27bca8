//! Tests of the reconciliation loop: bursts, failures, conflicts, shutdown.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use patience::{eventually, met};
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::announcer::{self, Announcer};
use crate::routers::{Defect, Wrong};
use crate::secrets::Files;
use crate::world::{Recorder, pairs, policy, router, selecting, service, state, tables};

/// A source of state that tests change while the controller runs.
#[derive(Clone)]
struct Shared(Arc<Mutex<Look>>);

impl World for Shared {
    fn look(&mut self) -> Look {
        self.0.lock().clone()
    }
}

fn shared(policies: Vec<Policy>) -> Shared {
    let state = state(tables(&[service("web", json!({}), &[("203.0.113.1", 80, "LoadBalancer")])]));
    Shared(Arc::new(Mutex::new(Look { policies, annotations: None, state })))
}

fn edge() -> Policy {
    policy("edge", json!([router(65001, "192.0.2.254")]))
}

/// A fake implementation of policies that records calls and asserts that they are not concurrent.
#[derive(Clone, Default)]
struct Noted(Arc<Notes>);

#[derive(Default)]
struct Notes {
    calls: Mutex<Vec<Option<String>>>,
    is_in: AtomicBool,
    /// Number of following calls that fail.
    failing: AtomicUsize,
    withdrawals: AtomicUsize,
    deaf: AtomicBool,
    ended: Mutex<Option<Leave>>,
}

impl Routers for Noted {
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        _: &ControlPlaneState,
    ) -> Result<(), PolicyDefect> {
        assert!(!self.0.is_in.swap(true, Ordering::SeqCst), "two rounds at once");
        // Long enough for a concurrent call to be detected.
        std::thread::sleep(Duration::from_millis(1));
        self.0.calls.lock().push(policy.map(|policy| policy.name.to_string()));
        self.0.is_in.store(false, Ordering::SeqCst);
        let failing = &self.0.failing;
        let fails =
            failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match fails {
            Ok(_) => Err(PolicyDefect(vec![Defect { local_asn: 65001, wrong: Wrong::NoRouterId }])),
            Err(_) => Ok(()),
        }
    }

    fn withdraw(&mut self) -> bool {
        self.0.withdrawals.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn is_withdrawn(&self) -> bool {
        !self.0.deaf.load(Ordering::SeqCst)
    }

    fn end(&mut self, leave: Leave) {
        let before = self.0.ended.lock().replace(leave);
        assert_eq!(before, None, "ended twice");
    }
}

impl Noted {
    fn calls(&self) -> Vec<Option<String>> {
        self.0.calls.lock().clone()
    }
}

fn names(all: &[&str]) -> Vec<Option<String>> {
    all.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect()
}

fn controller(world: &Shared, on_conflict: OnConflict) -> (Controller<Shared, Noted>, Noted) {
    let noted = Noted::default();
    (Controller::new(world.clone(), noted.clone(), on_conflict, 1), noted)
}

#[test]
fn a_policy_is_carried_out_and_withdrawn_once_when_it_is_deselected() {
    let world = shared(vec![]);
    let (mut controller, noted) = controller(&world, OnConflict::Withdraw);
    // No policy was applied before: there is nothing to withdraw.
    controller.reconcile().unwrap();
    assert_eq!(noted.calls(), names(&[]));
    world.0.lock().policies = vec![edge()];
    controller.reconcile().unwrap();
    controller.reconcile().unwrap();
    world.0.lock().policies =
        vec![selecting("b", json!({"rack": "b"}), json!([router(1, "192.0.2.1")]))];
    controller.reconcile().unwrap();
    controller.reconcile().unwrap();
    assert_eq!(noted.calls(), names(&["edge", "edge", ""]));
    // With other labels, the other policy selects the appliance.
    world.0.lock().state.labels = pairs(&[("rack", "b")]);
    controller.reconcile().unwrap();
    assert_eq!(noted.calls(), names(&["edge", "edge", "", "b"]));
    assert_eq!(controller.counts().lock().runs, 6);
}

#[test]
fn several_policies_are_an_error_and_routes_go_or_stay_as_set() {
    let both = || vec![edge(), policy("other", json!([router(65002, "192.0.2.1")]))];
    for (setting, expected) in [
        (OnConflict::Withdraw, ["edge", "", "other"].as_slice()),
        // A kept policy still follows the state.
        (OnConflict::Keep, &["edge", "edge", "edge", "other"]),
    ] {
        let world = shared(vec![edge()]);
        let (mut controller, noted) = controller(&world, setting);
        controller.reconcile().unwrap();
        world.0.lock().policies = both();
        for _ in 0..2 {
            let error = controller.reconcile().unwrap_err();
            let ReconcileError::MultiplePolicies(several) = error else { panic!("{error}") };
            assert_eq!(
                several.0.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
                ["edge", "other"]
            );
        }
        world.0.lock().policies.remove(0);
        controller.reconcile().unwrap();
        assert_eq!(noted.calls(), names(expected), "{setting:?}");
        assert_eq!(controller.counts().lock().errors, BTreeMap::from([(0, 2)]));
    }
    // Without a previous policy there is nothing to keep.
    let (mut controller, noted) = controller(&shared(both()), OnConflict::Keep);
    controller.reconcile().unwrap_err();
    assert_eq!(noted.calls(), names(&[]));
}

#[test]
fn a_conflict_keeps_no_routes_of_an_appliance_that_is_not_able() {
    let world = shared(vec![edge()]);
    let files = Arc::new(Files::default());
    let announcer = Announcer::new(Recorder::default(), files, announcer::Settings::default());
    let announcer = Arc::new(Mutex::new(announcer));
    let mut controller =
        Controller::new(world.clone(), Arc::clone(&announcer), OnConflict::Keep, 1);
    controller.reconcile().unwrap();
    let routes = || announcer.lock().speaker().routes().into_values().flatten().count();
    world.0.lock().policies.push(policy("other", json!([router(65002, "192.0.2.1")])));
    controller.reconcile().unwrap_err();
    assert_eq!(routes(), 1);
    world.0.lock().state.plane.able = false;
    controller.reconcile().unwrap_err();
    assert_eq!(routes(), 0);
}

#[test]
fn an_annotation_that_means_nothing_begins_nothing_and_stops_nothing() {
    let world = shared(vec![edge()]);
    let (mut controller, noted) = controller(&world, OnConflict::Withdraw);
    let bad = pairs(&[("weir.dev/bgp-virtual-router.65001", "router-id=x")]);
    world.0.lock().annotations = bad.clone();
    let error = controller.reconcile().unwrap_err();
    assert!(matches!(error, ReconcileError::State(_)), "{error}");
    assert_eq!(noted.calls(), names(&[]));
    world.0.lock().annotations = None;
    controller.reconcile().unwrap();
    world.0.lock().annotations = bad;
    controller.reconcile().unwrap_err();
    assert_eq!(noted.calls(), names(&["edge", "edge"]));
}

#[test]
fn failures_are_counted_by_router() {
    let (mut controller, noted) = controller(&shared(vec![edge()]), OnConflict::Withdraw);
    noted.0.failing.store(2, Ordering::SeqCst);
    for _ in 0..2 {
        controller.reconcile().unwrap_err();
    }
    let counts = controller.counts();
    assert!(counts.lock().error.starts_with("router 65001: no router id"));
    controller.reconcile().unwrap();
    let counts = counts.lock().clone();
    assert_eq!((counts.runs, counts.errors), (3, BTreeMap::from([(65001, 2)])));
    assert_eq!(counts.error, "");
}

#[test]
fn retries_come_ever_later_and_end() {
    for seed in 0..200 {
        let (mut retries, now) = (Retries::new(seed), Instant::now());
        // After the failed round of a signal, five retries follow, after 500 ms, 1 s and so on,
        // each with up to 50 % jitter.
        retries.note(now, false, false);
        for n in 0..5 {
            let wait = retries.due.unwrap() - now;
            let least = RETRY * 2_u32.pow(n);
            assert!(wait >= least && wait < least * 3 / 2, "{wait:?}");
            retries.note(now, false, true);
        }
        assert_eq!(retries.due, None);
        // The next signal starts over, and a successful round is not retried.
        retries.note(now, false, false);
        assert!(retries.due.is_some());
        retries.note(now, true, true);
        assert_eq!(retries.due, None);
    }
}

/// Runs a controller on a thread until it ends.
fn run(
    controller: Controller<Shared, Noted>,
    signal: &Signal,
    leave: impl Future<Output = Leave> + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let signal = signal.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(controller.run(signal, leave));
    })
}

fn until(noted: &Noted, what: &str, fits: impl Fn(&[Option<String>]) -> bool) {
    eventually(what, || {
        let calls = noted.calls();
        met(fits(&calls), || format!("{calls:?}"))
    });
}

#[test]
fn a_burst_is_few_rounds_and_never_two_at_once() {
    let world = shared(vec![edge()]);
    let (controller, noted) = controller(&world, OnConflict::Withdraw);
    let signal = Signal::default();
    let (stop, stopped) = oneshot::channel();
    let running = run(controller, &signal, async { stopped.await.unwrap_or(Leave::Restart) });
    until(&noted, "the first round", |calls| calls == names(&["edge"]));
    let before = noted.calls().len();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2_500).for_each(|_| signal.event()));
        }
    });
    world.0.lock().policies = vec![policy("last", json!([router(65001, "192.0.2.254")]))];
    signal.event();
    until(&noted, "the last", |calls| calls.last() == Some(&Some("last".to_owned())));
    // A round takes at least 1 ms; signals given meanwhile count as one.
    let rounds = noted.calls().len() - before;
    assert!(rounds < 5_000, "{rounds} rounds for a burst of 10,000");
    stop.send(Leave::Restart).unwrap();
    running.join().unwrap();
    assert_eq!(*noted.0.ended.lock(), Some(Leave::Restart));
    assert_eq!(noted.0.withdrawals.load(Ordering::SeqCst), 0, "a restart says nothing");
}

#[test]
fn signals_before_a_round_are_one() {
    let signal = Signal::default();
    (0..1_000).for_each(|_| signal.event());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        signal.wait().await;
        let second = tokio::time::timeout(Duration::from_millis(50), signal.wait()).await;
        assert!(second.is_err(), "there was a second one");
    });
}

#[test]
fn a_round_that_failed_is_tried_again_without_a_signal() {
    let (controller, noted) = controller(&shared(vec![edge()]), OnConflict::Withdraw);
    noted.0.failing.store(1, Ordering::SeqCst);
    let (stop, stopped) = oneshot::channel();
    let signal = Signal::default();
    let running = run(controller, &signal, async { stopped.await.unwrap_or(Leave::Restart) });
    until(&noted, "the second round", |calls| calls.len() == 2);
    stop.send(Leave::Restart).unwrap();
    running.join().unwrap();
}

#[test]
fn a_stop_withdraws_waits_and_disconnects() {
    for deaf in [false, true] {
        let (controller, noted) = controller(&shared(vec![edge()]), OnConflict::Withdraw);
        noted.0.deaf.store(deaf, Ordering::SeqCst);
        // A peer that reads nothing delays the shutdown until the deadline and no longer.
        let patience = Duration::from_millis(if deaf { 100 } else { 3_600_000 });
        let leave = Leave::Stop { patience, settle: Duration::from_millis(10) };
        let running = run(controller, &Signal::default(), std::future::ready(leave.clone()));
        running.join().unwrap();
        assert_eq!(*noted.0.ended.lock(), Some(leave));
        assert_eq!(noted.0.withdrawals.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn leaving_is_a_machine() {
    let mut noted = Noted::default();
    noted.0.deaf.store(true, Ordering::SeqCst);
    let now = Instant::now();
    let (patience, settle) = (Duration::from_secs(60), Duration::from_secs(2));
    let mut leaving = Leaving::new(Leave::Stop { patience, settle });
    assert_eq!(leaving.step(now, &mut noted), Step::Wait(now + patience));
    assert_eq!(leaving.step(now + patience / 2, &mut noted), Step::Wait(now + patience));
    assert_eq!(*noted.0.ended.lock(), None);
    // Withdrawals were sent before the deadline; routers get time to move traffic.
    noted.0.deaf.store(false, Ordering::SeqCst);
    let settled = now + patience / 2 + settle;
    assert_eq!(leaving.step(now + patience / 2, &mut noted), Step::Wait(settled));
    assert_eq!(*noted.0.ended.lock(), None);
    assert_eq!(leaving.step(settled, &mut noted), Step::Done);
    assert_eq!(leaving.step(now + patience, &mut noted), Step::Done);
    assert_eq!(noted.0.withdrawals.load(Ordering::SeqCst), 1);
    assert_eq!(Leave::Restart.said(), bgp::peer::Stop::Restart);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any sequence of changes, the result of the last round equals that of a fresh
    /// controller with the same state, and all announced addresses are in force.
    #[test]
    fn every_history_ends_in_what_is_wanted(
        steps in proptest::collection::vec((0_u8..6, 0_u32..3, 0_u8..4), 1..20),
    ) {
        let world = shared(vec![]);
        let build = || {
            let files = Arc::new(Files::default());
            let settings = announcer::Settings::default();
            Arc::new(Mutex::new(Announcer::new(Recorder::default(), files, settings)))
        };
        let announcer = build();
        let mut controller =
            Controller::new(world.clone(), Arc::clone(&announcer), OnConflict::Withdraw, 7);
        for (what, number, other) in steps {
            {
                let mut look = world.0.lock();
                let peer = format!("192.0.2.{}", 200 + other);
                match what {
                    0 => {
                        let one = json!([router(65001 + number, &peer)]);
                        look.policies = vec![policy("edge", one)];
                    }
                    1 => look.policies = vec![policy("edge",
                        json!([router(65001, &peer), router(65002, "192.0.2.1")]))],
                    2 => look.policies = Vec::new(),
                    3 => look.policies.push(policy("more", json!([router(65009, &peer)]))),
                    4 => look.state.plane.able = number > 0,
                    _ => {
                        let frontends: Vec<String> =
                            (0..=other).map(|n| format!("203.0.113.{n}")).collect();
                        let frontends: Vec<_> = frontends
                            .iter()
                            .map(|address| (address.as_str(), 80, "LoadBalancer"))
                            .collect();
                        let labels = look.state.labels.clone();
                        let able = look.state.plane.able;
                        look.state = state(tables(&[service("web", json!({}), &frontends)]));
                        look.state.labels = labels;
                        look.state.plane.able = able;
                    }
                }
            }
            let result = controller.reconcile();
            let several = world.0.lock().policies.len() > 1;
            prop_assert_eq!(result.is_err(), several);
        }
        let fresh = build();
        let _ = Controller::new(world.clone(), Arc::clone(&fresh), OnConflict::Withdraw, 7)
            .reconcile();
        let routes = announcer.lock().speaker().routes();
        prop_assert_eq!(&routes, &fresh.lock().speaker().routes());
        let look = world.0.lock().clone();
        for prefix in routes.values().flatten() {
            let addr: std::net::IpAddr = prefix.split('/').next().unwrap().parse().unwrap();
            let held = look.state.plane.acknowledged.iter().any(|one| one.prefix.addr == addr);
            prop_assert!(held && look.state.plane.able, "{prefix}");
        }
    }
}
