//! Tests of the lifecycle by scenario. Calls succeed at once unless a scenario sets otherwise.

mod simulation;

use std::collections::BTreeMap;

use super::*;
use crate::told::Stickiness;

const S: Duration = Duration::from_secs(1);

pub(crate) fn settings() -> Lifecycle {
    Lifecycle { on_lost: OnLost::Repair, drain_cap: 330 * S, quiet: 5 * S, hook: true }
}

pub(crate) fn attributes() -> Attributes {
    Attributes {
        deregistration_delay: 300 * S,
        rebalance_on_deregistration: false,
        rebalance_on_unhealthy: false,
        reset_on_deregistration: false,
        reset_on_unhealthy: false,
        stickiness: Stickiness::FiveTuple,
        cross_zone: false,
        tcp_idle: 350 * S,
        reset_on_idle: false,
    }
}

pub(super) fn target(state: TargetState, reason: Option<&str>) -> Target {
    let reason = reason.map(str::to_owned);
    Target { id: "10.0.1.10".into(), state, reason, description: None, zone: None }
}

pub(super) fn error(kind: Failure) -> CallError {
    let (code, message) = ("Some.Code".to_owned(), "it did not work".to_owned());
    CallError { operation: "SomeOperation", kind, code, message }
}

/// The state machine, and a cloud that answers at once with what is set here.
struct Stage {
    life: Life,
    now: Instant,
    begun: Instant,
    target: Option<Target>,
    attributes: Attributes,
    notices: Notices,
    fails: BTreeMap<Call, Failure>,
    /// Calls that are not answered.
    hangs: Vec<Call>,
    /// Effects in the form of `say`, each with the seconds since the start.
    heard: Vec<(u64, String)>,
    activity: (u64, u64),
    traffic: bool,
}

impl Stage {
    fn new(settings: Lifecycle) -> Stage {
        let now = Instant::now();
        Stage {
            life: Life::new(settings, now),
            now,
            begun: now,
            target: None,
            attributes: attributes(),
            notices: Notices::default(),
            fails: BTreeMap::new(),
            hangs: Vec::new(),
            heard: Vec::new(),
            activity: (0, 0),
            traffic: false,
        }
    }

    /// Returns a stage that has been healthy and quiet for a while, with the recorded effects
    /// cleared.
    fn healthy(settings: Lifecycle, attributes: Attributes) -> Stage {
        let mut stage = Stage::new(settings);
        stage.attributes = attributes;
        stage.able();
        stage.target = Some(target(TargetState::Healthy, None));
        stage.activity.1 = 7;
        stage.pass(60);
        assert!(stage.life.ready());
        stage.begun = stage.now;
        stage.heard.clear();
        stage
    }

    fn able(&mut self) {
        self.hear(Event::Able { able: true, reasons: Vec::new() });
    }

    fn hear(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.life.step(self.now, event) {
                let told = match &effect {
                    Effect::Call(call) => format!("{call:?}"),
                    Effect::Probe { pass: true, .. } => "200".to_owned(),
                    Effect::Probe { reasons, .. } => format!("503 {}", reasons.join(", ")),
                    Effect::FlowTimeout(timeout) => format!("timeout {timeout:?}"),
                    Effect::Finding(finding) => finding.name.to_owned(),
                    Effect::Exit(exit) => format!("exit {exit:?}"),
                    Effect::Tunnels(never) | Effect::Keep(never) => match *never {},
                };
                self.heard.push(((self.now - self.begun).as_secs(), told));
                if let Effect::Call(call) = effect
                    && !self.hangs.contains(&call)
                {
                    let answer = self.answer(call);
                    events.insert(0, Event::Told(answer));
                }
            }
        }
    }

    fn answer(&mut self, call: Call) -> Answer {
        let result = match self.fails.get(&call) {
            Some(kind) => Err(error(*kind)),
            None => Ok(()),
        };
        match call {
            Call::Register => {
                if result.is_ok() {
                    self.target = Some(target(TargetState::Initial, None));
                }
                Answer::Registered(result)
            }
            Call::Deregister => {
                if result.is_ok() && self.target.is_some() {
                    self.target = Some(target(TargetState::Draining, None));
                }
                Answer::Deregistered(result)
            }
            Call::AskHealth => Answer::Health(result.map(|()| self.target.clone())),
            Call::AskAttributes => Answer::Attributes(result.map(|()| self.attributes.clone())),
            Call::AskNotices => Answer::Notices(result.map(|()| self.notices)),
            Call::Heartbeat => Answer::Heartbeat(result),
            Call::CompleteHook => Answer::HookCompleted(result),
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += S;
            self.activity.1 += u64::from(self.traffic);
            let (flows, packets) = self.activity;
            self.hear(Event::Activity { flows, packets, strange: 0 });
        }
    }

    /// Returns the recorded effects, without queries.
    fn told(&self) -> Vec<(u64, &str)> {
        let heard = self.heard.iter().map(|(at, told)| (*at, told.as_str()));
        heard.filter(|(_, told)| !told.starts_with("Ask")).collect()
    }

    /// Returns when an effect was first recorded.
    #[track_caller]
    fn first(&self, what: &str) -> u64 {
        let found = self.heard.iter().find(|(_, told)| told.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what}: {:?}", self.told())).0
    }

    fn count(&self, what: &str) -> usize {
        self.heard.iter().filter(|(_, told)| told == what).count()
    }

    /// Asserts that one effect was recorded before another.
    #[track_caller]
    fn before(&self, one: &str, other: &str) {
        let at = |what: &str| self.heard.iter().position(|(_, told)| told.starts_with(what));
        let (one_at, other_at) = (at(one), at(other));
        assert!(one_at.is_some() && one_at < other_at, "{one}, {other}: {:?}", self.told());
    }
}

#[test]
fn not_able_says_503_then_it_looks_registers_says_200_and_is_ready_once_healthy() {
    let mut stage = Stage::new(settings());
    stage.pass(3);
    let starting = "503 starting, not registered with the target group yet";
    assert_eq!(stage.told(), [(1, starting), (1, "timeout 350s")]);
    stage.able();
    stage.pass(20);
    stage.before("AskHealth", "Register");
    stage.before("503 not registered", "Register");
    stage.before("Register", "200");
    assert!(!stage.life.ready(), "the cloud did not say healthy");
    stage.target = Some(target(TargetState::Healthy, None));
    stage.pass(10);
    assert!(stage.life.ready());
    stage.pass(600);
    assert_eq!(stage.count("Register"), 1);
}

#[test]
fn a_restart_while_registered_and_healthy_passes_at_once_and_registers_nothing() {
    let mut stage = Stage::new(settings());
    stage.target = Some(target(TargetState::Healthy, None));
    stage.activity.1 = 1_000_000;
    stage.able();
    assert_eq!(stage.first("200"), 0);
    assert!(stage.life.ready());
    stage.pass(600);
    assert_eq!(stage.count("Register"), 0);
    assert_eq!(stage.count("no-packets"), 0);
}

#[test]
fn a_restart_while_the_cloud_is_out_tells_the_probe_our_own_ability() {
    for (fails, hangs, at) in
        [(Some(Failure::Transient), false, 0), (None, true, 10), (Some(Failure::Denied), false, 0)]
    {
        let mut stage = Stage::new(settings());
        stage.fails.extend(fails.map(|kind| (Call::AskHealth, kind)));
        stage.hangs.extend(hangs.then_some(Call::AskHealth));
        stage.able();
        stage.pass(60);
        assert_eq!(stage.first("200"), at);
        assert_eq!(stage.count("Register"), 0, "nobody knows whether it is needed");
    }
}

#[test]
fn a_registration_that_is_denied_keeps_503_with_the_reason_and_is_asked_again_slowly() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Register, Failure::Denied);
    stage.able();
    stage.pass(650);
    assert_eq!(stage.first("503 not registered: SomeOperation: it did not work"), 0);
    assert_eq!((stage.count("Register"), stage.count("call-denied")), (3, 3));
    assert_eq!((stage.count("200"), stage.count("registration-lost")), (0, 0));
    stage.fails.clear();
    stage.pass(300);
    assert_eq!(stage.count("200"), 1);
}

#[test]
fn known_not_to_be_a_target_says_503_though_the_cloud_was_out_before() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::AskHealth, Failure::Transient);
    stage.able();
    assert_eq!(stage.count("200"), 1);
    stage.fails = [(Call::Register, Failure::Denied)].into();
    stage.pass(60);
    assert_eq!(stage.count("503 not registered: SomeOperation: it did not work"), 1);
    // No machine is a target of an absent group.
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::AskHealth, Failure::Absent);
    stage.able();
    stage.pass(60);
    assert_eq!((stage.count("200"), stage.count("call-refused")), (0, 1));
}

#[test]
fn a_registration_whose_answer_was_lost_is_looked_for_before_it_is_asked_again() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Register, Failure::Transient);
    stage.hangs.push(Call::Register);
    stage.able();
    stage.target = Some(target(TargetState::Initial, None));
    stage.hear(Event::Told(Answer::Registered(Err(error(Failure::Transient)))));
    stage.pass(120);
    assert_eq!((stage.count("Register"), stage.count("200")), (1, 1));
}

#[test]
fn ability_lost_and_found_is_told_at_once_with_its_reasons() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.hear(Event::Able { able: false, reasons: vec!["lcore 1 stands still".into()] });
    stage.pass(5);
    stage.able();
    assert_eq!(stage.told(), [(0, "503 lcore 1 stands still"), (5, "200")]);
}

#[test]
fn a_registration_that_somebody_took_away_is_repaired_or_reported() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.target = None;
    stage.pass(60);
    assert_eq!((stage.count("registration-lost"), stage.count("Register")), (1, 1));
    let report = Lifecycle { on_lost: OnLost::Report, ..settings() };
    let mut stage = Stage::healthy(report, attributes());
    stage.target = Some(target(TargetState::Draining, None));
    stage.pass(60);
    stage.target = Some(target(TargetState::Unused, Some("Target.NotRegistered")));
    stage.pass(600);
    assert_eq!((stage.count("registration-lost"), stage.count("Register")), (1, 0));
}

#[test]
fn healthy_without_a_packet_for_a_minute_is_a_finding_once() {
    let mut stage = Stage::new(settings());
    stage.target = Some(target(TargetState::Healthy, None));
    stage.able();
    stage.pass(300);
    assert_eq!((stage.first("no-packets"), stage.count("no-packets")), (60, 1));
}

#[test]
fn a_cloud_that_thinks_otherwise_of_our_health_is_a_finding_once() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.target = Some(target(TargetState::Unhealthy, Some("Target.FailedHealthChecks")));
    stage.pass(50);
    assert!(!stage.life.differs(), "not for a minute yet");
    stage.pass(250);
    assert!(stage.life.differs());
    assert_eq!(stage.count("health-differs"), 1);
    assert_eq!(stage.count("Register"), 0, "it is a target, though an unhealthy one");
    stage.target = Some(target(TargetState::Healthy, None));
    stage.pass(30);
    assert!(!stage.life.differs());
}

#[test]
fn the_listeners_idle_timeout_becomes_the_flow_timeout_whenever_it_changes() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.attributes.tcp_idle = 900 * S;
    stage.pass(900);
    assert_eq!(stage.count("timeout 900s"), 1);
}

#[test]
fn sigterm_says_503_deregisters_and_ends_once_nothing_is_active() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.traffic = true;
    stage.pass(3);
    stage.hear(Event::Terminate);
    let leaving = "503 leaving: SIGTERM came";
    assert_eq!(stage.told(), [(3, leaving), (3, "Deregister")]);
    stage.pass(100);
    assert_eq!(stage.told().len(), 2, "packets come");
    stage.traffic = false;
    stage.activity.0 = 1;
    stage.pass(50);
    stage.activity.0 = 0;
    stage.pass(10);
    assert_eq!(stage.first("exit Drained"), 153 + 5);
    assert_eq!(stage.life.step(stage.now, Event::Tick), []);
}

#[test]
fn where_unhealthy_flows_are_moved_away_it_deregisters_first_and_says_503_once_draining() {
    let moving = Attributes { rebalance_on_unhealthy: true, ..attributes() };
    let mut stage = Stage::healthy(settings(), moving);
    stage.traffic = true;
    stage.hangs.push(Call::Deregister);
    stage.hear(Event::Terminate);
    stage.pass(7);
    assert_eq!(stage.told(), [(0, "Deregister")]);
    stage.hear(Event::Told(Answer::Deregistered(Ok(()))));
    stage.pass(4);
    assert_eq!(stage.told().len(), 1, "the cloud says healthy");
    stage.target = Some(target(TargetState::Draining, None));
    stage.pass(2);
    assert_eq!(stage.told()[1..], [(13, "503 leaving: SIGTERM came")]);
    // If deregistration is denied, only the probe keeps new flows away.
    let moving = Attributes { rebalance_on_unhealthy: true, ..attributes() };
    let mut stage = Stage::healthy(settings(), moving);
    stage.fails.insert(Call::Deregister, Failure::Denied);
    stage.hear(Event::Terminate);
    let told = [(0, "Deregister"), (0, "call-denied"), (0, "503 leaving: SIGTERM came")];
    assert_eq!(stage.told(), told);
}

#[test]
fn draining_is_polled_every_two_seconds_and_each_state_that_gets_no_new_flows_will_do() {
    for state in [TargetState::Draining, TargetState::Unused, TargetState::UnhealthyDraining] {
        let mut stage = Stage::healthy(settings(), attributes());
        stage.hangs.push(Call::Deregister);
        stage.hear(Event::Terminate);
        stage.hear(Event::Told(Answer::Deregistered(Ok(()))));
        stage.pass(9);
        assert_eq!(stage.count("AskHealth"), 2 + 4, "{state:?}");
        stage.target = Some(target(state, None));
        stage.pass(20);
        assert_eq!(stage.first("exit Drained"), 10 + 5, "{state:?}");
    }
}

#[test]
fn a_target_that_never_drains_is_waited_for_half_a_minute_and_told() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.hangs.push(Call::Deregister);
    stage.hear(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.first("drain-unconfirmed"), stage.first("exit Drained")), (30, 35));
}

#[test]
fn it_stays_until_the_deregistration_delay_is_over_or_the_cap() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.hear(Event::Terminate);
    stage.pass(400);
    assert_eq!(stage.first("exit DelayOver"), 300);
    let long = Attributes { deregistration_delay: 3600 * S, ..attributes() };
    let mut stage = Stage::healthy(settings(), long);
    stage.activity.0 = 9;
    stage.hear(Event::Terminate);
    stage.pass(400);
    assert_eq!(stage.first("exit CapOver"), 330);
}

#[test]
fn an_outage_of_the_cloud_never_holds_it_past_the_cap() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut stage = Stage::healthy(settings(), attributes());
        stage.fails.extend([(Call::Deregister, outage), (Call::AskHealth, outage)]);
        stage.traffic = true;
        stage.hear(Event::Terminate);
        stage.pass(400);
        assert_eq!(stage.first("exit CapOver"), 330);
        assert!(stage.count("Deregister") >= 2);
    }
}

#[test]
fn the_second_sigterm_ends_at_once() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.hear(Event::Terminate);
    stage.pass(2);
    stage.hear(Event::Terminate);
    assert_eq!(stage.first("exit Forced"), 2);
}

#[test]
fn a_registration_that_ends_after_the_deregistration_is_taken_back() {
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::Register);
    stage.able();
    stage.hear(Event::Terminate);
    stage.pass(8);
    assert_eq!((stage.count("Register"), stage.count("Deregister")), (1, 1));
    stage.target = Some(target(TargetState::Initial, None));
    stage.hear(Event::Told(Answer::Registered(Ok(()))));
    stage.pass(60);
    assert_eq!(stage.count("Deregister"), 2);
    assert_eq!(stage.target.map(|target| target.state), Some(TargetState::Draining));
}

#[test]
fn a_registration_that_ends_while_it_deregisters_is_taken_back_once_more() {
    let mut stage = Stage::new(settings());
    stage.hangs.extend([Call::Register, Call::Deregister]);
    stage.able();
    stage.hear(Event::Terminate);
    stage.target = Some(target(TargetState::Initial, None));
    stage.hear(Event::Told(Answer::Registered(Ok(()))));
    stage.hangs.clear();
    stage.hear(Event::Told(Answer::Deregistered(Ok(()))));
    stage.pass(60);
    assert_eq!(stage.count("Deregister"), 2, "nobody knows which was first");
    assert_eq!(stage.target.map(|target| target.state), Some(TargetState::Draining));
}

#[test]
fn flows_that_were_told_of_are_active_until_told_otherwise() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 1;
    stage.pass(1);
    stage.hear(Event::Terminate);
    for _ in 0..60 {
        stage.now += S;
        stage.hear(Event::Tick);
    }
    assert_eq!(stage.heard.iter().filter(|(_, told)| told.starts_with("exit")).count(), 0);
}

#[test]
fn auto_scalings_hook_drains_with_heartbeats_and_is_told_at_the_end() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.notices.terminating = true;
    stage.pass(100);
    assert_eq!(stage.count("503 leaving: Auto Scaling terminates this instance"), 1);
    assert!(stage.count("Heartbeat") >= 4);
    stage.activity.0 = 0;
    stage.pass(10);
    stage.before("CompleteHook", "exit Drained");
    // A hook that does not answer does not delay the exit past the deadline.
    let mut stage = Stage::healthy(settings(), attributes());
    stage.hangs.push(Call::CompleteHook);
    stage.attributes.deregistration_delay = 3600 * S;
    stage.pass(300);
    stage.activity.0 = 9;
    stage.notices.terminating = true;
    stage.begun = stage.now;
    stage.pass(400);
    let (leaves, completes) = (stage.first("503"), stage.first("CompleteHook"));
    assert_eq!((completes - leaves, stage.first("exit CapOver") - leaves), (325, 330));
}

#[test]
fn a_start_into_a_machine_that_is_being_terminated_registers_nothing() {
    let mut stage = Stage::new(settings());
    stage.notices.terminating = true;
    stage.able();
    stage.pass(60);
    assert_eq!((stage.count("Register"), stage.count("200")), (0, 0));
    stage.before("CompleteHook", "exit Drained");
    // Notices are queried before registration, however slow the answer is.
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::AskNotices);
    stage.able();
    stage.pass(30);
    assert_eq!(stage.count("Register"), 0);
    stage.hear(Event::Told(Answer::Notices(Err(error(Failure::Absent)))));
    assert_eq!((stage.count("Register"), stage.count("call-refused")), (1, 0));
}

#[test]
fn a_spot_notice_is_the_same_drain_bounded_by_its_time() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.notices.spot = Some(stage.now + 120 * S);
    stage.pass(200);
    assert_eq!(stage.count("503 leaving: EC2 takes this spot instance back"), 1);
    assert_eq!(stage.first("exit CapOver"), 115);
    assert_eq!(stage.count("CompleteHook"), 0);
}

#[test]
fn without_hook_nobody_asks_for_notices() {
    let mut stage = Stage::new(Lifecycle { hook: false, ..settings() });
    stage.able();
    stage.pass(60);
    assert_eq!((stage.count("AskNotices"), stage.count("Register")), (0, 1));
}
