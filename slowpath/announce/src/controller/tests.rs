//! Tests of the reconciliation loop: bursts, failures, conflicts, shutdown.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use patience::{check, eventually};
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;

use super::*;
use crate::announcer::{self, Announcer};
use crate::apply::{Defect, DefectKind};
use crate::fixture::{Recorder, pairs, policy, router, selecting, service, state, tables};
use crate::secrets::Files;

/// A source of state that a test changes while the controller runs.
#[derive(Clone)]
struct Shared(Arc<Mutex<ObservedState>>);

impl StateSource for Shared {
    fn observe(&mut self) -> ObservedState {
        self.0.lock().clone()
    }
}

fn shared(policies: Vec<Policy>) -> Shared {
    let state = state(tables(&[service("web", json!({}), &[("203.0.113.1", 80, "LoadBalancer")])]));
    Shared(Arc::new(Mutex::new(ObservedState { policies, annotations: None, state })))
}

fn edge() -> Policy {
    policy("edge", json!([router(65001, "192.0.2.254")]))
}

/// A fake [`PolicyApplier`] that records calls and asserts that they are not concurrent.
#[derive(Clone, Default)]
struct FakeApplier(Arc<Calls>);

#[derive(Default)]
struct Calls {
    /// Name of the policy of each `configure_peers`; `None` for a call without a policy.
    calls: Mutex<Vec<Option<String>>>,
    in_call: AtomicBool,
    /// Number of following calls that fail.
    failing: AtomicUsize,
    withdrawals: AtomicUsize,
    /// Withdrawals are never reported as sent.
    never_sent: AtomicBool,
    ended: Mutex<Option<ShutdownMode>>,
}

impl PolicyApplier for FakeApplier {
    fn configure_peers(
        &mut self,
        policy: Option<&Policy>,
        _: &ControlPlaneState,
    ) -> Result<(), PolicyDefects> {
        assert!(!self.0.in_call.swap(true, Ordering::SeqCst), "two rounds run concurrently");
        // Long enough for a concurrent call to be detected.
        std::thread::sleep(Duration::from_millis(1));
        self.0.calls.lock().push(policy.map(|policy| policy.name.to_string()));
        self.0.in_call.store(false, Ordering::SeqCst);
        let failing = &self.0.failing;
        let fails =
            failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match fails {
            Ok(_) => {
                Err(PolicyDefects(vec![Defect { local_asn: 65001, kind: DefectKind::NoRouterId }]))
            }
            Err(_) => Ok(()),
        }
    }

    fn withdraw(&mut self) -> bool {
        self.0.withdrawals.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn is_withdrawn(&self) -> bool {
        !self.0.never_sent.load(Ordering::SeqCst)
    }

    fn end(&mut self, mode: ShutdownMode) {
        let before = self.0.ended.lock().replace(mode);
        assert_eq!(before, None, "ended twice");
    }
}

impl FakeApplier {
    fn calls(&self) -> Vec<Option<String>> {
        self.0.calls.lock().clone()
    }
}

/// Returns expected calls by policy name; an empty name stands for a call without a policy.
fn names(all: &[&str]) -> Vec<Option<String>> {
    all.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect()
}

fn controller(
    source: &Shared,
    conflict_policy: ConflictPolicy,
) -> (Controller<Shared, FakeApplier>, FakeApplier) {
    let applier = FakeApplier::default();
    (Controller::new(source.clone(), applier.clone(), conflict_policy, 1), applier)
}

#[test]
fn policy_is_applied_and_withdrawn_once_when_deselected() {
    let source = shared(vec![]);
    let (mut controller, applier) = controller(&source, ConflictPolicy::Withdraw);
    // No policy was applied before: there is nothing to withdraw.
    controller.reconcile().unwrap();
    assert_eq!(applier.calls(), names(&[]));
    source.0.lock().policies = vec![edge()];
    controller.reconcile().unwrap();
    controller.reconcile().unwrap();
    source.0.lock().policies =
        vec![selecting("b", json!({"rack": "b"}), json!([router(1, "192.0.2.1")]))];
    controller.reconcile().unwrap();
    controller.reconcile().unwrap();
    assert_eq!(applier.calls(), names(&["edge", "edge", ""]));
    // With other labels, the other policy selects the appliance.
    source.0.lock().state.labels = pairs(&[("rack", "b")]);
    controller.reconcile().unwrap();
    assert_eq!(applier.calls(), names(&["edge", "edge", "", "b"]));
    assert_eq!(controller.counts().lock().runs, 6);
}

#[test]
fn multiple_policies_withdraw_or_keep_routes_as_configured() {
    let both = || vec![edge(), policy("other", json!([router(65002, "192.0.2.1")]))];
    for (setting, expected) in [
        (ConflictPolicy::Withdraw, ["edge", "", "other"].as_slice()),
        // A kept policy still follows the state.
        (ConflictPolicy::Keep, &["edge", "edge", "edge", "other"]),
    ] {
        let source = shared(vec![edge()]);
        let (mut controller, applier) = controller(&source, setting);
        controller.reconcile().unwrap();
        source.0.lock().policies = both();
        for _ in 0..2 {
            let error = controller.reconcile().unwrap_err();
            let ReconcileError::MultiplePolicies(several) = error else { panic!("{error}") };
            assert_eq!(
                several.0.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
                ["edge", "other"]
            );
        }
        source.0.lock().policies.remove(0);
        controller.reconcile().unwrap();
        assert_eq!(applier.calls(), names(expected), "{setting:?}");
        assert_eq!(controller.counts().lock().errors, BTreeMap::from([(0, 2)]));
    }
    // Without a previous policy there is nothing to keep.
    let (mut controller, applier) = controller(&shared(both()), ConflictPolicy::Keep);
    controller.reconcile().unwrap_err();
    assert_eq!(applier.calls(), names(&[]));
}

#[test]
fn policy_conflict_keeps_no_routes_of_a_stopped_data_plane() {
    let source = shared(vec![edge()]);
    let files = Arc::new(Files::default());
    let announcer = Announcer::new(Recorder::default(), files, announcer::Settings::default());
    let announcer = Arc::new(Mutex::new(announcer));
    let mut controller =
        Controller::new(source.clone(), Arc::clone(&announcer), ConflictPolicy::Keep, 1);
    controller.reconcile().unwrap();
    let routes = || announcer.lock().speaker().routes().into_values().flatten().count();
    source.0.lock().policies.push(policy("other", json!([router(65002, "192.0.2.1")])));
    controller.reconcile().unwrap_err();
    assert_eq!(routes(), 1);
    source.0.lock().state.plane.forwarding = false;
    controller.reconcile().unwrap_err();
    assert_eq!(routes(), 0);
}

#[test]
fn invalid_annotation_neither_starts_nor_stops_a_policy() {
    let source = shared(vec![edge()]);
    let (mut controller, applier) = controller(&source, ConflictPolicy::Withdraw);
    let bad = pairs(&[("weir.dev/bgp-virtual-router.65001", "router-id=x")]);
    source.0.lock().annotations = bad.clone();
    let error = controller.reconcile().unwrap_err();
    assert!(matches!(error, ReconcileError::Annotation(_)), "{error}");
    assert_eq!(applier.calls(), names(&[]));
    source.0.lock().annotations = None;
    controller.reconcile().unwrap();
    source.0.lock().annotations = bad;
    controller.reconcile().unwrap_err();
    assert_eq!(applier.calls(), names(&["edge", "edge"]));
}

#[test]
fn failures_are_counted_by_router() {
    let (mut controller, applier) = controller(&shared(vec![edge()]), ConflictPolicy::Withdraw);
    applier.0.failing.store(2, Ordering::SeqCst);
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
fn retries_back_off_and_end() {
    for seed in 0..200 {
        let (mut retries, now) = (Retries::new(seed), Instant::now());
        let (failed, succeeded) = (false, true);
        // After the failed round of a signal, five retries follow, after 500 ms, 1 s and so on,
        // each with up to 50 % jitter.
        retries.record(now, failed, Trigger::Signal);
        for n in 0..5 {
            let wait = retries.due.unwrap() - now;
            let min = RETRY * 2_u32.pow(n);
            assert!(wait >= min && wait < min * 3 / 2, "{wait:?}");
            retries.record(now, failed, Trigger::Timer);
        }
        assert_eq!(retries.due, None);
        // The next signal starts over, and a successful round is not retried.
        retries.record(now, failed, Trigger::Signal);
        assert!(retries.due.is_some());
        retries.record(now, succeeded, Trigger::Timer);
        assert_eq!(retries.due, None);
    }
}

/// Runs a controller on a thread until it ends.
fn run(
    controller: Controller<Shared, FakeApplier>,
    signal: &Signal,
    shutdown: impl Future<Output = ShutdownMode> + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let signal = signal.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(controller.run(signal, shutdown));
    })
}

fn until(applier: &FakeApplier, what: &str, condition: impl Fn(&[Option<String>]) -> bool) {
    eventually(what, || {
        let calls = applier.calls();
        check(condition(&calls), || format!("{calls:?}"))
    });
}

#[test]
fn signal_burst_causes_few_rounds_and_none_concurrently() {
    let source = shared(vec![edge()]);
    let (controller, applier) = controller(&source, ConflictPolicy::Withdraw);
    let signal = Signal::default();
    let (stop, stopped) = oneshot::channel();
    let running =
        run(controller, &signal, async { stopped.await.unwrap_or(ShutdownMode::Restart) });
    until(&applier, "the first round", |calls| calls == names(&["edge"]));
    let before = applier.calls().len();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..2_500).for_each(|_| signal.event()));
        }
    });
    source.0.lock().policies = vec![policy("last", json!([router(65001, "192.0.2.254")]))];
    signal.event();
    until(&applier, "the last policy", |calls| calls.last() == Some(&Some("last".to_owned())));
    // A round takes at least 1 ms; all signals during a round trigger one further round.
    let rounds = applier.calls().len() - before;
    assert!(rounds < 5_000, "{rounds} rounds for a burst of 10,000");
    stop.send(ShutdownMode::Restart).unwrap();
    running.join().unwrap();
    assert_eq!(*applier.0.ended.lock(), Some(ShutdownMode::Restart));
    assert_eq!(applier.0.withdrawals.load(Ordering::SeqCst), 0, "a restart withdraws nothing");
}

#[test]
fn signals_before_a_round_are_coalesced() {
    let signal = Signal::default();
    (0..1_000).for_each(|_| signal.event());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        signal.wait().await;
        let second = tokio::time::timeout(Duration::from_millis(50), signal.wait()).await;
        assert!(second.is_err(), "a second round started");
    });
}

#[test]
fn failed_round_is_retried_without_a_signal() {
    let (controller, applier) = controller(&shared(vec![edge()]), ConflictPolicy::Withdraw);
    applier.0.failing.store(1, Ordering::SeqCst);
    let (stop, stopped) = oneshot::channel();
    let signal = Signal::default();
    let running =
        run(controller, &signal, async { stopped.await.unwrap_or(ShutdownMode::Restart) });
    until(&applier, "the second round", |calls| calls.len() == 2);
    stop.send(ShutdownMode::Restart).unwrap();
    running.join().unwrap();
}

#[test]
fn shutdown_withdraws_waits_and_disconnects() {
    for never_sent in [false, true] {
        let (controller, applier) = controller(&shared(vec![edge()]), ConflictPolicy::Withdraw);
        applier.0.never_sent.store(never_sent, Ordering::SeqCst);
        // A peer that reads nothing delays the shutdown until the timeout and no longer.
        let timeout = Duration::from_millis(if never_sent { 100 } else { 3_600_000 });
        let mode = ShutdownMode::Stop { timeout, settle: Duration::from_millis(10) };
        let running = run(controller, &Signal::default(), std::future::ready(mode.clone()));
        running.join().unwrap();
        assert_eq!(*applier.0.ended.lock(), Some(mode));
        assert_eq!(applier.0.withdrawals.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn shutdown_waits_for_withdrawals_and_settling() {
    let mut applier = FakeApplier::default();
    applier.0.never_sent.store(true, Ordering::SeqCst);
    let now = Instant::now();
    let (timeout, settle) = (Duration::from_secs(60), Duration::from_secs(2));
    let mut shutdown = Shutdown::new(ShutdownMode::Stop { timeout, settle });
    assert_eq!(shutdown.step(now, &mut applier), Step::Wait(now + timeout));
    assert_eq!(shutdown.step(now + timeout / 2, &mut applier), Step::Wait(now + timeout));
    assert_eq!(*applier.0.ended.lock(), None);
    // Withdrawals were sent before the deadline; routers get time to move traffic.
    applier.0.never_sent.store(false, Ordering::SeqCst);
    let settled = now + timeout / 2 + settle;
    assert_eq!(shutdown.step(now + timeout / 2, &mut applier), Step::Wait(settled));
    assert_eq!(*applier.0.ended.lock(), None);
    assert_eq!(shutdown.step(settled, &mut applier), Step::Done);
    assert_eq!(shutdown.step(now + timeout, &mut applier), Step::Done);
    assert_eq!(applier.0.withdrawals.load(Ordering::SeqCst), 1);
    assert_eq!(ShutdownMode::Restart.stop_reason(), bgp::peer::Stop::Restart);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any sequence of changes, the routes of the last round equal those of a fresh
    /// controller with the same state, and all announced addresses are in force.
    #[test]
    fn any_history_converges_to_the_desired_routes(
        steps in proptest::collection::vec((0_u8..6, 0_u32..3, 0_u8..4), 1..20),
    ) {
        let source = shared(vec![]);
        let build = || {
            let files = Arc::new(Files::default());
            let settings = announcer::Settings::default();
            Arc::new(Mutex::new(Announcer::new(Recorder::default(), files, settings)))
        };
        let announcer = build();
        let mut controller =
            Controller::new(source.clone(), Arc::clone(&announcer), ConflictPolicy::Withdraw, 7);
        for (change, number, other) in steps {
            {
                let mut observed = source.0.lock();
                let peer = format!("192.0.2.{}", 200 + other);
                match change {
                    0 => {
                        let one = json!([router(65001 + number, &peer)]);
                        observed.policies = vec![policy("edge", one)];
                    }
                    1 => observed.policies = vec![policy("edge",
                        json!([router(65001, &peer), router(65002, "192.0.2.1")]))],
                    2 => observed.policies = Vec::new(),
                    3 => observed.policies.push(policy("more", json!([router(65009, &peer)]))),
                    4 => observed.state.plane.forwarding = number > 0,
                    _ => {
                        let frontends: Vec<String> =
                            (0..=other).map(|n| format!("203.0.113.{n}")).collect();
                        let frontends: Vec<_> = frontends
                            .iter()
                            .map(|address| (address.as_str(), 80, "LoadBalancer"))
                            .collect();
                        let labels = observed.state.labels.clone();
                        let forwarding = observed.state.plane.forwarding;
                        observed.state = state(tables(&[service("web", json!({}), &frontends)]));
                        observed.state.labels = labels;
                        observed.state.plane.forwarding = forwarding;
                    }
                }
            }
            let result = controller.reconcile();
            let several = source.0.lock().policies.len() > 1;
            prop_assert_eq!(result.is_err(), several);
        }
        let fresh = build();
        let _ = Controller::new(source.clone(), Arc::clone(&fresh), ConflictPolicy::Withdraw, 7)
            .reconcile();
        let routes = announcer.lock().speaker().routes();
        prop_assert_eq!(&routes, &fresh.lock().speaker().routes());
        let observed = source.0.lock().clone();
        for prefix in routes.values().flatten() {
            let addr: std::net::IpAddr = prefix.split('/').next().unwrap().parse().unwrap();
            let mut acknowledged = observed.state.plane.acknowledged.iter();
            let in_force = acknowledged.any(|one| one.prefix.addr == addr);
            prop_assert!(in_force && observed.state.plane.forwarding, "{prefix}");
        }
    }
}
