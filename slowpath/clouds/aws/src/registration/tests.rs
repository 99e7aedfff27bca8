//! Tests of the lifecycle by scenario. Calls succeed at once unless a scenario sets otherwise.

mod simulation;

use std::collections::BTreeMap;

use super::*;
use crate::types::Stickiness;

const S: Duration = Duration::from_secs(1);

pub(crate) fn settings() -> Lifecycle {
    Lifecycle { on_lost: OnLost::Repair, drain_cap: 330 * S, idle: 5 * S, hook: true }
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
struct Stage {
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

impl Stage {
    fn new(settings: Lifecycle) -> Stage {
        let now = Instant::now();
        Stage {
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

    /// Returns a stage whose target has been healthy and idle for a minute, with the recorded
    /// effects cleared.
    fn healthy(settings: Lifecycle, attributes: Attributes) -> Stage {
        let mut stage = Stage::new(settings);
        stage.attributes = attributes;
        stage.able();
        stage.target = Some(target(TargetState::Healthy, None));
        stage.activity.1 = 7;
        stage.pass(60);
        assert!(stage.registration.ready());
        stage.started = stage.now;
        stage.recorded.clear();
        stage
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
    fn before(&self, one: &str, other: &str) {
        let at = |what: &str| self.recorded.iter().position(|(_, effect)| effect.starts_with(what));
        let (one_at, other_at) = (at(one), at(other));
        assert!(one_at.is_some() && one_at < other_at, "{one}, {other}: {:?}", self.effects());
    }
}

#[test]
fn probes_pass_once_the_able_appliance_is_registered_and_ready_follows_the_reported_health() {
    let mut stage = Stage::new(settings());
    stage.pass(3);
    let starting = "503 starting, not registered with the target group yet";
    assert_eq!(stage.effects(), [(1, starting), (1, "timeout 350s")]);
    stage.able();
    stage.pass(20);
    stage.before("ReadHealth", "Register");
    stage.before("503 not registered", "Register");
    stage.before("Register", "200");
    assert!(!stage.registration.ready(), "not reported healthy");
    stage.target = Some(target(TargetState::Healthy, None));
    stage.pass(10);
    assert!(stage.registration.ready());
    stage.pass(600);
    assert_eq!(stage.count("Register"), 1);
}

#[test]
fn a_restart_of_a_healthy_target_passes_probes_at_once_and_does_not_register() {
    let mut stage = Stage::new(settings());
    stage.target = Some(target(TargetState::Healthy, None));
    stage.activity.1 = 1_000_000;
    stage.able();
    assert_eq!(stage.first("200"), 0);
    assert!(stage.registration.ready());
    stage.pass(600);
    assert_eq!(stage.count("Register"), 0);
    assert_eq!(stage.count("no-packets"), 0);
}

#[test]
fn after_a_restart_without_usable_answers_only_ability_decides_the_probe() {
    for (fails, hangs, at) in
        [(Some(Failure::Transient), false, 0), (None, true, 10), (Some(Failure::Denied), false, 0)]
    {
        let mut stage = Stage::new(settings());
        stage.fails.extend(fails.map(|kind| (Call::ReadHealth, kind)));
        stage.hangs.extend(hangs.then_some(Call::ReadHealth));
        stage.able();
        stage.pass(60);
        assert_eq!(stage.first("200"), at);
        assert_eq!(stage.count("Register"), 0, "the target may be registered");
    }
}

#[test]
fn a_denied_registration_fails_probes_with_the_reason_and_is_retried_slowly() {
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
fn probes_fail_once_the_target_is_known_to_be_unregistered() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::ReadHealth, Failure::Transient);
    stage.able();
    assert_eq!(stage.count("200"), 1);
    stage.fails = [(Call::Register, Failure::Denied)].into();
    stage.pass(60);
    assert_eq!(stage.count("503 not registered: SomeOperation: it did not work"), 1);
    // If the group does not exist, the machine cannot be its target.
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::ReadHealth, Failure::Absent);
    stage.able();
    stage.pass(60);
    assert_eq!((stage.count("200"), stage.count("call-rejected")), (0, 1));
}

#[test]
fn a_registration_without_an_answer_is_checked_before_it_is_repeated() {
    let mut stage = Stage::new(settings());
    stage.fails.insert(Call::Register, Failure::Transient);
    stage.hangs.push(Call::Register);
    stage.able();
    stage.target = Some(target(TargetState::Initial, None));
    stage.handle_event(Event::Answered(Answer::Registered(Err(error(Failure::Transient)))));
    stage.pass(120);
    assert_eq!((stage.count("Register"), stage.count("200")), (1, 1));
}

#[test]
fn a_change_of_ability_reaches_the_probe_at_once_with_its_reasons() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.handle_event(Event::Able { able: false, reasons: vec!["lcore 1 is stalled".into()] });
    stage.pass(5);
    stage.able();
    assert_eq!(stage.effects(), [(0, "503 lcore 1 is stalled"), (5, "200")]);
}

#[test]
fn a_lost_registration_is_repaired_or_reported() {
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
fn a_healthy_target_without_packets_for_a_minute_is_reported_once() {
    let mut stage = Stage::new(settings());
    stage.target = Some(target(TargetState::Healthy, None));
    stage.able();
    stage.pass(300);
    assert_eq!((stage.first("no-packets"), stage.count("no-packets")), (60, 1));
}

#[test]
fn a_differing_health_state_at_aws_is_reported_once() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.target = Some(target(TargetState::Unhealthy, Some("Target.FailedHealthChecks")));
    stage.pass(50);
    assert!(!stage.registration.differs(), "not for a minute yet");
    stage.pass(250);
    assert!(stage.registration.differs());
    assert_eq!(stage.count("health-differs"), 1);
    assert_eq!(stage.count("Register"), 0, "the target is registered, though unhealthy");
    stage.target = Some(target(TargetState::Healthy, None));
    stage.pass(30);
    assert!(!stage.registration.differs());
}

#[test]
fn the_listeners_idle_timeout_is_applied_whenever_it_changes() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.attributes.tcp_idle = 900 * S;
    stage.pass(900);
    assert_eq!(stage.count("timeout 900s"), 1);
}

#[test]
fn sigterm_fails_probes_deregisters_and_exits_once_no_flow_is_active() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.traffic = true;
    stage.pass(3);
    stage.handle_event(Event::Terminate);
    let leaving = "503 leaving: SIGTERM received";
    assert_eq!(stage.effects(), [(3, leaving), (3, "Deregister")]);
    stage.pass(100);
    assert_eq!(stage.effects().len(), 2, "packets arrive");
    stage.traffic = false;
    stage.activity.0 = 1;
    stage.pass(50);
    stage.activity.0 = 0;
    stage.pass(10);
    assert_eq!(stage.first("exit Drained"), 153 + 5);
    assert_eq!(stage.registration.step(stage.now, Event::Tick), []);
}

#[test]
fn with_rebalance_the_target_is_deregistered_first_and_probes_fail_once_draining() {
    let moving = Attributes { rebalance_on_unhealthy: true, ..attributes() };
    let mut stage = Stage::healthy(settings(), moving);
    stage.traffic = true;
    stage.hangs.push(Call::Deregister);
    stage.handle_event(Event::Terminate);
    stage.pass(7);
    assert_eq!(stage.effects(), [(0, "Deregister")]);
    stage.handle_event(Event::Answered(Answer::Deregistered(Ok(()))));
    stage.pass(4);
    assert_eq!(stage.effects().len(), 1, "reported healthy");
    stage.target = Some(target(TargetState::Draining, None));
    stage.pass(2);
    assert_eq!(stage.effects()[1..], [(13, "503 leaving: SIGTERM received")]);
    // If deregistration is denied, only the probe keeps new flows away.
    let moving = Attributes { rebalance_on_unhealthy: true, ..attributes() };
    let mut stage = Stage::healthy(settings(), moving);
    stage.fails.insert(Call::Deregister, Failure::Denied);
    stage.handle_event(Event::Terminate);
    let expected = [(0, "Deregister"), (0, "call-denied"), (0, "503 leaving: SIGTERM received")];
    assert_eq!(stage.effects(), expected);
}

#[test]
fn draining_is_polled_every_two_seconds_until_a_state_without_new_flows() {
    for state in [TargetState::Draining, TargetState::Unused, TargetState::UnhealthyDraining] {
        let mut stage = Stage::healthy(settings(), attributes());
        stage.hangs.push(Call::Deregister);
        stage.handle_event(Event::Terminate);
        stage.handle_event(Event::Answered(Answer::Deregistered(Ok(()))));
        stage.pass(9);
        assert_eq!(stage.count("ReadHealth"), 2 + 4, "{state:?}");
        stage.target = Some(target(state, None));
        stage.pass(20);
        assert_eq!(stage.first("exit Drained"), 10 + 5, "{state:?}");
    }
}

#[test]
fn an_unconfirmed_drain_is_reported_after_half_a_minute() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.hangs.push(Call::Deregister);
    stage.handle_event(Event::Terminate);
    stage.pass(60);
    assert_eq!((stage.first("drain-unconfirmed"), stage.first("exit Drained")), (30, 35));
}

#[test]
fn active_flows_delay_the_exit_until_the_deregistration_delay_or_the_drain_cap() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.handle_event(Event::Terminate);
    stage.pass(400);
    assert_eq!(stage.first("exit DelayOver"), 300);
    let long = Attributes { deregistration_delay: 3600 * S, ..attributes() };
    let mut stage = Stage::healthy(settings(), long);
    stage.activity.0 = 9;
    stage.handle_event(Event::Terminate);
    stage.pass(400);
    assert_eq!(stage.first("exit CapOver"), 330);
}

#[test]
fn an_api_outage_never_delays_the_exit_past_the_drain_cap() {
    for outage in [Failure::Transient, Failure::Throttled, Failure::Denied, Failure::Invalid] {
        let mut stage = Stage::healthy(settings(), attributes());
        stage.fails.extend([(Call::Deregister, outage), (Call::ReadHealth, outage)]);
        stage.traffic = true;
        stage.handle_event(Event::Terminate);
        stage.pass(400);
        assert_eq!(stage.first("exit CapOver"), 330);
        assert!(stage.count("Deregister") >= 2);
    }
}

#[test]
fn a_second_sigterm_exits_at_once() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.handle_event(Event::Terminate);
    stage.pass(2);
    stage.handle_event(Event::Terminate);
    assert_eq!(stage.first("exit Forced"), 2);
}

#[test]
fn a_registration_that_ends_after_the_deregistration_is_undone() {
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::Register);
    stage.able();
    stage.handle_event(Event::Terminate);
    stage.pass(8);
    assert_eq!((stage.count("Register"), stage.count("Deregister")), (1, 1));
    stage.target = Some(target(TargetState::Initial, None));
    stage.handle_event(Event::Answered(Answer::Registered(Ok(()))));
    stage.pass(60);
    assert_eq!(stage.count("Deregister"), 2);
    assert_eq!(stage.target.map(|target| target.state), Some(TargetState::Draining));
}

#[test]
fn a_registration_that_ends_during_the_deregistration_is_undone_again() {
    let mut stage = Stage::new(settings());
    stage.hangs.extend([Call::Register, Call::Deregister]);
    stage.able();
    stage.handle_event(Event::Terminate);
    stage.target = Some(target(TargetState::Initial, None));
    stage.handle_event(Event::Answered(Answer::Registered(Ok(()))));
    stage.hangs.clear();
    stage.handle_event(Event::Answered(Answer::Deregistered(Ok(()))));
    stage.pass(60);
    assert_eq!(stage.count("Deregister"), 2, "the order is unknown");
    assert_eq!(stage.target.map(|target| target.state), Some(TargetState::Draining));
}

#[test]
fn flows_count_as_active_until_an_activity_event_without_them() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 1;
    stage.pass(1);
    stage.handle_event(Event::Terminate);
    for _ in 0..60 {
        stage.now += S;
        stage.handle_event(Event::Tick);
    }
    assert_eq!(stage.recorded.iter().filter(|(_, effect)| effect.starts_with("exit")).count(), 0);
}

#[test]
fn an_auto_scaling_hook_gets_heartbeats_and_is_completed_after_the_drain() {
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
    stage.started = stage.now;
    stage.pass(400);
    let (leaves, completes) = (stage.first("503"), stage.first("CompleteHook"));
    assert_eq!((completes - leaves, stage.first("exit CapOver") - leaves), (325, 330));
}

#[test]
fn a_terminating_instance_is_not_registered_at_start() {
    let mut stage = Stage::new(settings());
    stage.notices.terminating = true;
    stage.able();
    stage.pass(60);
    assert_eq!((stage.count("Register"), stage.count("200")), (0, 0));
    stage.before("CompleteHook", "exit Drained");
    // Notices are queried before registration, however slow the answer is.
    let mut stage = Stage::new(settings());
    stage.hangs.push(Call::ReadNotices);
    stage.able();
    stage.pass(30);
    assert_eq!(stage.count("Register"), 0);
    stage.handle_event(Event::Answered(Answer::Notices(Err(error(Failure::Absent)))));
    assert_eq!((stage.count("Register"), stage.count("call-rejected")), (1, 0));
}

#[test]
fn a_spot_notice_ends_the_drain_five_seconds_before_its_time() {
    let mut stage = Stage::healthy(settings(), attributes());
    stage.activity.0 = 9;
    stage.notices.spot = Some(stage.now + 120 * S);
    stage.pass(200);
    assert_eq!(stage.count("503 leaving: EC2 interrupts this spot instance"), 1);
    assert_eq!(stage.first("exit CapOver"), 115);
    assert_eq!(stage.count("CompleteHook"), 0);
}

#[test]
fn without_hook_notices_are_not_read() {
    let mut stage = Stage::new(Lifecycle { hook: false, ..settings() });
    stage.able();
    stage.pass(60);
    assert_eq!((stage.count("ReadNotices"), stage.count("Register")), (0, 1));
}
