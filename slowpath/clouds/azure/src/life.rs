//! State machine of the membership in Azure backend pools: join, stay, leave. It has no clock and
//! no sockets: times, answers and signals are arguments; calls and probe answers are returned as
//! effects.
//!
//! Joining: check whether the machine is already in the pools (then nothing is written), join if
//! not, and let the health probe pass.
//!
//! - While the membership is unknown because Azure does not answer, the probe reflects the
//!   appliance's own ability alone. A probe comes from the gateway, so the machine is a member, and
//!   an outage of the API during a restart must not take a working machine out of service.
//! - If the machine is known to be in no pool, the probe gets 503 with the reason. If it is in one
//!   of two, the probe passes, because that pool sends traffic.
//! - After a permission error the call is retried every 5 minutes and the process keeps running:
//!   once the role assignment is fixed, joining succeeds without a restart. `weir cloud status`
//!   shows which permission is missing.
//!
//! If a scale set's model owns the membership, it is observed and never written.
//!
//! For tunnels see `tunnels.rs`, for leaving `leaving.rs`. [`Life`] must be stepped at least once a
//! second.

mod asking;
mod calls;
mod departure;
mod findings;
mod following;
mod leaving;
mod member;
mod membership;
mod tunnels;
mod words;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clouds::lifecycle::Machine;
use clouds::report::Finding;
use config::checked::{AzureLife, Preboot};

pub use words::{
    Admin, Answer, Call, Effect, Event, Exit, Followed, Kept, Member, Seen, Source, Why,
};

use crate::told::{CallError, Failure, Family, Tunnels};
use asking::Asking;
use departure::{Events, Leaving};
use following::Following;
use membership::Membership;

/// Interval of membership queries while everything is in order, and otherwise. A query makes up to
/// 4 reads. `Microsoft.Network` allows 10,000 reads in 5 minutes per subscription and region,
/// Resource Manager 25 a second per subscription and identity: with an interval of a minute, 500
/// machines can share a subscription.
const LOOK: Duration = Duration::from_secs(60);
const LOOK_OPEN: Duration = Duration::from_secs(15);
/// Intervals of IMDS queries; a preemption is announced 30 s in advance.
const TUNNELS: Duration = Duration::from_secs(30);
const EVENTS: Duration = Duration::from_secs(2);
/// Interval of tunnel queries while packets of unknown tunnels arrive.
const TUNNELS_STRANGE: Duration = Duration::from_secs(2);
/// How long a write may continue within Azure after its caller was killed or gave up.
const SETTLES: Duration = Duration::from_secs(180);
/// Time after the appliance became ready within which a packet is expected.
const FIRST_PACKET: Duration = Duration::from_secs(60);
/// How long Azure may treat an able appliance as not ready before that is reported.
const DIFFERS: Duration = Duration::from_secs(60);

/// State machine of the membership in Azure backend pools.
#[derive(Debug)]
pub struct Life {
    settings: AzureLife,
    /// A scale set's model owns the membership: it is never written.
    managed: bool,
    kept: Kept,
    able: Result<Instant, Vec<String>>,
    /// The appliance has been able once, which ends the preboot phase of the probe.
    was_able: bool,
    calls: [Asking; Call::COUNT],
    /// The first queries of IMDS were answered or have timed out.
    informed: bool,
    member: Membership,
    following: Following,
    /// A reference instant with its time in seconds since 1970.
    clock: Option<(Instant, u64)>,
    events: Events,
    flows: u64,
    packets: u64,
    strange: Option<u64>,
    last_active: Instant,
    ready_since: Option<Instant>,
    differs_since: Option<Instant>,
    differs: bool,
    leaving: Option<Leaving>,
    over: bool,
    probe: Option<(bool, Vec<String>)>,
    /// Active findings, with the text they were last reported with.
    standing: BTreeMap<&'static str, String>,
    effects: Vec<Effect>,
}

impl Machine for Life {
    type Call = Call;
    type Answer = Answer;
    type Tunnels = Vec<(Family, Tunnels)>;
    type Kept = Kept;

    fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.over {
            return Vec::new();
        }
        self.hear(now, event);
        if self.over {
            return std::mem::take(&mut self.effects);
        }
        self.admit(now);
        self.follow(now);
        self.compare(now);
        self.tell_probe();
        self.inform(now);
        if self.leaving.is_some() {
            self.leave(now)
        } else {
            self.stay(now)
        }
        std::mem::take(&mut self.effects)
    }

    /// Returns true if the appliance is able, is a member of all pools, is not set `Down`, and has
    /// the reported tunnels in force (with `tunnels = "alarm"`, any tunnels).
    fn ready(&self) -> bool {
        let member = self.member.fresh && self.member.in_all();
        let welcome = member && !self.member.any(Admin::Down);
        self.able.is_ok() && welcome && self.carries_right() && self.leaving.is_none()
    }

    fn differs(&self) -> bool {
        self.differs
    }

    fn leaving(&self) -> Option<(&'static str, Instant)> {
        let why = self.why()?.as_str();
        self.leaving.as_ref().map(|leaving| (why, leaving.deadline + departure::REMOVES))
    }

    fn failed(call: Call, error: CallError) -> Answer {
        Answer::failed(call, error)
    }
}

impl Life {
    /// Returns the initial state: not able, and only `kept` is known, the state of the previous
    /// process.
    pub fn new(settings: AzureLife, managed: bool, kept: Kept, now: Instant) -> Life {
        // Writes of the previous process may still be in progress.
        let settled = if kept.down || kept.joined { now + SETTLES } else { now };
        Life {
            settings,
            managed,
            kept,
            able: Err(vec!["starting".to_owned()]),
            was_able: false,
            calls: Default::default(),
            informed: false,
            member: Membership::unknown(settled),
            following: Following::default(),
            clock: None,
            events: Events::default(),
            flows: 0,
            packets: 0,
            strange: None,
            last_active: now,
            ready_since: None,
            differs_since: None,
            differs: false,
            leaving: None,
            over: false,
            probe: None,
            standing: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Returns the pools as last reported by Azure; `None` before the first query.
    pub fn pools(&self) -> Option<&[Seen]> {
        self.member.pools.as_deref()
    }

    /// Returns each pool's tunnels: those in force, those reported, and the source of the report.
    pub fn tunnels(&self) -> Vec<Followed> {
        self.following.followed(self.settings.tunnels, &self.kept)
    }

    /// Returns the id of the scheduled event to acknowledge, or because of which the machine
    /// leaves.
    pub fn event(&self) -> Option<&str> {
        self.events.current()
    }

    fn hear(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tick => {}
            Event::Able { able: true, .. } => {
                self.able = Ok(self.able_since().unwrap_or(now));
                self.was_able = true;
            }
            Event::Able { able: false, reasons } => self.able = Err(reasons),
            Event::Activity { flows, packets, strange } => {
                if flows > 0 || packets != self.packets {
                    self.last_active = now;
                }
                (self.flows, self.packets) = (flows, packets);
                if self.strange.replace(strange).is_some_and(|before| strange > before) {
                    self.hurry_for_tunnels();
                }
            }
            Event::Carries(tunnels) => self.following.carried(tunnels),
            Event::Clock(seconds) => self.clock = Some((now, seconds)),
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
        (asking.under_way, asking.answered, asking.failed) = (false, true, false);
        let epoch = asking.epoch;
        if let Some(error) = answer.error() {
            let leaving = self.leaving.is_some();
            // `Absent` is no error here: there may be no load balancer, no events or no IMDS.
            let none = matches!(call, Call::AskTunnels | Call::AskEvents);
            if none && error.kind == Failure::Absent {
                asking.not_before = Some(now + TUNNELS);
            } else {
                asking.failed = true;
                asking.not_before = Some(now + asking::again(error.kind, leaving));
                self.find(findings::failed(error));
            }
        }
        match answer {
            Answer::Looked(result) => self.looked(now, epoch, result),
            Answer::Joined(result) => self.joined(now, result),
            Answer::Down(result) => self.put_down(now, result),
            Answer::Up(_) => self.later(Call::Look, now),
            Answer::Left(result) => self.left(now, result),
            Answer::Tunnels(Ok(tunnels)) => {
                self.following.imds(now, Some(tunnels));
                let hurried = std::mem::take(&mut self.calls[call as usize].hurried);
                self.later(call, now + if hurried { TUNNELS_STRANGE } else { TUNNELS });
            }
            Answer::Tunnels(Err(error)) => {
                let none = (error.kind == Failure::Absent).then(Vec::new);
                self.following.imds(now, none);
            }
            Answer::Events(Ok(events)) => {
                self.later(Call::AskEvents, now + EVENTS);
                self.noticed(now, events);
            }
            Answer::Acknowledged(_) => self.events.acknowledged(),
            Answer::Events(Err(_)) => {}
        }
    }

    /// Stops failing the probe if queries stay unanswered for [`asking::PATIENCE`].
    fn admit(&mut self, now: Instant) {
        let able = self.able_since();
        let look = self.calls[Call::Look as usize];
        let silent = look.under_way && !look.answered && look.waited(now, able);
        if silent && able.is_some() {
            self.member.admit_unknown();
        }
        let mut first = vec![Call::AskTunnels];
        if self.settings.events {
            first.push(Call::AskEvents);
        }
        let heard = |call: Call| {
            let asking = self.calls[call as usize];
            asking.answered || asking.waited(now, None)
        };
        self.informed |= first.into_iter().all(heard);
    }

    /// Compares how Azure treats the machine with the appliance's own state.
    fn compare(&mut self, now: Instant) {
        let ready = self.ready();
        let since = *self.ready_since.get_or_insert(now);
        if !ready {
            self.ready_since = None;
        }
        let long = ready && now >= since + FIRST_PACKET;
        let said = self.standing.contains_key(findings::NO_PACKETS);
        let silent = self.packets == 0 && (long || said);
        self.stand(findings::NO_PACKETS, || silent.then(|| findings::no_packets(FIRST_PACKET)));
        let looked = self.member.pools.is_some() && self.leaving.is_none();
        let since = *self.differs_since.get_or_insert(now);
        let otherwise = looked && self.able.is_ok() && !ready;
        if !otherwise {
            self.differs_since = None;
        }
        self.differs = otherwise && now >= since + DIFFERS;
    }

    fn tell_probe(&mut self) {
        let preboot = self.settings.preboot == Preboot::Pass && !self.was_able;
        let mut reasons = Vec::new();
        if let Some(why) = self.why() {
            reasons.push(why.as_str().to_owned());
        } else if !preboot {
            reasons.extend(self.able.as_ref().err().into_iter().flatten().cloned());
            if !self.member.admitted {
                let waiting = || "it is not known yet whether this is a member of the pool".into();
                reasons.push(self.member.refused.clone().unwrap_or_else(waiting));
            } else if !self.informed {
                reasons.push("the pool's tunnels are being asked for".to_owned());
            }
        }
        // Not able without any reason given is still not able.
        let able = self.able.is_ok() || preboot;
        let told = (reasons.is_empty() && able, reasons);
        if self.probe.as_ref() != Some(&told) {
            self.effects.push(Effect::Probe { pass: told.0, reasons: told.1.clone() });
            self.probe = Some(told);
        }
    }

    /// Queries IMDS, also while leaving: traffic continues, and an event may be canceled.
    fn inform(&mut self, now: Instant) {
        self.ask(now, Call::AskTunnels);
        if self.settings.events {
            self.ask(now, Call::AskEvents);
        }
    }

    /// Changes the kept state, and writes it if the change makes a difference.
    fn keep(&mut self, change: impl FnOnce(&mut Kept)) {
        let before = self.kept.clone();
        change(&mut self.kept);
        if self.kept != before {
            self.effects.push(Effect::Keep(self.kept.clone()));
        }
    }

    fn find(&mut self, finding: Finding) {
        self.effects.push(Effect::Finding(finding));
    }

    /// Starts or ends an active finding. It is reported when it starts and when its text changes.
    fn stand(&mut self, name: &'static str, finding: impl FnOnce() -> Option<Finding>) {
        let Some(finding) = finding() else {
            self.standing.remove(name);
            return;
        };
        if self.standing.get(name) != Some(&finding.text) {
            self.standing.insert(name, finding.text.clone());
            self.find(finding);
        }
    }
}

#[cfg(test)]
mod tests;
