//! Tests of the lifecycle by scenario. Calls succeed at once unless a scenario sets otherwise.

mod simulation;

use std::collections::BTreeMap;

use super::*;
use crate::types::Stickiness;

const S: Duration = Duration::from_secs(1);

pub(crate) fn settings() -> AwsLifecycleSettings {
    AwsLifecycleSettings { on_lost: OnLost::Repair, drain_cap: 330 * S, idle: 5 * S, hook: true }
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

/// The state machine, and a cloud that answers each call at once from these fields.
struct Harness {
    registration: Registration,
    now: Instant,
    started: Instant,
    target: Option<Target>,
    attributes: Attributes,
    notices: Notices,
    fails: BTreeMap<Call, Failure>,
    /// Calls that are not answered.
    hangs: Vec<Call>,
    /// Effects as strings, each with the seconds since the start.
    recorded: Vec<(u64, String)>,
    /// Numbers of flows and of packets.
    activity: (u64, u64),
    /// True if a packet arrives every second.
    traffic: bool,
}

impl Harness {
    fn new(settings: AwsLifecycleSettings) -> Harness {
        let now = Instant::now();
        Harness {
            registration: Registration::new(settings, now),
            now,
            started: now,
            target: None,
            attributes: attributes(),
            notices: Notices::default(),
            fails: BTreeMap::new(),
            hangs: Vec::new(),
            recorded: Vec::new(),
            activity: (0, 0),
            traffic: false,
        }
    }

    /// Returns a harness whose target has been healthy and idle for a minute, with the recorded
    /// effects cleared.
    fn healthy(settings: AwsLifecycleSettings, attributes: Attributes) -> Harness {
        let mut harness = Harness::new(settings);
        harness.attributes = attributes;
        harness.able();
        harness.target = Some(target(TargetState::Healthy, None));
        harness.activity.1 = 7;
        harness.pass(60);
        assert!(harness.registration.ready());
        harness.started = harness.now;
        harness.recorded.clear();
        harness
    }

    fn able(&mut self) {
        self.handle_event(Event::Able { able: true, reasons: Vec::new() });
    }

    fn handle_event(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.registration.step(self.now, event) {
                let text = match &effect {
                    Effect::Call(call) => format!("{call:?}"),
                    Effect::Probe { pass: true, .. } => "200".to_owned(),
                    Effect::Probe { reasons, .. } => format!("503 {}", reasons.join(", ")),
                    Effect::FlowTimeout(timeout) => format!("timeout {timeout:?}"),
                    Effect::Finding(finding) => finding.name.to_owned(),
                    Effect::Exit(exit) => format!("exit {exit:?}"),
                    Effect::Tunnels(never) | Effect::Persist(never) => match *never {},
                };
                self.recorded.push(((self.now - self.started).as_secs(), text));
                if let Effect::Call(call) = effect
                    && !self.hangs.contains(&call)
                {
                    let answer = self.answer(call);
                    events.insert(0, Event::Answered(answer));
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
            Call::ReadHealth => Answer::Health(result.map(|()| self.target.clone())),
            Call::ReadAttributes => Answer::Attributes(result.map(|()| self.attributes.clone())),
            Call::ReadNotices => Answer::Notices(result.map(|()| self.notices)),
            Call::Heartbeat => Answer::Heartbeat(result),
            Call::CompleteHook => Answer::HookCompleted(result),
        }
    }

    /// Advances time, with an activity event every second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += S;
            self.activity.1 += u64::from(self.traffic);
            let (flows, packets) = self.activity;
            self.handle_event(Event::Activity { flows, packets, unknown_tunnel: 0 });
        }
    }

    /// Returns the recorded effects, without queries.
    fn effects(&self) -> Vec<(u64, &str)> {
        let recorded = self.recorded.iter().map(|(at, effect)| (*at, effect.as_str()));
        recorded.filter(|(_, effect)| !effect.starts_with("Read")).collect()
    }

    /// Returns when an effect was first recorded.
    #[track_caller]
    fn first(&self, what: &str) -> u64 {
        let found = self.recorded.iter().find(|(_, effect)| effect.starts_with(what));
        found.unwrap_or_else(|| panic!("no {what}: {:?}", self.effects())).0
    }

    fn count(&self, what: &str) -> usize {
        self.recorded.iter().filter(|(_, effect)| effect == what).count()
    }

    /// Asserts that one effect was recorded before another.
    #[track_caller]
    fn assert_before(&self, one: &str, other: &str) {
        let at = |what: &str| self.recorded.iter().position(|(_, effect)| effect.starts_with(what));
        let (one_at, other_at) = (at(one), at(other));
        assert!(one_at.is_some() && one_at < other_at, "{one}, {other}: {:?}", self.effects());
    }
}

#[test]
fn probes_pass_once_the_able_appliance_is_registered_and_ready_follows_the_reported_health() {
    let mut harness = Harness::new(settings());
    harness.pass(3);
    let starting = "503 starting, not registered with the target group yet";
    assert_eq!(harness.effects(), [(1, starting), (1, "timeout 350s")]);
    harness.able();
    harness.pass(20);
    harness.assert_before("ReadHealth", "Register");
    harness.assert_before("503 not registered", "Register");
    harness.assert_before("Register", "200");
    assert!(!harness.registration.ready(), "not reported healthy");
    harness.target = Some(target(TargetState::Healthy, None));
    harness.pass(10);
    assert!(harness.registration.ready());
    harness.pass(600);
    assert_eq!(harness.count("Register"), 1);
}

#[test]
fn a_restart_of_a_healthy_target_passes_probes_at_once_and_does_not_register() {
    let mut harness = Harness::new(settings());
    harness.target = Some(target(TargetState::Healthy, None));
    harness.activity.1 = 1_000_000;
    harness.able();
    assert_eq!(harness.first("200"), 0);
    assert!(harness.registration.ready());
    harness.pass(600);
    assert_eq!(harness.count("Register"), 0);
    assert_eq!(harness.count("no-packets"), 0);
}

#[test]
fn after_a_restart_without_usable_answers_only_ability_decides_the_probe() {
    for (fails, hangs, at) in
        [(Some(Failure::Transient), false, 0), (None, true, 10), (Some(Failure::Denied), false, 0)]
    {
        let mut harness = Harness::new(settings());
        harness.fails.extend(fails.map(|kind| (Call::ReadHealth, kind)));
        harness.hangs.extend(hangs.then_some(Call::ReadHealth));
        harness.able();
        harness.pass(60);
        assert_eq!(harness.first("200"), at);
        assert_eq!(harness.count("Register"), 0, "the target may be registered");
    }
}

#[test]
fn a_denied_registration_fails_probes_with_the_reason_and_is_retried_slowly() {
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::Register, Failure::Denied);
    harness.able();
    harness.pass(650);
    assert_eq!(harness.first("503 not registered: SomeOperation: it did not work"), 0);
    assert_eq!((harness.count("Register"), harness.count("call-denied")), (3, 3));
    assert_eq!((harness.count("200"), harness.count("registration-lost")), (0, 0));
    harness.fails.clear();
    harness.pass(300);
    assert_eq!(harness.count("200"), 1);
}

#[test]
fn probes_fail_once_the_target_is_known_to_be_unregistered() {
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::ReadHealth, Failure::Transient);
    harness.able();
    assert_eq!(harness.count("200"), 1);
    harness.fails = [(Call::Register, Failure::Denied)].into();
    harness.pass(60);
    assert_eq!(harness.count("503 not registered: SomeOperation: it did not work"), 1);
    // If the group does not exist, the machine cannot be its target.
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::ReadHealth, Failure::Absent);
    harness.able();
    harness.pass(60);
    assert_eq!((harness.count("200"), harness.count("call-rejected")), (0, 1));
}

#[test]
fn a_registration_without_an_answer_is_checked_before_it_is_repeated() {
    let mut harness = Harness::new(settings());
    harness.fails.insert(Call::Register, Failure::Transient);
    harness.hangs.push(Call::Register);
    harness.able();
    harness.target = Some(target(TargetState::Initial, None));
    harness.handle_event(Event::Answered(Answer::Registered(Err(error(Failure::Transient)))));
    harness.pass(120);
    assert_eq!((harness.count("Register"), harness.count("200")), (1, 1));
}

#[test]
fn a_change_of_ability_reaches_the_probe_at_once_with_its_reasons() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.handle_event(Event::Able { able: false, reasons: vec!["lcore 1 is stalled".into()] });
    harness.pass(5);
    harness.able();
    assert_eq!(harness.effects(), [(0, "503 lcore 1 is stalled"), (5, "200")]);
}

#[test]
fn a_lost_registration_is_repaired_or_reported() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.target = None;
    harness.pass(60);
    assert_eq!((harness.count("registration-lost"), harness.count("Register")), (1, 1));
    let report = AwsLifecycleSettings { on_lost: OnLost::Report, ..settings() };
    let mut harness = Harness::healthy(report, attributes());
    harness.target = Some(target(TargetState::Draining, None));
    harness.pass(60);
    harness.target = Some(target(TargetState::Unused, Some("Target.NotRegistered")));
    harness.pass(600);
    assert_eq!((harness.count("registration-lost"), harness.count("Register")), (1, 0));
}

#[test]
fn a_healthy_target_without_packets_for_a_minute_is_reported_once() {
    let mut harness = Harness::new(settings());
    harness.target = Some(target(TargetState::Healthy, None));
    harness.able();
    harness.pass(300);
    assert_eq!((harness.first("no-packets"), harness.count("no-packets")), (60, 1));
}

#[test]
fn a_differing_health_state_at_aws_is_reported_once() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.target = Some(target(TargetState::Unhealthy, Some("Target.FailedHealthChecks")));
    harness.pass(50);
    assert!(!harness.registration.differs(), "not for a minute yet");
    harness.pass(250);
    assert!(harness.registration.differs());
    assert_eq!(harness.count("health-differs"), 1);
    assert_eq!(harness.count("Register"), 0, "the target is registered, though unhealthy");
    harness.target = Some(target(TargetState::Healthy, None));
    harness.pass(30);
    assert!(!harness.registration.differs());
}

#[test]
fn the_listeners_idle_timeout_is_applied_whenever_it_changes() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.attributes.tcp_idle = 900 * S;
    harness.pass(900);
    assert_eq!(harness.count("timeout 900s"), 1);
}

#[test]
fn sigterm_fails_probes_deregisters_and_exits_once_no_flow_is_active() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.traffic = true;
    harness.pass(3);
    harness.handle_event(Event::Terminate);
    let leaving = "503 leaving: SIGTERM received";
    assert_eq!(harness.effects(), [(3, leaving), (3, "Deregister")]);
    harness.pass(100);
    assert_eq!(harness.effects().len(), 2, "packets arrive");
    harness.traffic = false;
    harness.activity.0 = 1;
    harness.pass(50);
    harness.activity.0 = 0;
    harness.pass(10);
    assert_eq!(harness.first("exit Drained"), 153 + 5);
    assert_eq!(harness.registration.step(harness.now, Event::Tick), []);
}

#[test]
fn with_rebalance_the_target_is_deregistered_first_and_probes_fail_once_draining() {
    let moving = Attributes { rebalance_on_unhealthy: true, ..attributes() };
    let mut harness = Harness::healthy(settings(), moving);
    harness.traffic = true;
    harness.hangs.push(Call::Deregister);
    harness.handle_event(Event::Terminate);
    harness.pass(7);
    assert_eq!(harness.effects(), [(0, "Deregister")]);
    harness.handle_event(Event::Answered(Answer::Deregistered(Ok(()))));
    harness.pass(4);
    assert_eq!(harness.effects().len(), 1, "reported healthy");
    harness.target = Some(target(TargetState::Draining, None));
    harness.pass(2);
    assert_eq!(harness.effects()[1..], [(13, "503 leaving: SIGTERM received")]);
    // If deregistration is denied, only the probe keeps new flows away.
    let moving = Attributes { rebalance_on_unhealthy: true, ..attributes() };
    let mut harness = Harness::healthy(settings(), moving);
    harness.fails.insert(Call::Deregister, Failure::Denied);
    harness.handle_event(Event::Terminate);
    let expected = [(0, "Deregister"), (0, "call-denied"), (0, "503 leaving: SIGTERM received")];
    assert_eq!(harness.effects(), expected);
}

#[test]
fn draining_is_polled_every_two_seconds_until_a_state_without_new_flows() {
    for state in [TargetState::Draining, TargetState::Unused, TargetState::UnhealthyDraining] {
        let mut harness = Harness::healthy(settings(), attributes());
        harness.hangs.push(Call::Deregister);
        harness.handle_event(Event::Terminate);
        harness.handle_event(Event::Answered(Answer::Deregistered(Ok(()))));
        harness.pass(9);
        assert_eq!(harness.count("ReadHealth"), 2 + 4, "{state:?}");
        harness.target = Some(target(state, None));
        harness.pass(20);
        assert_eq!(harness.first("exit Drained"), 10 + 5, "{state:?}");
    }
}

#[test]
fn an_unconfirmed_drain_is_reported_after_half_a_minute() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.hangs.push(Call::Deregister);
    harness.handle_event(Event::Terminate);
    harness.pass(60);
    assert_eq!((harness.first("drain-unconfirmed"), harness.first("exit Drained")), (30, 35));
}

#[test]
fn active_flows_delay_the_exit_until_the_deregistration_delay_or_the_drain_cap() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.activity.0 = 9;
    harness.handle_event(Event::Terminate);
    harness.pass(400);
    assert_eq!(harness.first("exit DelayOver"), 300);
    let long = Attributes { deregistration_delay: 3600 * S, ..attributes() };
    let mut harness = Harness::healthy(settings(), long);
    harness.activity.0 = 9;
    harness.handle_event(Event::Terminate);
    harness.pass(400);
    assert_eq!(harness.first("exit CapOver"), 330);
}

#[test]
fn an_api_outage_never_delays_the_exit_past_the_drain_cap() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut harness = Harness::healthy(settings(), attributes());
        harness.fails.extend([(Call::Deregister, outage), (Call::ReadHealth, outage)]);
        harness.traffic = true;
        harness.handle_event(Event::Terminate);
        harness.pass(400);
        assert_eq!(harness.first("exit CapOver"), 330);
        assert!(harness.count("Deregister") >= 2);
    }
}

#[test]
fn a_second_sigterm_exits_at_once() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.activity.0 = 9;
    harness.handle_event(Event::Terminate);
    harness.pass(2);
    harness.handle_event(Event::Terminate);
    assert_eq!(harness.first("exit Forced"), 2);
}

#[test]
fn a_registration_that_ends_after_the_deregistration_is_undone() {
    let mut harness = Harness::new(settings());
    harness.hangs.push(Call::Register);
    harness.able();
    harness.handle_event(Event::Terminate);
    harness.pass(8);
    assert_eq!((harness.count("Register"), harness.count("Deregister")), (1, 1));
    harness.target = Some(target(TargetState::Initial, None));
    harness.handle_event(Event::Answered(Answer::Registered(Ok(()))));
    harness.pass(60);
    assert_eq!(harness.count("Deregister"), 2);
    assert_eq!(harness.target.map(|target| target.state), Some(TargetState::Draining));
}

#[test]
fn a_registration_that_ends_during_the_deregistration_is_undone_again() {
    let mut harness = Harness::new(settings());
    harness.hangs.extend([Call::Register, Call::Deregister]);
    harness.able();
    harness.handle_event(Event::Terminate);
    harness.target = Some(target(TargetState::Initial, None));
    harness.handle_event(Event::Answered(Answer::Registered(Ok(()))));
    harness.hangs.clear();
    harness.handle_event(Event::Answered(Answer::Deregistered(Ok(()))));
    harness.pass(60);
    assert_eq!(harness.count("Deregister"), 2, "the order is unknown");
    assert_eq!(harness.target.map(|target| target.state), Some(TargetState::Draining));
}

#[test]
fn flows_count_as_active_until_an_activity_event_without_them() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.activity.0 = 1;
    harness.pass(1);
    harness.handle_event(Event::Terminate);
    for _ in 0..60 {
        harness.now += S;
        harness.handle_event(Event::Tick);
    }
    assert_eq!(harness.recorded.iter().filter(|(_, effect)| effect.starts_with("exit")).count(), 0);
}

#[test]
fn an_auto_scaling_hook_gets_heartbeats_and_is_completed_after_the_drain() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.activity.0 = 9;
    harness.notices.terminating = true;
    harness.pass(100);
    assert_eq!(harness.count("503 leaving: Auto Scaling terminates this instance"), 1);
    assert!(harness.count("Heartbeat") >= 4);
    harness.activity.0 = 0;
    harness.pass(10);
    harness.assert_before("CompleteHook", "exit Drained");
    // A hook that does not answer does not delay the exit past the deadline.
    let mut harness = Harness::healthy(settings(), attributes());
    harness.hangs.push(Call::CompleteHook);
    harness.attributes.deregistration_delay = 3600 * S;
    harness.pass(300);
    harness.activity.0 = 9;
    harness.notices.terminating = true;
    harness.started = harness.now;
    harness.pass(400);
    let (leaves, completes) = (harness.first("503"), harness.first("CompleteHook"));
    assert_eq!((completes - leaves, harness.first("exit CapOver") - leaves), (325, 330));
}

#[test]
fn a_terminating_instance_is_not_registered_at_start() {
    let mut harness = Harness::new(settings());
    harness.notices.terminating = true;
    harness.able();
    harness.pass(60);
    assert_eq!((harness.count("Register"), harness.count("200")), (0, 0));
    harness.assert_before("CompleteHook", "exit Drained");
    // Notices are queried before registration, however slow the answer is.
    let mut harness = Harness::new(settings());
    harness.hangs.push(Call::ReadNotices);
    harness.able();
    harness.pass(30);
    assert_eq!(harness.count("Register"), 0);
    harness.handle_event(Event::Answered(Answer::Notices(Err(error(Failure::Absent)))));
    assert_eq!((harness.count("Register"), harness.count("call-rejected")), (1, 0));
}

#[test]
fn a_spot_notice_ends_the_drain_five_seconds_before_its_time() {
    let mut harness = Harness::healthy(settings(), attributes());
    harness.activity.0 = 9;
    harness.notices.spot = Some(harness.now + 120 * S);
    harness.pass(200);
    assert_eq!(harness.count("503 leaving: EC2 interrupts this spot instance"), 1);
    assert_eq!(harness.first("exit CapOver"), 115);
    assert_eq!(harness.count("CompleteHook"), 0);
}

#[test]
fn without_hook_notices_are_not_read() {
    let mut harness = Harness::new(AwsLifecycleSettings { hook: false, ..settings() });
    harness.able();
    harness.pass(60);
    assert_eq!((harness.count("ReadNotices"), harness.count("Register")), (0, 1));
}
