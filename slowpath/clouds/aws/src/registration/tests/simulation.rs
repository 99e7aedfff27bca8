//! Random histories of an appliance at AWS: outages, slow and lost answers, interference by other
//! parties, flows that start and end, signals, restarts.
//!
//! Each history is determined by its seed. `SIMULATION_SEED=7 cargo test -p aws registration`
//! repeats one; `SIMULATIONS=100000` runs that many.

use ::simulation::{AnsweredCall, Calls, Reliability, Traffic};
use cloud_emulators::target::{HealthCheckSettings, State, Target as Emulated};
use fastrand::Rng;

use super::*;

/// Default number of histories.
const HISTORIES: u64 = 20_000;

#[test]
fn random_histories_register_drain_and_exit_in_time() {
    ::simulation::run_histories("aws registration", HISTORIES, |rng| {
        ::simulation::run_history(&mut History::new(rng), rng)
    });
}

/// The cloud: the emulator's target, calls in progress, and the reliability of answers.
struct Cloud {
    target: Option<Emulated>,
    started: Instant,
    /// Time of the last registration, or of the last forced `UnhealthyDraining`.
    since: Instant,
    /// When the target was last absent or draining.
    gone_at: Instant,
    /// When the target was last registered and not draining.
    member_at: Option<Instant>,
    attributes: Attributes,
    notices: Notices,
    calls: Calls<Call, Answer>,
}

struct History {
    registration: Registration,
    process: u64,
    now: Instant,
    cloud: Cloud,
    able: bool,
    probe: bool,
    traffic: Traffic,
    /// Start of the latest answered health query of this process.
    health_read: Option<Instant>,
    /// Time of the first SIGTERM of this process, and the number of signals.
    terminated: Option<Instant>,
    signals: u32,
    deregisters: u32,
    completes: u32,
    outage_while_leaving: bool,
    /// Time of the signal or notice that causes the drain.
    drain_started: Instant,
    exit: Option<Exit>,
}

impl History {
    fn new(rng: &mut Rng) -> History {
        let now = Instant::now();
        let flag = |rng: &mut Rng| rng.u32(..2) == 0;
        let attributes = Attributes {
            deregistration_delay: [0, 10, 60, 300, 3600][rng.usize(..5)] * S,
            rebalance_on_unhealthy: flag(rng),
            ..attributes()
        };
        let settings = AwsLifecycleSettings {
            on_lost: if rng.u32(..3) == 0 { OnLost::Report } else { OnLost::Repair },
            drain_cap: [5, 20, 60, 330][rng.usize(..4)] * S,
            idle: 5 * S,
            hook: flag(rng),
        };
        let mut cloud = Cloud {
            target: None,
            started: now,
            since: now,
            gone_at: now,
            member_at: None,
            attributes,
            notices: Notices::default(),
            calls: Calls::new(rng),
        };
        if rng.u32(..3) == 0 {
            cloud.register(now);
            cloud.set(State::Healthy);
        }
        History {
            registration: Registration::new(settings, now),
            process: 0,
            now,
            cloud,
            able: false,
            probe: false,
            traffic: Traffic::new(now),
            health_read: None,
            drain_started: now,
            terminated: None,
            signals: 0,
            deregisters: 0,
            completes: 0,
            outage_while_leaving: false,
            exit: None,
        }
    }

    fn handle_event(&mut self, event: Event, rng: &mut Rng) {
        let mut exited = false;
        for effect in self.registration.step(self.now, event) {
            assert!(!exited, "no effect follows the exit");
            match effect {
                Effect::Call(call) => self.call(call, rng),
                Effect::Probe { pass, reasons } => {
                    assert_eq!(pass, reasons.is_empty());
                    self.probe = pass;
                }
                Effect::FlowTimeout(timeout) => assert_eq!(timeout, 350 * S),
                Effect::Finding(finding) => assert!(!finding.text.is_empty()),
                Effect::Exit(exit) => {
                    self.exit = Some(exit);
                    exited = true;
                }
            }
        }
    }

    fn call(&mut self, call: Call, rng: &mut Rng) {
        let pending = self.cloud.calls.in_progress(self.process);
        assert!(!pending.contains(&call), "{call:?} twice at once");
        match call {
            Call::Register => {
                // The target must have been gone at the last health query. Responses to health
                // queries may be up to 3 s old.
                let needed = self.health_read.is_some_and(|at| self.cloud.gone_at + 3 * S >= at);
                assert!(needed, "registered although the target was a member");
                assert!(self.terminated.is_none() && self.able);
            }
            Call::Deregister => {
                assert!(self.registration.leaving().is_some());
                self.deregisters += 1;
            }
            Call::CompleteHook => self.completes += 1,
            _ => {}
        }
        self.cloud.calls.start(call, self.process, self.now, rng);
    }

    /// Advances the cloud by a second; calls that are due take effect, and answers that have
    /// arrived are handled in random order.
    fn process_calls(&mut self, rng: &mut Rng) {
        let now = self.now;
        self.cloud.advance(now, self.probe, rng);
        while let Some((at, call)) = self.cloud.calls.next_due(now) {
            let answer = self.cloud.apply(call, now, rng);
            self.cloud.calls.answer(at, answer);
        }
        while let Some(answered) = self.cloud.calls.take_answer(now, rng) {
            let AnsweredCall { call, process, started, answer } = answered;
            if process != self.process || self.exit.is_some() {
                continue;
            }
            if call == Call::ReadHealth && answer.error().is_none() {
                self.health_read = Some(started);
            }
            self.outage_while_leaving |= call == Call::Deregister && answer.error().is_some();
            self.handle_event(Event::Answered(answer), rng);
        }
    }

    /// Kills the process and starts another. Calls of the old one still take effect.
    fn restart(&mut self) {
        let settings = self.registration.settings;
        self.process += 1;
        self.registration = Registration::new(settings, self.now);
        (self.probe, self.able, self.health_read) = (false, false, None);
    }

    fn check(&self) {
        if self.exit.is_none() {
            assert!(!self.probe || self.able, "the probe passes while not able");
        }
        let Some((why, deadline)) = self.registration.leaving() else {
            assert!(self.exit.is_none(), "the lifecycle ended without a drain");
            return;
        };
        if self.exit.is_none() {
            assert!(self.now < deadline, "{why:?}: not gone by its deadline");
        }
    }

    /// Checks the conditions of `exit`, and that the target is deregistered or draining.
    fn check_exit(&self, exit: Exit) {
        if self.signals >= 2 {
            return;
        }
        assert_ne!(exit, Exit::Forced);
        let (_, deadline) = self.registration.leaving().unwrap();
        // Activity while the hook is being completed no longer delays the exit.
        let completes = if self.completes > 0 { 5 * S } else { Duration::ZERO };
        let rest = self.now - self.traffic.active_at + completes;
        assert!(exit != Exit::Drained || rest >= 5 * S, "drained after {rest:?} of idle time");
        let delay_ends =
            self.cloud.member_at.map(|at| at + self.cloud.attributes.deregistration_delay);
        let reserve = 6 * S;
        if self.traffic.flows > 0 && self.now + reserve < deadline {
            let delay_over = delay_ends.is_none_or(|end| self.now >= end);
            assert!(exit == Exit::DelayOver && delay_over, "{exit:?} with active flows");
        }
        assert!(self.deregisters > 0, "never deregistered");
        let undisturbed = self.now + reserve < deadline && self.now > self.drain_started;
        if undisturbed && !self.outage_while_leaving && exit == Exit::Drained {
            let state = self.cloud.state();
            let left = matches!(state, None | Some(TargetState::Draining));
            let unanswered = self.cloud.calls.in_progress(self.process).contains(&Call::Deregister);
            // A process that was killed may have left a registration in progress.
            let restarted = self.process > 0;
            assert!(left || unanswered || restarted, "{exit:?} while {state:?}");
        }
        let hook = self.registration.leaving.as_ref().is_some_and(|leaving| leaving.hook);
        assert_eq!(self.completes, u32::from(hook), "the hook is completed once");
    }
}

impl ::simulation::Scenario for History {
    fn start(&mut self, _: &mut Rng) {}

    fn tick(&mut self, rng: &mut Rng) {
        if self.exit.is_some() {
            return;
        }
        self.now += S;
        self.process_calls(rng);
        if self.exit.is_none() {
            let receives = self.cloud.state() == Some(TargetState::Healthy);
            self.traffic.advance(self.now, (receives, receives && self.probe), rng);
            let Traffic { flows, packets, .. } = self.traffic;
            self.handle_event(Event::Activity { flows, packets, unknown_tunnel: 0 }, rng);
        }
        self.check();
    }

    fn set_able(&mut self, able: impl FnOnce(bool, &mut Rng) -> bool, rng: &mut Rng) {
        self.able = able(self.able, rng);
        let able = self.able;
        let reasons = if able { vec![] } else { vec!["an lcore is stalled".to_owned()] };
        self.handle_event(Event::Able { able, reasons }, rng);
    }

    fn disturb(&mut self, rng: &mut Rng) {
        self.cloud.disturb(self.now, rng);
    }

    fn random_events(&mut self, rng: &mut Rng) {
        if rng.u32(..150) == 0 {
            self.restart();
        }
    }

    fn signal(&mut self, rng: &mut Rng) {
        self.signals += 1;
        self.terminated = self.terminated.or(Some(self.now));
        self.handle_event(Event::Terminate, rng);
        if self.signals == 2 {
            assert_eq!(self.exit, Some(Exit::Forced));
        }
    }

    /// Without interference, the appliance becomes registered, healthy and ready, unless it is
    /// configured only to report a lost registration.
    fn settle(&mut self, rng: &mut Rng) {
        self.cloud.calls.reliability = Reliability::GOOD;
        self.set_able(|_, _| true, rng);
        for _ in 0..700 {
            self.tick(rng);
        }
        let lost = self.registration.settings.on_lost == OnLost::Report && self.registration.lost;
        assert!(lost || self.registration.ready() && self.probe, "{:?}", self.registration);
        assert!(lost || self.cloud.state() == Some(TargetState::Healthy));
    }

    /// Sends a signal or a notice.
    fn leave(&mut self, rng: &mut Rng) {
        self.drain_started = self.now;
        let hook = self.registration.settings.hook;
        match rng.u64(..4) {
            0 if hook => self.cloud.notices.terminating = true,
            1 if hook => self.cloud.notices.spot = Some(self.now + S * (1 + rng.u32(..200))),
            _ => self.signal(rng),
        }
    }

    fn needs_signal(&self) -> bool {
        false
    }

    fn is_over(&mut self) -> bool {
        self.exit.inspect(|exit| self.check_exit(*exit)).is_some()
    }
}

impl Cloud {
    fn health_check(&self) -> HealthCheckSettings {
        let delay = self.attributes.deregistration_delay;
        HealthCheckSettings { interval: 10 * S, healthy: 2, unhealthy: 2, delay }
    }

    fn register(&mut self, now: Instant) {
        self.since = now;
        self.target =
            Some(Emulated::new("10.0.1.10", false, now - self.started, self.health_check()));
    }

    fn deregister(&mut self, now: Instant) {
        let (at, settings) = (now - self.started, self.health_check());
        if let Some(target) = &mut self.target {
            target.forced = None;
            target.drain(at, settings);
        }
    }

    fn set(&mut self, state: State) {
        if let Some(target) = &mut self.target {
            (target.state, target.streak) = (state, 0);
        }
    }

    fn state(&self) -> Option<TargetState> {
        Some(match self.target.as_ref()?.reported(true) {
            State::Initial => TargetState::Initial,
            State::Healthy => TargetState::Healthy,
            State::Unhealthy => TargetState::Unhealthy,
            State::UnhealthyDraining => TargetState::UnhealthyDraining,
            State::Unused => TargetState::Unused,
            State::Draining => TargetState::Draining,
            State::Unavailable => TargetState::Unavailable,
        })
    }

    fn is_member(&self) -> bool {
        !matches!(self.state(), None | Some(TargetState::Draining))
    }

    /// Updates the target's state for the probe result and the time that has passed.
    fn advance(&mut self, now: Instant, probe: bool, rng: &mut Rng) {
        let (at, settings, before) = (now - self.started, self.health_check(), self.state());
        self.target.take_if(|target| {
            target.good = probe;
            !target.advance(at, settings)
        });
        let fails = before == Some(TargetState::Healthy) && before != self.state();
        if let Some(target) = &mut self.target {
            // Some groups end the flows of an unhealthy target.
            if fails && target.state == State::Unhealthy && rng.u32(..3) == 0 {
                (target.forced, self.since) = (Some(State::UnhealthyDraining), now);
            }
            target.forced.take_if(|_| now >= self.since + 20 * S);
        }
        match self.is_member() {
            true => self.member_at = Some(now),
            false => self.gone_at = now,
        }
    }

    fn apply(&mut self, call: Call, now: Instant, rng: &mut Rng) -> Answer {
        let (takes_effect, failing) = match call {
            Call::ReadNotices => (true, None),
            _ => self.calls.reliability.outcome(rng),
        };
        let result = failing.map_or(Ok(()), |kind| Err(error(kind)));
        match call {
            Call::Register => {
                if takes_effect && !self.is_member() {
                    self.register(now);
                }
                Answer::Registered(result)
            }
            Call::Deregister => {
                if takes_effect && self.is_member() {
                    self.deregister(now);
                }
                Answer::Deregistered(result)
            }
            Call::ReadHealth => {
                let entry = match self.state() {
                    None if rng.u32(..2) == 0 => None,
                    None => Some(target(TargetState::Unused, Some("Target.NotRegistered"))),
                    // A new registration may be invisible for up to 3 s (eventual consistency).
                    Some(TargetState::Initial) if now < self.since + 3 * S && rng.u32(..2) == 0 => {
                        None
                    }
                    Some(state) => Some(target(state, None)),
                };
                Answer::Health(result.map(|()| entry))
            }
            Call::ReadAttributes => Answer::Attributes(result.map(|()| self.attributes.clone())),
            Call::ReadNotices => Answer::Notices(Ok(self.notices)),
            Call::Heartbeat => Answer::Heartbeat(result),
            Call::CompleteHook => Answer::HookCompleted(result),
        }
    }

    /// Lets another party interfere, or changes the reliability.
    fn disturb(&mut self, now: Instant, rng: &mut Rng) {
        match rng.u64(..7) {
            kind @ 0..4 => self.calls.reliability.change(kind, rng),
            4 if self.is_member() => self.deregister(now),
            5 if self.state() == Some(TargetState::Healthy) => self.set(State::Unhealthy),
            _ => self.calls.reliability = Reliability::GOOD,
        }
    }
}
