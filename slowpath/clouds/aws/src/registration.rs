//! State machine of the registration with an AWS target group: register, stay, deregister. It has
//! no clock and no sockets: times, answers and signals are arguments; calls and probe answers are
//! returned as effects.
//!
//! Registration: check whether the target is already registered, register it if not, then let the
//! health probe pass.
//!
//! - While the state is unknown because AWS does not answer, the probe reflects the appliance's own
//!   ability alone. If probes arrive at all, the target is registered, and an outage of the API
//!   during a restart must not take a working machine out of service.
//! - If the target is known not to be registered, the probe gets 503 with the reason.
//! - After a permission error the call is retried every 5 minutes and the process keeps running:
//!   once the IAM policy is fixed, registration succeeds without a restart. `weir cloud status`
//!   shows which permission is missing.
//!
//! For deregistration see `shutdown.rs`. [`Registration`] must be stepped at least once a second.

mod drain;
mod event;
mod findings;
mod shutdown;

use std::time::{Duration, Instant};

use config::checked::{AwsLifecycleSettings, OnLost};

pub use event::{Answer, Call, DrainReason, Effect, Event, Exit, Notices};

use crate::types::{Attributes, CallError, Failure, Target, TargetState};
use clouds::lifecycle::{Machine, Never};
use clouds::report::Finding;
use drain::Drain;

/// Interval of target health queries while the target is healthy.
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of target health queries while the target is not healthy, or absent.
const PENDING_HEALTH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval of attribute queries.
const ATTRIBUTES_INTERVAL: Duration = Duration::from_secs(300);
/// Interval of IMDS queries for termination notices.
const NOTICES_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of heartbeats; the minimum heartbeat timeout of a hook is 30 s.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// Delay before repeating a call that failed with a temporary error after all its retries.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// Delay before repeating a call that failed with a permanent error.
const PERMANENT_ERROR_DELAY: Duration = Duration::from_secs(300);
/// Maximum time for which an unanswered health query makes the probe fail. It must be shorter than
/// the time in which a gateway marks a target unhealthy (by default 2 probes, 10 s apart).
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after the target became healthy within which a packet is expected.
const FIRST_PACKET_TIMEOUT: Duration = Duration::from_secs(60);
/// How long AWS may report an able appliance as unhealthy before that is a finding.
const DIFFERS_AFTER: Duration = Duration::from_secs(60);

/// What is known about this appliance's entry in the target group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// No answer yet.
    Unknown,
    /// There is no entry.
    Absent,
    /// The entry as last reported by AWS.
    Reported(Target),
}

impl Entry {
    /// Returns the state of the entry, if there is one.
    fn state(&self) -> Option<TargetState> {
        match self {
            Entry::Reported(target) => Some(target.state),
            _ => None,
        }
    }

    /// Returns true if it is known that the target is not registered, or that it is draining.
    fn is_gone(&self) -> bool {
        matches!(self, Entry::Absent) || self.state() == Some(TargetState::Draining)
    }

    fn of(target: Option<Target>) -> Entry {
        let unregistered = |target: &Target| {
            target.state == TargetState::Unused
                && target.reason.as_deref() == Some("Target.NotRegistered")
        };
        target.filter(|target| !unregistered(target)).map_or(Entry::Absent, Entry::Reported)
    }
}

/// Scheduling state of one kind of call.
#[derive(Clone, Copy, Debug, Default)]
struct CallState {
    in_progress: bool,
    /// Start of the last call.
    started: Option<Instant>,
    /// Earliest start of the next call; `None` for at once.
    not_before: Option<Instant>,
    /// A call of this kind has ended, with or without an error.
    answered: bool,
}

/// State machine of the registration with an AWS target group.
#[derive(Debug)]
pub struct Registration {
    settings: AwsLifecycleSettings,
    able: Result<Instant, Vec<String>>,
    calls: [CallState; Call::COUNT],
    entry: Entry,
    /// The probe reflects the appliance's ability. Set when the target is registered or found
    /// registered, and, unless a registration has failed, when the health query fails or stays
    /// unanswered. Cleared by the failed registration of a target that was never a member.
    admitted: bool,
    /// Why the last registration failed.
    registration_error: Option<String>,
    /// The target was found registered, or this process has registered it.
    member: bool,
    /// The target was a member and no longer is: another party removed the registration.
    lost: bool,
    healthy_since: Option<Instant>,
    reported_no_packets: bool,
    /// Since when AWS's view of the health differs from the appliance's; `None` while they agree.
    differs_since: Option<Instant>,
    reported_differs: bool,
    attributes: Option<Attributes>,
    flow_timeout: Option<Duration>,
    flows: u64,
    packets: u64,
    last_active: Instant,
    leaving: Option<Drain>,
    ended: bool,
    probe: Option<(bool, Vec<String>)>,
    effects: Vec<Effect>,
}

impl Machine for Registration {
    type Call = Call;
    type Answer = Answer;
    type Tunnels = Never;
    type Persisted = Never;

    fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.ended {
            return Vec::new();
        }
        self.handle_event(now, event);
        if self.ended {
            return std::mem::take(&mut self.effects);
        }
        self.admit(now);
        self.compare(now);
        self.update_probe(now);
        if self.leaving.is_some() {
            self.drain(now)
        } else {
            self.maintain(now)
        }
        std::mem::take(&mut self.effects)
    }

    fn ready(&self) -> bool {
        let healthy = self.entry.state() == Some(TargetState::Healthy);
        self.able.is_ok() && healthy && self.leaving.is_none()
    }

    fn differs(&self) -> bool {
        self.reported_differs
    }

    fn leaving(&self) -> Option<(&'static str, Instant)> {
        self.leaving.as_ref().map(|leaving| (leaving.reason.as_str(), leaving.deadline))
    }

    fn failed(call: Call, error: CallError) -> Answer {
        Answer::failed(call, error)
    }
}

impl Registration {
    /// Returns the initial state: not able, entry unknown.
    pub fn new(settings: AwsLifecycleSettings, now: Instant) -> Registration {
        Registration {
            settings,
            able: Err(vec!["starting".to_owned()]),
            calls: Default::default(),
            entry: Entry::Unknown,
            admitted: false,
            registration_error: None,
            member: false,
            lost: false,
            healthy_since: None,
            reported_no_packets: false,
            differs_since: None,
            reported_differs: false,
            attributes: None,
            flow_timeout: None,
            flows: 0,
            packets: 0,
            last_active: now,
            leaving: None,
            ended: false,
            probe: None,
            effects: Vec::new(),
        }
    }

    /// Returns what is known about this appliance's entry in the target group.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns the attributes of group, load balancer and listener, as last read.
    pub fn attributes(&self) -> Option<&Attributes> {
        self.attributes.as_ref()
    }

    fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tick | Event::Clock(_) => {}
            Event::TunnelsInForce(never) => match never {},
            Event::Able { able: true, .. } => self.able = Ok(self.able_since().unwrap_or(now)),
            Event::Able { able: false, reasons } => self.able = Err(reasons),
            Event::Activity { flows, packets, .. } => {
                if flows > 0 || packets != self.packets {
                    self.last_active = now;
                }
                (self.flows, self.packets) = (flows, packets);
            }
            Event::Terminate => self.terminate(now),
            Event::Answered(answer) => self.handle_answer(now, answer),
        }
    }

    fn able_since(&self) -> Option<Instant> {
        self.able.as_ref().ok().copied()
    }

    fn handle_answer(&mut self, now: Instant, answer: Answer) {
        let call = answer.of();
        let call_state = &mut self.calls[call as usize];
        let started = call_state.started;
        (call_state.in_progress, call_state.answered) = (false, true);
        if let Some(error) = answer.error() {
            let permanent = !error.kind.is_temporary();
            let pause = match (permanent, self.leaving.is_some()) {
                // While leaving, time is short, and the cause may be over soon.
                (false, true) => drain::RETRY_DELAY,
                (false, false) => RETRY_DELAY,
                (true, _) => PERMANENT_ERROR_DELAY,
            };
            call_state.not_before = Some(now + pause);
            // For notices, `Absent` is no finding: the instance may be in no Auto Scaling group.
            if call != Call::ReadNotices || error.kind != Failure::Absent {
                self.report(findings::failed(error, permanent));
            }
        }
        match answer {
            Answer::Registered(result) => self.on_registered(now, result),
            Answer::Deregistered(result) => self.on_deregistered(now, result),
            Answer::Health(Ok(target)) => self.on_health(now, started, Entry::of(target)),
            Answer::Health(Err(error)) if error.kind == Failure::Absent && !self.member => {
                self.registration_error = Some(format!("not registered: {error}"));
            }
            // The registration is unknown, so the appliance's ability alone decides; see the module
            // docs.
            Answer::Health(Err(_)) => self.admitted |= self.registration_error.is_none(),
            Answer::Attributes(Ok(attributes)) => {
                if self.flow_timeout != Some(attributes.tcp_idle) {
                    self.flow_timeout = Some(attributes.tcp_idle);
                    self.effects.push(Effect::FlowTimeout(attributes.tcp_idle));
                }
                self.attributes = Some(attributes);
                self.schedule(Call::ReadAttributes, now + ATTRIBUTES_INTERVAL);
            }
            Answer::Notices(Ok(notices)) => {
                self.schedule(Call::ReadNotices, now + NOTICES_INTERVAL);
                self.on_notices(now, notices);
            }
            Answer::Heartbeat(Ok(())) => self.schedule(Call::Heartbeat, now + HEARTBEAT_INTERVAL),
            Answer::HookCompleted(_) => self.on_hook_completed(),
            Answer::Attributes(Err(_)) | Answer::Notices(Err(_)) | Answer::Heartbeat(Err(_)) => {}
        }
    }

    fn on_registered(&mut self, now: Instant, result: Result<(), CallError>) {
        match result {
            Ok(()) => {
                self.registration_error = None;
                (self.admitted, self.member) = (true, true);
                // The query is delayed because the registration takes time to propagate within AWS.
                self.schedule(Call::ReadHealth, now + PENDING_HEALTH_INTERVAL);
            }
            // The registration may have taken effect despite the error.
            Err(error) => {
                self.registration_error = Some(format!("not registered: {error}"));
                self.admitted &= self.member;
                self.schedule(Call::ReadHealth, now);
            }
        }
        self.entry = Entry::Unknown;
        self.on_registered_while_draining(now);
    }

    /// Processes a health answer; the query was started at `started`.
    fn on_health(&mut self, now: Instant, started: Option<Instant>, entry: Entry) {
        let healthy = entry.state() == Some(TargetState::Healthy);
        self.schedule(
            Call::ReadHealth,
            now + if healthy { HEALTH_INTERVAL } else { PENDING_HEALTH_INTERVAL },
        );
        if !entry.is_gone() {
            (self.admitted, self.registration_error, self.lost, self.member) =
                (true, None, false, true);
        } else if self.member {
            if !self.lost && self.leaving.is_none() {
                self.report(findings::lost(self.settings.on_lost));
            }
            self.lost = true;
        }
        self.healthy_since = if healthy { self.healthy_since.or(Some(now)) } else { None };
        self.entry = entry;
        self.on_health_while_draining(now, started);
    }

    /// Sets `admitted` if the first health query stays unanswered for [`HEALTH_TIMEOUT`] while the
    /// appliance is able.
    fn admit(&mut self, now: Instant) {
        let call_state = self.calls[Call::ReadHealth as usize];
        let waited =
            call_state.started.max(self.able_since()).is_some_and(|b| now >= b + HEALTH_TIMEOUT);
        let silent = call_state.in_progress && !call_state.answered && waited;
        self.admitted |= silent && self.able.is_ok();
    }

    /// Reports that AWS's state of the target has contradicted the appliance's ability for
    /// [`DIFFERS_AFTER`], and that a target has been healthy for [`FIRST_PACKET_TIMEOUT`] without a
    /// packet.
    fn compare(&mut self, now: Instant) {
        let state = self.entry.state().filter(|_| self.admitted && self.leaving.is_none());
        let since = self.healthy_since.filter(|_| state == Some(TargetState::Healthy));
        let long = since.is_some_and(|since| now >= since + FIRST_PACKET_TIMEOUT);
        if long && self.packets == 0 && !self.reported_no_packets {
            self.reported_no_packets = true;
            self.report(findings::no_packets(FIRST_PACKET_TIMEOUT));
        }
        if self.able.is_err()
            || matches!(state, None | Some(TargetState::Healthy | TargetState::Initial))
        {
            (self.differs_since, self.reported_differs) = (None, false);
            return;
        }
        let since = *self.differs_since.get_or_insert(now);
        if let Entry::Reported(target) = &self.entry
            && now >= since + DIFFERS_AFTER
            && !self.reported_differs
        {
            let finding = findings::differs(target, DIFFERS_AFTER);
            self.reported_differs = true;
            self.report(finding);
        }
    }

    fn update_probe(&mut self, now: Instant) {
        let mut reasons = self.able.as_ref().err().cloned().unwrap_or_default();
        if let Some(reason) = self.leaving.as_ref().and_then(|leaving| leaving.probe_failure(now)) {
            reasons.push(reason.as_str().to_owned());
        } else if !self.admitted && self.leaving.is_none() {
            let waiting = || "not registered with the target group yet".to_owned();
            reasons.push(self.registration_error.clone().unwrap_or_else(waiting));
        }
        // An appliance that is not able fails the probe even if it gives no reason.
        let probe = (reasons.is_empty() && self.able.is_ok(), reasons);
        if self.probe.as_ref() != Some(&probe) {
            self.effects.push(Effect::Probe { pass: probe.0, reasons: probe.1.clone() });
            self.probe = Some(probe);
        }
    }

    fn maintain(&mut self, now: Instant) {
        if self.settings.hook {
            self.start_call(now, Call::ReadNotices);
        }
        self.start_call(now, Call::ReadAttributes);
        let notices_read = !self.settings.hook || self.calls[Call::ReadNotices as usize].answered;
        let permitted = !self.lost || self.settings.on_lost == OnLost::Repair;
        let is_gone = self.entry.is_gone() && !self.is_in_progress(Call::ReadHealth);
        if self.able.is_ok() && notices_read && permitted && is_gone {
            self.start_call(now, Call::Register);
        }
        // A query during a registration would not reliably return the new state.
        if !self.is_in_progress(Call::Register) {
            self.start_call(now, Call::ReadHealth);
        }
    }

    fn is_in_progress(&self, call: Call) -> bool {
        self.calls[call as usize].in_progress
    }

    /// Sets the earliest time of the next call of this kind.
    fn schedule(&mut self, call: Call, at: Instant) {
        self.calls[call as usize].not_before = Some(at);
    }

    /// Starts a call unless one of its kind is in progress or its delay has not passed.
    fn start_call(&mut self, now: Instant, call: Call) {
        let call_state = &mut self.calls[call as usize];
        if !call_state.in_progress && call_state.not_before.is_none_or(|at| now >= at) {
            (call_state.in_progress, call_state.started) = (true, Some(now));
            self.effects.push(Effect::Call(call));
        }
    }

    fn report(&mut self, finding: Finding) {
        self.effects.push(Effect::Finding(finding));
    }
}

#[cfg(test)]
pub(crate) mod tests;
