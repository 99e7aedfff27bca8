//! State machine that schedules health checks and evaluates their results. It has no clock and no
//! socket: times and results are inputs, probes to start and verdicts are outputs.
//!
//! Every backend of a service is scheduled once per interval, and probed up to `jitter` later. The
//! number of running probes is limited; the probe that has waited longest starts first. A failure
//! is detected after at most `fall * interval + jitter + timeout`, as long as the limit of running
//! probes delays no probe. A probe that starts more than a tenth of its interval too late is
//! counted, and shifts the backend's schedule, so that delayed probes do not come in bursts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use config::services::Timing;
use fastrand::Rng;
use state::address::Endpoint;
use state::name::Name;

use crate::verdict::{HealthState, HealthStateMachine};

#[cfg(test)]
mod tests;

/// Desired health check of one backend of a service.
#[derive(Clone, PartialEq, Debug)]
pub struct DesiredCheck<T> {
    /// The backend.
    pub endpoint: Endpoint,
    /// Timing and thresholds of the verdict.
    pub timing: Timing,
    /// Target of the probe.
    pub target: T,
}

/// A probe to start. Each one must be reported to [`Scheduler::done`] exactly once.
#[derive(Debug)]
pub struct Start<T> {
    /// Token to report the result with.
    pub token: Token,
    /// Target of the probe.
    pub target: T,
    /// Maximum duration of the probe.
    pub timeout: Duration,
    /// Time between the probe's due time and its start.
    pub delay: Duration,
    /// Whether `delay` is more than a tenth of the interval.
    pub late: bool,
}

/// Identifies a running probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    slot: usize,
    serial: u64,
}

/// Result of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeResult {
    /// Success or failure; `None` if this machine could not run the probe, which implies nothing
    /// about the backend.
    pub good: Option<bool>,
    /// Observation, as shown to the operator.
    pub reason: Cow<'static, str>,
    /// Duration of the probe.
    pub took: Duration,
}

/// A verdict to write for a backend of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The service.
    pub service: Name,
    /// The backend.
    pub endpoint: Endpoint,
    /// Whether the backend is healthy.
    pub healthy: bool,
}

/// Status of one backend of a service.
#[derive(Debug)]
pub struct BackendStatus<'m> {
    /// The service.
    pub service: &'m Name,
    /// The backend.
    pub endpoint: Endpoint,
    /// Health state.
    pub state: HealthState,
    /// Number of further consecutive results that would change the state: successes if the backend
    /// is unhealthy, otherwise failures.
    pub needs: u32,
    /// Last result and its time.
    pub last: Option<&'m (Instant, ProbeResult)>,
    /// Time of the next probe; `None` while one is running.
    pub due: Option<Instant>,
}

#[derive(Debug)]
struct Slot<T> {
    service: Name,
    desired: DesiredCheck<T>,
    health: HealthStateMachine,
    /// Serial number of this version of the check. Results with another serial are ignored.
    serial: u64,
    /// Base of the schedule, without jitter.
    scheduled: Instant,
    /// Time of the next probe; `None` while one is running.
    due: Option<Instant>,
    last: Option<(Instant, ProbeResult)>,
}

/// The scheduler of health checks.
#[derive(Debug)]
pub struct Scheduler<T> {
    /// Maximum number of running probes.
    at_once: usize,
    running: usize,
    rng: Rng,
    /// Serial of the newest slot.
    serials: u64,
    slots: Vec<Option<Slot<T>>>,
    /// Indices of unused slots.
    free: Vec<usize>,
    /// Slot indices of the backends of each service.
    services: BTreeMap<Name, BTreeMap<Endpoint, usize>>,
    /// Slots whose probe is not running, by due time.
    due: BTreeSet<(Instant, usize)>,
    /// Number of backends by health state.
    counts: [u64; 3],
}

impl<T: Clone + PartialEq> Scheduler<T> {
    /// Creates a scheduler without backends. At most `at_once` probes (at least one) run
    /// concurrently; `seed` seeds the jitter.
    pub fn new(at_once: usize, seed: u64) -> Scheduler<T> {
        Scheduler {
            at_once: at_once.max(1),
            running: 0,
            rng: Rng::with_seed(seed),
            serials: 0,
            slots: Vec::new(),
            free: Vec::new(),
            services: BTreeMap::new(),
            due: BTreeSet::new(),
            counts: [0; 3],
        }
    }

    /// Replaces the checks of a service. Each backend comes with its verdict in the tables: whether
    /// it is healthy, or `None`. Returns the verdicts that differ from those in the tables.
    pub fn set(
        &mut self,
        service: &Name,
        desired: Vec<(DesiredCheck<T>, Option<bool>)>,
        now: Instant,
    ) -> Vec<Verdict> {
        let mut before = self.services.remove(service).unwrap_or_default();
        let mut of_service = BTreeMap::new();
        let mut missing = Vec::new();
        for (desired, recorded) in desired {
            let endpoint = desired.endpoint;
            let (slot, state) = match before.remove(&endpoint) {
                Some(slot) => self.update(slot, desired, recorded, now),
                None => {
                    let health = HealthStateMachine::new(recorded.into());
                    (self.insert(service, desired, health, now), health.state())
                }
            };
            of_service.insert(endpoint, slot);
            if let Some(healthy) = state.verdict().filter(|verdict| recorded != Some(*verdict)) {
                missing.push(Verdict { service: service.clone(), endpoint, healthy });
            }
        }
        for slot in before.into_values() {
            self.remove(slot);
        }
        if !of_service.is_empty() {
            self.services.insert(service.clone(), of_service);
        }
        missing
    }

    /// Updates the check of a backend that has a slot, and keeps its health state. Returns the
    /// slot, which may be another one, and the state.
    fn update(
        &mut self,
        at: usize,
        desired: DesiredCheck<T>,
        recorded: Option<bool>,
        now: Instant,
    ) -> (usize, HealthState) {
        let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            return (at, HealthState::Unknown);
        };
        if slot.health.state() == HealthState::Unknown {
            slot.health.adopt(recorded.into());
            self.counts[HealthState::Unknown as usize] -= 1;
            self.counts[slot.health.state() as usize] += 1;
        }
        let (health, state) = (slot.health, slot.health.state());
        if slot.desired == desired {
            return (at, state);
        }
        let (service, last) = (slot.service.clone(), slot.last.take());
        self.remove(at);
        let at = self.insert(&service, desired, health.with_counts_reset(), now);
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) {
            slot.last = last;
        }
        (at, state)
    }

    /// Adds a backend. Its first probe is due at a random time within one interval, so that
    /// backends added together are not probed together.
    fn insert(
        &mut self,
        service: &Name,
        desired: DesiredCheck<T>,
        health: HealthStateMachine,
        now: Instant,
    ) -> usize {
        let scheduled = now + self.random_below(desired.timing.interval);
        self.serials += 1;
        self.counts[health.state() as usize] += 1;
        let (service, serial) = (service.clone(), self.serials);
        let slot =
            Slot { service, desired, health, serial, scheduled, due: Some(scheduled), last: None };
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[at] = Some(slot);
        self.due.insert((scheduled, at));
        at
    }

    fn remove(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::take) {
            self.counts[slot.health.state() as usize] -= 1;
            if let Some(due) = slot.due {
                self.due.remove(&(due, at));
            }
            self.free.push(at);
        }
    }

    /// Returns the services whose backends are scheduled.
    pub fn services(&self) -> impl Iterator<Item = &Name> {
        self.services.keys()
    }

    /// Returns whether backends of a service are scheduled.
    pub fn has(&self, service: &Name) -> bool {
        self.services.contains_key(service)
    }

    /// Returns when the next probe is due; `None` while the limit of running probes is reached, or
    /// if no backend waits for a probe.
    pub fn next_due(&self) -> Option<Instant> {
        let first = || self.due.first().map(|(due, _)| *due);
        if self.running < self.at_once { first() } else { None }
    }

    /// Returns the next probe to start, if one is due and the limit permits it.
    pub fn start(&mut self, now: Instant) -> Option<Start<T>> {
        if self.running >= self.at_once {
            return None;
        }
        let (due, at) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, at));
        let slot = self.slots.get_mut(at)?.as_mut()?;
        slot.due = None;
        let timing = &slot.desired.timing;
        let delay = now - due;
        let late = delay > timing.interval / 10;
        if late {
            slot.scheduled = now;
        }
        self.running += 1;
        let token = Token { slot: at, serial: slot.serial };
        let (target, timeout) = (slot.desired.target.clone(), timing.timeout);
        Some(Start { token, target, timeout, delay, late })
    }

    /// Processes the end of a probe. Returns the verdict if the backend's state has changed. The
    /// result is ignored if the backend was removed or its check has changed meanwhile.
    pub fn done(&mut self, token: Token, result: ProbeResult, now: Instant) -> Option<Verdict> {
        self.running = self.running.saturating_sub(1);
        let jitter = self.slots.get(token.slot)?.as_ref()?.desired.timing.jitter;
        let jitter = self.random_below(jitter);
        let slot = self.slots.get_mut(token.slot)?.as_mut()?;
        if slot.serial != token.serial {
            return None;
        }
        slot.scheduled += slot.desired.timing.interval;
        let due = now.max(slot.scheduled + jitter);
        slot.due = Some(due);
        self.due.insert((due, token.slot));
        let good = result.good;
        slot.last = Some((now, result));
        let before = slot.health.state();
        let healthy = slot.health.record(good?, &slot.desired.timing)?;
        self.counts[before as usize] -= 1;
        self.counts[slot.health.state() as usize] += 1;
        Some(Verdict { service: slot.service.clone(), endpoint: slot.desired.endpoint, healthy })
    }

    /// Returns the number of running probes.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Returns the number of backends, counted per service, by state: unknown, healthy, unhealthy.
    pub fn counts(&self) -> [u64; 3] {
        self.counts
    }

    /// Returns the status of all backends, ordered by service and endpoint.
    pub fn statuses(&self) -> impl Iterator<Item = BackendStatus<'_>> {
        let slots = self.services.values().flat_map(BTreeMap::values);
        slots.filter_map(|at| self.slots.get(*at)?.as_ref()).map(|slot| BackendStatus {
            service: &slot.service,
            endpoint: slot.desired.endpoint,
            state: slot.health.state(),
            needs: slot.health.needs(&slot.desired.timing),
            last: slot.last.as_ref(),
            due: slot.due,
        })
    }

    /// Returns a random duration below `max`.
    fn random_below(&mut self, max: Duration) -> Duration {
        Duration::from_micros(self.rng.u64(..max.as_micros().max(1) as u64))
    }
}
