//! The way into the target group, the stay there, and the way out. No clock and no socket: times,
//! answers and signals are arguments, calls and what probes are told are returned.
//!
//! In: look whether we are a target already, register if not, and let the probe pass. While it is
//! not known whether we are, because the cloud is out, the probe tells our own ability alone: it
//! comes from the gateway, so we are a target, and an outage of the cloud's API together with a
//! restart of ours must not take a machine out that works. Known not to be one, the probe says 503
//! with the reason; a permission that is missing is asked again every 5 minutes and never an exit,
//! because whoever mends it at night mends it in IAM, and `weir cloud status` says what to mend.
//!
//! Out, see `leaving.rs`. [`Life`] is stepped at least once a second.

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

/// From look to look while the cloud says healthy, and while it doesn't.
const LOOK: Duration = Duration::from_secs(30);
const LOOK_WAITING: Duration = Duration::from_secs(10);
/// From one reading of the attributes to the next.
const ATTRIBUTES: Duration = Duration::from_secs(300);
/// From one question to IMDS to the next.
const NOTICES: Duration = Duration::from_secs(5);
/// A hook waits 30 s at least.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// After a call that came to nothing though it was tried for minutes, and after one that was
/// refused.
const AGAIN: Duration = Duration::from_secs(30);
const REFUSED_AGAIN: Duration = Duration::from_secs(300);
/// How long an unanswered look may hold the probe back: less than a gateway takes to give us up
/// (2 probes, 10 s apart).
const LOOK_PATIENCE: Duration = Duration::from_secs(10);
/// From healthy to the first packet.
const FIRST_PACKET: Duration = Duration::from_secs(60);
/// How long the cloud may think otherwise than we before it is a finding.
const DIFFERS: Duration = Duration::from_secs(60);

/// What is known of our entry among the targets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nobody has told.
    Unknown,
    /// There is none.
    Absent,
    /// This.
    Is(Target),
}

impl Entry {
    /// The state of it, where there is one that may get traffic or would if it were healthy.
    fn state(&self) -> Option<TargetState> {
        match self {
            Entry::Is(target) => Some(target.state),
            _ => None,
        }
    }

    /// Known not to be a target, or not for long.
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

/// A kind of call.
#[derive(Clone, Copy, Debug, Default)]
struct Asking {
    under_way: bool,
    begun: Option<Instant>,
    not_before: Option<Instant>,
    answered: bool,
}

/// The machine.
#[derive(Debug)]
pub struct Life {
    settings: Lifecycle,
    able: Result<Instant, Vec<String>>,
    calls: [Asking; Call::COUNT],
    entry: Entry,
    /// Once registered, or found so, or not told: from then on the probe tells our ability.
    admitted: bool,
    /// Why the last registration came to nothing.
    refused: Option<String>,
    /// We were a target, by our doing or found so.
    member: bool,
    /// Somebody else took our registration away.
    lost: bool,
    healthy_since: Option<Instant>,
    said_no_packets: bool,
    /// Since when the cloud thinks otherwise than we; none once it was said.
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
        self.differs_since.is_some()
    }

    fn leaving(&self) -> Option<(&'static str, Instant)> {
        self.leaving.as_ref().map(|leaving| (leaving.why.as_str(), leaving.deadline))
    }

    fn failed(call: Call, error: CallError) -> Answer {
        Answer::failed(call, error)
    }
}

impl Life {
    /// Not able, and nothing known.
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

    /// What is known of our entry among the targets.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// What was read of group, load balancer and listener last.
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
                // Leaving, time is short: what was a fault may be over.
                (false, true) => departure::AGAIN,
                (false, false) => AGAIN,
                (true, _) => REFUSED_AGAIN,
            };
            asking.not_before = Some(now + pause);
            // No instance of Auto Scaling's or no IMDS at all is no fault.
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
            // Not told whether we are a target: then our ability alone counts, see above.
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
                // Not at once: it may not be known everywhere yet.
                self.later(Call::AskHealth, now + LOOK_WAITING);
            }
            // It may have taken effect all the same.
            Err(error) => {
                self.refused = Some(format!("not registered: {error}"));
                self.admitted &= self.member;
                self.later(Call::AskHealth, now);
            }
        }
        self.entry = Entry::Unknown;
        self.registered_while_leaving(now);
    }

    /// A look at our entry that began at `begun`.
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

    /// A look that isn't answered does not hold the probe back for long.
    fn admit(&mut self, now: Instant) {
        let asking = self.calls[Call::AskHealth as usize];
        let waited = asking.begun.max(self.able_since()).is_some_and(|b| now >= b + LOOK_PATIENCE);
        let silent = asking.under_way && !asking.answered && waited;
        self.admitted |= silent && self.able.is_ok();
    }

    /// What the cloud thinks of us against what we know.
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
        // Not able, and nobody said why: still not able.
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
        // What a registration under way will have done, a look can't know.
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

    /// Begins a call unless one is under way or it is too early.
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
