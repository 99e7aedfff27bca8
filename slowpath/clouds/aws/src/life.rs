//! State machine of the registration with an AWS target group: register, stay, deregister. It has
//! no clock and no sockets: times, answers and signals are arguments; calls and probe answers are
//! returned as effects.
//!
//! Registration: check whether the target is already registered, register it if not, then let the
//! health probe pass.
//!
//! - While the state is unknown because AWS does not answer, the probe reflects the appliance's own
//!   ability alone. A probe comes from the gateway, so the target is registered, and an outage of
//!   the API during a restart must not take a working machine out of service.
//! - If the target is known not to be registered, the probe gets 503 with the reason.
//! - After a permission error the call is retried every 5 minutes and the process keeps running:
//!   once the IAM policy is fixed, registration succeeds without a restart. `weir cloud status`
//!   shows which permission is missing.
//!
//! For deregistration see `leaving.rs`. [`Life`] must be stepped at least once a second.

mod departure;
mod findings;
mod leaving;
mod words;

use std::time::{Duration, Instant};

use config::checked::{Lifecycle, OnLost};

pub use words::{Answer, Call, Effect, Event, Exit, Notices, Why};

use crate::told::{Attributes, CallError, Failure, Target, TargetState};
use clouds::lifecycle::{Machine, Never};
use clouds::report::Finding;
use departure::Leaving;

/// Interval of target health queries while the target is healthy, and otherwise.
const LOOK: Duration = Duration::from_secs(30);
const LOOK_WAITING: Duration = Duration::from_secs(10);
/// Interval of attribute queries.
const ATTRIBUTES: Duration = Duration::from_secs(300);
/// Interval of IMDS queries for termination notices.
const NOTICES: Duration = Duration::from_secs(5);
/// Interval of heartbeats; the minimum heartbeat timeout of a hook is 30 s.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// Delay before repeating a call that failed after all its retries, and one that failed
/// permanently.
const AGAIN: Duration = Duration::from_secs(30);
const REFUSED_AGAIN: Duration = Duration::from_secs(300);
/// Maximum time for which an unanswered health query makes the probe fail. It must be shorter than
/// the time in which a gateway marks a target unhealthy (2 probes, 10 s apart).
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// Time after the target became healthy within which a packet is expected.
const FIRST_PACKET: Duration = Duration::from_secs(60);
/// How long AWS's view of the health may differ from the appliance's before it is reported.
const DIFFERS: Duration = Duration::from_secs(60);

/// What is known about this appliance's entry in the target group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// No answer yet.
    Unknown,
    /// There is no entry.
    Absent,
    /// The entry as last reported.
    Is(Target),
}

impl Entry {
    /// Returns the state of the entry, if there is one.
    fn state(&self) -> Option<TargetState> {
        match self {
            Entry::Is(target) => Some(target.state),
            _ => None,
        }
    }

    /// Returns true if the target is known not to be registered, or to be draining.
    fn is_gone(&self) -> bool {
        matches!(self, Entry::Absent) || self.state() == Some(TargetState::Draining)
    }

    fn of(told: Option<Target>) -> Entry {
        let unregistered = |target: &Target| {
            target.state == TargetState::Unused
                && target.reason.as_deref() == Some("Target.NotRegistered")
        };
        told.filter(|target| !unregistered(target)).map_or(Entry::Absent, Entry::Is)
    }
}

/// Scheduling state of one kind of call.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    under_way: bool,
    begun: Option<Instant>,
    not_before: Option<Instant>,
    answered: bool,
}

/// State machine of the registration with an AWS target group.
#[derive(Debug)]
pub struct Life {
    settings: Lifecycle,
    able: Result<Instant, Vec<String>>,
    calls: [Asking; Call::COUNT],
    entry: Entry,
    /// Set once the target is registered, was found registered, or the query failed. From then on
    /// the probe reflects the appliance's ability.
    admitted: bool,
    /// Why the last registration failed.
    refused: Option<String>,
    /// True if the target was registered, by this process or before.
    member: bool,
    /// The registration was removed by another party.
    lost: bool,
    healthy_since: Option<Instant>,
    said_no_packets: bool,
    /// Since when AWS's view of the health differs from the appliance's; `None` while they agree.
    differs_since: Option<Instant>,
    said_differs: bool,
    attributes: Option<Attributes>,
    flow_timeout: Option<Duration>,
    flows: u64,
    packets: u64,
    last_active: Instant,
    leaving: Option<Leaving>,
    over: bool,
    probe: Option<(bool, Vec<String>)>,
    effects: Vec<Effect>,
}

impl Machine for Life {
    type Call = Call;
    type Answer = Answer;
    type Tunnels = Never;
    type Kept = Never;

    fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.over {
            return Vec::new();
        }
        self.hear(now, event);
        if self.over {
            return std::mem::take(&mut self.effects);
        }
        self.admit(now);
        self.compare(now);
        self.tell_probe(now);
        if self.leaving.is_some() {
            self.leave(now)
        } else {
            self.stay(now)
        }
        std::mem::take(&mut self.effects)
    }

    fn ready(&self) -> bool {
        let healthy = self.entry.state() == Some(TargetState::Healthy);
        self.able.is_ok() && healthy && self.leaving.is_none()
    }

    fn differs(&self) -> bool {
        self.said_differs
    }

    fn leaving(&self) -> Option<(&'static str, Instant)> {
        self.leaving.as_ref().map(|leaving| (leaving.why.as_str(), leaving.deadline))
    }

    fn failed(call: Call, error: CallError) -> Answer {
        Answer::failed(call, error)
    }
}

impl Life {
    /// Returns the initial state: not able, entry unknown.
    pub fn new(settings: Lifecycle, now: Instant) -> Life {
        Life {
            settings,
            able: Err(vec!["starting".to_owned()]),
            calls: Default::default(),
            entry: Entry::Unknown,
            admitted: false,
            refused: None,
            member: false,
            lost: false,
            healthy_since: None,
            said_no_packets: false,
            differs_since: None,
            said_differs: false,
            attributes: None,
            flow_timeout: None,
            flows: 0,
            packets: 0,
            last_active: now,
            leaving: None,
            over: false,
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

    fn hear(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tick | Event::Clock(_) => {}
            Event::Carries(never) => match never {},
            Event::Able { able: true, .. } => self.able = Ok(self.able_since().unwrap_or(now)),
            Event::Able { able: false, reasons } => self.able = Err(reasons),
            Event::Activity { flows, packets, .. } => {
                if flows > 0 || packets != self.packets {
                    self.last_active = now;
                }
                (self.flows, self.packets) = (flows, packets);
            }
            Event::Terminate => self.terminate(now),
            Event::Told(answer) => self.told(now, answer),
        }
    }

    fn able_since(&self) -> Option<Instant> {
        self.able.as_ref().ok().copied()
    }

    fn told(&mut self, now: Instant, answer: Answer) {
        let call = answer.of();
        let asking = &mut self.calls[call as usize];
        let begun = asking.begun;
        (asking.under_way, asking.answered) = (false, true);
        if let Some(error) = answer.error() {
            let refused = !error.kind.passes();
            let pause = match (refused, self.leaving.is_some()) {
                // Time is short while leaving, and a temporary error may be over.
                (false, true) => departure::AGAIN,
                (false, false) => AGAIN,
                (true, _) => REFUSED_AGAIN,
            };
            asking.not_before = Some(now + pause);
            // `Absent` is no error here: not every instance is in an Auto Scaling group or has
            // IMDS.
            if call != Call::AskNotices || error.kind != Failure::Absent {
                self.find(findings::failed(error, refused));
            }
        }
        match answer {
            Answer::Registered(result) => self.registered(now, result),
            Answer::Deregistered(result) => self.deregistered(now, result),
            Answer::Health(Ok(told)) => self.looked(now, begun, Entry::of(told)),
            Answer::Health(Err(error)) if error.kind == Failure::Absent && !self.member => {
                self.refused = Some(format!("not registered: {error}"));
            }
            // The registration is unknown, so the appliance's ability alone decides; see the module
            // docs.
            Answer::Health(Err(_)) => self.admitted |= self.refused.is_none(),
            Answer::Attributes(Ok(attributes)) => {
                if self.flow_timeout != Some(attributes.tcp_idle) {
                    self.flow_timeout = Some(attributes.tcp_idle);
                    self.effects.push(Effect::FlowTimeout(attributes.tcp_idle));
                }
                self.attributes = Some(attributes);
                self.later(Call::AskAttributes, now + ATTRIBUTES);
            }
            Answer::Notices(Ok(notices)) => {
                self.later(Call::AskNotices, now + NOTICES);
                self.noticed(now, notices);
            }
            Answer::Heartbeat(Ok(())) => self.later(Call::Heartbeat, now + HEARTBEAT),
            Answer::HookCompleted(_) => self.hook_completed(),
            Answer::Attributes(Err(_)) | Answer::Notices(Err(_)) | Answer::Heartbeat(Err(_)) => {}
        }
    }

    fn registered(&mut self, now: Instant, result: Result<(), CallError>) {
        match result {
            Ok(()) => {
                self.refused = None;
                (self.admitted, self.member) = (true, true);
                // Not at once, because the registration takes time to propagate within AWS.
                self.later(Call::AskHealth, now + LOOK_WAITING);
            }
            // The registration may have taken effect despite the error.
            Err(error) => {
                self.refused = Some(format!("not registered: {error}"));
                self.admitted &= self.member;
                self.later(Call::AskHealth, now);
            }
        }
        self.entry = Entry::Unknown;
        self.registered_while_leaving(now);
    }

    /// Processes a health answer; the query was started at `begun`.
    fn looked(&mut self, now: Instant, begun: Option<Instant>, entry: Entry) {
        let healthy = entry.state() == Some(TargetState::Healthy);
        self.later(Call::AskHealth, now + if healthy { LOOK } else { LOOK_WAITING });
        if !entry.is_gone() {
            (self.admitted, self.refused, self.lost, self.member) = (true, None, false, true);
        } else if self.member {
            if !self.lost && self.leaving.is_none() {
                self.find(findings::lost(self.settings.on_lost));
            }
            self.lost = true;
        }
        self.healthy_since = if healthy { self.healthy_since.or(Some(now)) } else { None };
        self.entry = entry;
        self.looked_while_leaving(now, begun);
    }

    /// Stops failing the probe if a health query stays unanswered for [`LOOK_PATIENCE`].
    fn admit(&mut self, now: Instant) {
        let asking = self.calls[Call::AskHealth as usize];
        let waited = asking.begun.max(self.able_since()).is_some_and(|b| now >= b + LOOK_PATIENCE);
        let silent = asking.under_way && !asking.answered && waited;
        self.admitted |= silent && self.able.is_ok();
    }

    /// Compares AWS's view of the target's health with the appliance's own.
    fn compare(&mut self, now: Instant) {
        let state = self.entry.state().filter(|_| self.admitted && self.leaving.is_none());
        let since = self.healthy_since.filter(|_| state == Some(TargetState::Healthy));
        let long = since.is_some_and(|since| now >= since + FIRST_PACKET);
        if long && self.packets == 0 && !self.said_no_packets {
            self.said_no_packets = true;
            self.find(findings::no_packets(FIRST_PACKET));
        }
        if self.able.is_err()
            || matches!(state, None | Some(TargetState::Healthy | TargetState::Initial))
        {
            (self.differs_since, self.said_differs) = (None, false);
            return;
        }
        let since = *self.differs_since.get_or_insert(now);
        if let Entry::Is(target) = &self.entry
            && now >= since + DIFFERS
            && !self.said_differs
        {
            let finding = findings::differs(target, DIFFERS);
            self.said_differs = true;
            self.find(finding);
        }
    }

    fn tell_probe(&mut self, now: Instant) {
        let mut reasons = self.able.as_ref().err().cloned().unwrap_or_default();
        if let Some(why) = self.leaving.as_ref().and_then(|leaving| leaving.refuses(now)) {
            reasons.push(why.as_str().to_owned());
        } else if !self.admitted && self.leaving.is_none() {
            let waiting = || "not registered with the target group yet".to_owned();
            reasons.push(self.refused.clone().unwrap_or_else(waiting));
        }
        // Not able without any reason given is still not able.
        let told = (reasons.is_empty() && self.able.is_ok(), reasons);
        if self.probe.as_ref() != Some(&told) {
            self.effects.push(Effect::Probe { pass: told.0, reasons: told.1.clone() });
            self.probe = Some(told);
        }
    }

    fn stay(&mut self, now: Instant) {
        if self.settings.hook {
            self.ask(now, Call::AskNotices);
        }
        self.ask(now, Call::AskAttributes);
        let warned = !self.settings.hook || self.calls[Call::AskNotices as usize].answered;
        let wanted = !self.lost || self.settings.on_lost == OnLost::Repair;
        let fresh = self.entry.is_gone() && !self.is_under_way(Call::AskHealth);
        if self.able.is_ok() && warned && wanted && fresh {
            self.ask(now, Call::Register);
        }
        // A query during a registration would not reliably see its result.
        if !self.is_under_way(Call::Register) {
            self.ask(now, Call::AskHealth);
        }
    }

    fn is_under_way(&self, call: Call) -> bool {
        self.calls[call as usize].under_way
    }

    fn later(&mut self, call: Call, at: Instant) {
        self.calls[call as usize].not_before = Some(at);
    }

    /// Starts a call unless one of its kind is in progress or its delay has not passed.
    fn ask(&mut self, now: Instant, call: Call) {
        let asking = &mut self.calls[call as usize];
        if !asking.under_way && asking.not_before.is_none_or(|at| now >= at) {
            (asking.under_way, asking.begun) = (true, Some(now));
            self.effects.push(Effect::Call(call));
        }
    }

    fn find(&mut self, finding: Finding) {
        self.effects.push(Effect::Finding(finding));
    }
}

#[cfg(test)]
pub(crate) mod tests;
