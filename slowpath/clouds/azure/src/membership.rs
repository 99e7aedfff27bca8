//! State machine of the membership in Azure backend pools: join, stay, leave. It has no clock and
//! no sockets: times, answers and signals are arguments; calls and probe answers are returned as
//! effects.
//!
//! Joining: check whether the machine is already in the pools (then nothing is written), join if
//! not, and let the health probe pass.
//!
//! - While the membership is unknown because Azure does not answer, the probe reflects the
//!   appliance's own ability alone. If probes arrive at all, the machine is a member, and an outage
//!   of the API during a restart must not take a working machine out of service.
//! - If the machine is known to be in no pool, the probe gets 503 with the reason. If the machine
//!   is in one of its two pools, the probe passes, because that pool sends traffic.
//! - After a permission error the call is retried every 5 minutes and the process keeps running:
//!   once the role assignment is fixed, joining succeeds without a restart. `weir cloud status`
//!   shows which permission is missing.
//!
//! If a scale set's model owns the membership, Weir observes the membership and never writes it.
//!
//! For tunnels see `tunnels.rs`, for leaving `shutdown.rs`. [`Membership`] must be stepped at least
//! once a second.

mod call_state;
mod calls;
mod drain;
mod entries;
mod event;
mod findings;
mod observed;
mod shutdown;
mod tunnel_reports;
mod tunnels;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clouds::lifecycle::Machine;
use clouds::report::Finding;
use config::checked::{AzureLifecycleSettings, Preboot};

pub use event::{
    AdminState, Answer, Call, DrainReason, Effect, Event, Exit, Member, PersistedState, PoolState,
    TunnelSource, TunnelStatus,
};

use crate::types::{CallError, Failure, Family, Tunnels};
use call_state::CallState;
use drain::{Drain, ScheduledEvents};
use observed::ObservedEntries;
use tunnel_reports::TunnelReports;

/// Interval of membership queries while everything is in order. A query reads the load balancer,
/// and the interfaces of members whose addresses are not cached yet. `Microsoft.Network` allows
/// 10,000 reads in 5 minutes per subscription and region, Resource Manager 25 a second per
/// subscription and identity: with an interval of a minute, hundreds of machines can share a
/// subscription.
const POOLS_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of membership queries while a membership or its tunnels are not as desired.
const POOLS_INTERVAL_UNSETTLED: Duration = Duration::from_secs(15);
/// Interval of tunnel queries to IMDS; also the delay of a tunnel or event query after IMDS had no
/// such document.
const TUNNELS_INTERVAL: Duration = Duration::from_secs(30);
/// Interval of event queries to IMDS; a preemption is announced only 30 s in advance.
const EVENTS_INTERVAL: Duration = Duration::from_secs(2);
/// Interval of tunnel queries while packets of unknown tunnels arrive.
const TUNNELS_INTERVAL_UNKNOWN: Duration = Duration::from_secs(2);
/// How long a write may continue within Azure after its caller was killed or gave up.
const WRITE_SETTLE_TIME: Duration = Duration::from_secs(180);
/// Time within which a packet is expected after the appliance has become ready.
const FIRST_PACKET_TIMEOUT: Duration = Duration::from_secs(60);
/// How long an able appliance may be not ready, or IMDS and Resource Manager may report different
/// tunnels, before that is reported.
const MISMATCH_GRACE: Duration = Duration::from_secs(60);

/// State machine of the membership in Azure backend pools.
#[derive(Debug)]
pub struct Membership {
    settings: AzureLifecycleSettings,
    /// A scale set's model owns the membership, so Weir never writes it.
    managed: bool,
    persisted: PersistedState,
    able: Result<Instant, Vec<String>>,
    /// The appliance has been able once; `azure.preboot_health` applies only before.
    was_able: bool,
    calls: [CallState; Call::COUNT],
    /// The first queries of IMDS were answered or have timed out.
    imds_checked: bool,
    observed: ObservedEntries,
    tunnel_reports: TunnelReports,
    /// A reference instant, with its Unix time in seconds.
    clock: Option<(Instant, u64)>,
    events: ScheduledEvents,
    flows: u64,
    packets: u64,
    /// Packets of unknown tunnels, as last counted; `None` before the first count.
    unknown_tunnel: Option<u64>,
    last_active: Instant,
    ready_since: Option<Instant>,
    differs_since: Option<Instant>,
    differs: bool,
    drain: Option<Drain>,
    exited: bool,
    probe: Option<(bool, Vec<String>)>,
    /// Active findings, each with the text with which it was last reported.
    active_findings: BTreeMap<&'static str, String>,
    effects: Vec<Effect>,
}

impl Machine for Membership {
    type Call = Call;
    type Answer = Answer;
    type Tunnels = Vec<(Family, Tunnels)>;
    type Persisted = PersistedState;

    fn step(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        if self.exited {
            return Vec::new();
        }
        self.handle(now, event);
        if self.exited {
            return std::mem::take(&mut self.effects);
        }
        self.admit_on_timeout(now);
        self.apply_tunnels(now);
        self.check_readiness(now);
        self.update_probe();
        self.query_imds(now);
        if self.drain.is_some() {
            self.drain_step(now)
        } else {
            self.maintain(now)
        }
        std::mem::take(&mut self.effects)
    }

    /// Returns true if the appliance is able and not leaving, the machine is a member of all pools
    /// and nowhere set `Down`, and the reported tunnels are in force (with `tunnels = "report"`:
    /// any tunnels).
    fn ready(&self) -> bool {
        let member = self.observed.fresh && self.observed.in_all();
        let accepting = member && !self.observed.has_state(AdminState::Down);
        self.able.is_ok() && accepting && self.tunnels_match() && self.drain.is_none()
    }

    fn differs(&self) -> bool {
        self.differs
    }

    fn leaving(&self) -> Option<(&'static str, Instant)> {
        let reason = self.leave_reason()?.as_str();
        self.drain.as_ref().map(|drain| (reason, drain.deadline + drain::REMOVAL_TIMEOUT))
    }

    fn failed(call: Call, error: CallError) -> Answer {
        Answer::failed(call, error)
    }
}

impl Membership {
    /// Returns the initial state: not able, and nothing known but `persisted`, the state of the
    /// previous process.
    pub fn new(
        settings: AzureLifecycleSettings,
        managed: bool,
        persisted: PersistedState,
        now: Instant,
    ) -> Membership {
        // A write of the previous process may still be in progress.
        let settled =
            if persisted.down || persisted.joined { now + WRITE_SETTLE_TIME } else { now };
        Membership {
            settings,
            managed,
            persisted,
            able: Err(vec!["starting".to_owned()]),
            was_able: false,
            calls: Default::default(),
            imds_checked: false,
            observed: ObservedEntries::unknown(settled),
            tunnel_reports: TunnelReports::default(),
            clock: None,
            events: ScheduledEvents::default(),
            flows: 0,
            packets: 0,
            unknown_tunnel: None,
            last_active: now,
            ready_since: None,
            differs_since: None,
            differs: false,
            drain: None,
            exited: false,
            probe: None,
            active_findings: BTreeMap::new(),
            effects: Vec::new(),
        }
    }

    /// Returns the pools as last reported by Azure; `None` before the first query.
    pub fn pools(&self) -> Option<&[PoolState]> {
        self.observed.pools.as_deref()
    }

    /// Returns each pool's tunnels: those in force, those reported, and the source of the report.
    pub fn tunnels(&self) -> Vec<TunnelStatus> {
        self.tunnel_reports.statuses(self.settings.tunnels, &self.persisted)
    }

    /// Returns the id of a scheduled event: of the one that is being acknowledged, else the next
    /// one to acknowledge, else the first one because of which the machine leaves.
    pub fn event(&self) -> Option<&str> {
        self.events.current()
    }

    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tick => {}
            Event::Able { able: true, .. } => {
                self.able = Ok(self.able_since().unwrap_or(now));
                self.was_able = true;
            }
            Event::Able { able: false, reasons } => self.able = Err(reasons),
            Event::Activity { flows, packets, unknown_tunnel } => {
                if flows > 0 || packets != self.packets {
                    self.last_active = now;
                }
                (self.flows, self.packets) = (flows, packets);
                if self
                    .unknown_tunnel
                    .replace(unknown_tunnel)
                    .is_some_and(|before| unknown_tunnel > before)
                {
                    self.expedite_tunnels();
                }
            }
            Event::TunnelsInForce(tunnels) => self.tunnel_reports.set_in_force(tunnels),
            Event::Clock(seconds) => self.clock = Some((now, seconds)),
            Event::Terminate => self.handle_terminate(now),
            Event::Answered(answer) => self.handle_answer(now, answer),
        }
    }

    fn able_since(&self) -> Option<Instant> {
        self.able.as_ref().ok().copied()
    }

    fn handle_answer(&mut self, now: Instant, answer: Answer) {
        let call = answer.of();
        let state = &mut self.calls[call as usize];
        (state.in_progress, state.answered, state.failed) = (false, true, false);
        let epoch = state.epoch;
        if let Some(error) = answer.error() {
            let leaving = self.drain.is_some();
            // For these queries of IMDS, `Absent` only means that there is nothing to report.
            let optional = matches!(call, Call::ReadTunnels | Call::ReadEvents);
            if optional && error.kind == Failure::Absent {
                state.not_before = Some(now + TUNNELS_INTERVAL);
            } else {
                state.failed = true;
                state.not_before = Some(now + call_state::retry_delay(error.kind, leaving));
                self.report(findings::failed(error));
            }
        }
        match answer {
            Answer::Pools(result) => self.handle_pools(now, epoch, result),
            Answer::Joined(result) => self.handle_joined(now, result),
            Answer::Down(result) => self.handle_down(now, result),
            Answer::Up(_) => self.schedule_call(Call::ReadPools, now),
            Answer::Left(result) => self.handle_left(now, result),
            Answer::Tunnels(Ok(tunnels)) => {
                self.tunnel_reports.record_imds(now, Some(tunnels));
                let expedited = std::mem::take(&mut self.calls[call as usize].expedited);
                self.schedule_call(
                    call,
                    now + if expedited { TUNNELS_INTERVAL_UNKNOWN } else { TUNNELS_INTERVAL },
                );
            }
            Answer::Tunnels(Err(error)) => {
                let none = (error.kind == Failure::Absent).then(Vec::new);
                self.tunnel_reports.record_imds(now, none);
            }
            Answer::Events(Ok(events)) => {
                self.schedule_call(Call::ReadEvents, now + EVENTS_INTERVAL);
                self.handle_events(now, events);
            }
            Answer::Acknowledged(_) => self.events.end_acknowledgment(),
            Answer::Events(Err(_)) => {}
        }
    }

    /// After [`call_state::QUERY_TIMEOUT`], unanswered first queries no longer make the probe fail.
    fn admit_on_timeout(&mut self, now: Instant) {
        let able = self.able_since();
        let query = self.calls[Call::ReadPools as usize];
        let silent = query.in_progress && !query.answered && query.timed_out(now, able);
        if silent && able.is_some() {
            self.observed.admit_unknown();
        }
        let mut queries = vec![Call::ReadTunnels];
        if self.settings.events {
            queries.push(Call::ReadEvents);
        }
        let done = |call: Call| {
            let state = self.calls[call as usize];
            state.answered || state.timed_out(now, None)
        };
        self.imds_checked |= queries.into_iter().all(done);
    }

    /// Reports a ready machine that receives no packets, and determines whether an able machine is
    /// not ready for too long.
    fn check_readiness(&mut self, now: Instant) {
        let ready = self.ready();
        let since = *self.ready_since.get_or_insert(now);
        if !ready {
            self.ready_since = None;
        }
        let long = ready && now >= since + FIRST_PACKET_TIMEOUT;
        let reported = self.active_findings.contains_key(findings::NO_PACKETS);
        let silent = self.packets == 0 && (long || reported);
        self.set_finding(findings::NO_PACKETS, || {
            silent.then(|| findings::no_packets(FIRST_PACKET_TIMEOUT))
        });
        let known = self.observed.pools.is_some() && self.drain.is_none();
        let since = *self.differs_since.get_or_insert(now);
        let mismatch = known && self.able.is_ok() && !ready;
        if !mismatch {
            self.differs_since = None;
        }
        self.differs = mismatch && now >= since + MISMATCH_GRACE;
    }

    fn update_probe(&mut self) {
        let preboot = self.settings.preboot == Preboot::Pass && !self.was_able;
        let mut reasons = Vec::new();
        if let Some(reason) = self.leave_reason() {
            reasons.push(reason.as_str().to_owned());
        } else if !preboot {
            reasons.extend(self.able.as_ref().err().into_iter().flatten().cloned());
            if !self.observed.admitted {
                let waiting = || "membership of the pool not known yet".into();
                reasons.push(self.observed.not_member_reason.clone().unwrap_or_else(waiting));
            } else if !self.imds_checked {
                reasons.push("reading the pool's tunnels from the metadata service".to_owned());
            }
        }
        // An appliance that is not able fails the probe even if it gives no reason.
        let able = self.able.is_ok() || preboot;
        let answer = (reasons.is_empty() && able, reasons);
        if self.probe.as_ref() != Some(&answer) {
            self.effects.push(Effect::Probe { pass: answer.0, reasons: answer.1.clone() });
            self.probe = Some(answer);
        }
    }

    /// Queries IMDS, also while leaving: traffic continues, and an event may be canceled.
    fn query_imds(&mut self, now: Instant) {
        self.start(now, Call::ReadTunnels);
        if self.settings.events {
            self.start(now, Call::ReadEvents);
        }
    }

    /// Changes the persisted state, and writes it if it differs from before.
    fn persist(&mut self, change: impl FnOnce(&mut PersistedState)) {
        let before = self.persisted.clone();
        change(&mut self.persisted);
        if self.persisted != before {
            self.effects.push(Effect::Persist(self.persisted.clone()));
        }
    }

    fn report(&mut self, finding: Finding) {
        self.effects.push(Effect::Finding(finding));
    }

    /// Starts or ends an active finding. It is reported when it starts and when its text changes.
    fn set_finding(&mut self, name: &'static str, finding: impl FnOnce() -> Option<Finding>) {
        let Some(finding) = finding() else {
            self.active_findings.remove(name);
            return;
        };
        if self.active_findings.get(name) != Some(&finding.text) {
            self.active_findings.insert(name, finding.text.clone());
            self.report(finding);
        }
    }
}

#[cfg(test)]
mod tests;
