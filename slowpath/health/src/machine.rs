//! Who is probed when, and what becomes of the answers. No clock and no socket: times and answers
//! are arguments, probes to begin and verdicts are returned.
//!
//! Each backend of a service has a turn every interval, and is probed then or up to `jitter` later.
//! At most so many probes are under way; whoever waits longest goes first. So a failure is known
//! after `fall * interval + jitter + timeout` at most, as long as the bound suffices. A probe that
//! begins a tenth of its interval too late is counted, and the backend's turns are reckoned from it
//! on: late ones don't come in bursts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use config::services::Timing;
use fastrand::Rng;
use state::address::Endpoint;
use state::name::Name;

use crate::judge::{Judge, Standing};

#[cfg(test)]
mod tests;

/// What is wanted of one backend of a service.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted<T> {
    /// The backend.
    pub endpoint: Endpoint,
    /// When it is probed, and what makes a verdict.
    pub timing: Timing,
    /// What the probe asks of whom.
    pub target: T,
}

/// A probe to begin. It has to be [`Machine::done`] once, in any case.
#[derive(Debug)]
pub struct Start<T> {
    /// Names it.
    pub token: Token,
    /// What it asks of whom.
    pub target: T,
    /// All that it may take.
    pub timeout: Duration,
    /// It should have begun so long ago.
    pub behind: Duration,
    /// That is a tenth of its interval, or longer.
    pub late: bool,
}

/// Names a probe that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    slot: usize,
    serial: u64,
}

/// What came of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Good or bad; none where this machine could not ask, which says nothing of the backend.
    pub good: Option<bool>,
    /// What was seen, in the operator's words.
    pub why: Cow<'static, str>,
    /// How long it took.
    pub took: Duration,
}

/// What is to be written of a backend of a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The service.
    pub service: Name,
    /// The backend.
    pub endpoint: Endpoint,
    /// Whether it is healthy.
    pub healthy: bool,
}

/// What is known of one backend of a service.
#[derive(Debug)]
pub struct Known<'m> {
    /// The service.
    pub service: &'m Name,
    /// The backend.
    pub endpoint: Endpoint,
    /// What is held of it.
    pub standing: Standing,
    /// How many answers of the other kind would change that.
    pub needs: u32,
    /// The last answer, and when it came.
    pub last: Option<&'m (Instant, Answer)>,
    /// When it is probed next; none while it is.
    pub due: Option<Instant>,
}

#[derive(Debug)]
struct Slot<T> {
    service: Name,
    wanted: Wanted<T>,
    judge: Judge,
    serial: u64,
    /// From which the next turn is reckoned.
    turn: Instant,
    /// When it is probed next; none while it is.
    due: Option<Instant>,
    last: Option<(Instant, Answer)>,
}

/// The machine.
#[derive(Debug)]
pub struct Machine<T> {
    at_once: usize,
    running: usize,
    rng: Rng,
    serials: u64,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<usize>,
    services: BTreeMap<Name, BTreeMap<Endpoint, usize>>,
    due: BTreeSet<(Instant, usize)>,
    /// Backends by what is held of them.
    counts: [u64; 3],
}

impl<T: Clone + PartialEq> Machine<T> {
    /// Without backends. At most `at_once` probes, at least one, are under way; `seed` decides the
    /// jitter.
    pub fn new(at_once: usize, seed: u64) -> Machine<T> {
        Machine {
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

    /// From now on exactly these backends of a service are probed; each with the verdict that the
    /// tables hold. Returns the verdicts that the tables should hold and don't.
    pub fn set(
        &mut self,
        service: &Name,
        wanted: Vec<(Wanted<T>, Option<bool>)>,
        now: Instant,
    ) -> Vec<Verdict> {
        let mut before = self.services.remove(service).unwrap_or_default();
        let mut of_service = BTreeMap::new();
        let mut lost = Vec::new();
        for (wanted, held) in wanted {
            let endpoint = wanted.endpoint;
            let (slot, standing) = match before.remove(&endpoint) {
                Some(slot) => self.keep(slot, wanted, held, now),
                None => {
                    let judge = Judge::new(held.into());
                    (self.insert(service, wanted, judge, now), judge.standing())
                }
            };
            of_service.insert(endpoint, slot);
            if let Some(healthy) = standing.verdict().filter(|verdict| held != Some(*verdict)) {
                lost.push(Verdict { service: service.clone(), endpoint, healthy });
            }
        }
        for slot in before.into_values() {
            self.remove(slot);
        }
        if !of_service.is_empty() {
            self.services.insert(service.clone(), of_service);
        }
        lost
    }

    /// A backend that was there before, asked as before or otherwise.
    fn keep(
        &mut self,
        at: usize,
        wanted: Wanted<T>,
        held: Option<bool>,
        now: Instant,
    ) -> (usize, Standing) {
        let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            return (at, Standing::Unknown);
        };
        if slot.judge.standing() == Standing::Unknown {
            slot.judge.adopt(held.into());
            self.counts[Standing::Unknown as usize] -= 1;
            self.counts[slot.judge.standing() as usize] += 1;
        }
        let (judge, standing) = (slot.judge, slot.judge.standing());
        if slot.wanted == wanted {
            return (at, standing);
        }
        let (service, last) = (slot.service.clone(), slot.last.take());
        self.remove(at);
        let at = self.insert(&service, wanted, judge.again(), now);
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) {
            slot.last = last;
        }
        (at, standing)
    }

    /// Its first turn comes within an interval, at any time of it: those that come together are not
    /// probed together.
    fn insert(&mut self, service: &Name, wanted: Wanted<T>, judge: Judge, now: Instant) -> usize {
        let turn = now + self.throw(wanted.timing.interval);
        self.serials += 1;
        self.counts[judge.standing() as usize] += 1;
        let (service, serial) = (service.clone(), self.serials);
        let slot = Slot { service, wanted, judge, serial, turn, due: Some(turn), last: None };
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[at] = Some(slot);
        self.due.insert((turn, at));
        at
    }

    fn remove(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at).and_then(Option::take) {
            self.counts[slot.judge.standing() as usize] -= 1;
            if let Some(due) = slot.due {
                self.due.remove(&(due, at));
            }
            self.free.push(at);
        }
    }

    /// The services that have backends here.
    pub fn services(&self) -> impl Iterator<Item = &Name> {
        self.services.keys()
    }

    /// Whether a service has backends here.
    pub fn has(&self, service: &Name) -> bool {
        self.services.contains_key(service)
    }

    /// When the next probe is due; none while there is none to begin.
    pub fn next_due(&self) -> Option<Instant> {
        let first = || self.due.first().map(|(due, _)| *due);
        if self.running < self.at_once { first() } else { None }
    }

    /// The next probe to begin, if one is due and one more may be under way.
    pub fn start(&mut self, now: Instant) -> Option<Start<T>> {
        if self.running >= self.at_once {
            return None;
        }
        let (due, at) = *self.due.first().filter(|(due, _)| *due <= now)?;
        self.due.remove(&(due, at));
        let slot = self.slots.get_mut(at)?.as_mut()?;
        slot.due = None;
        let timing = &slot.wanted.timing;
        let behind = now - due;
        let late = behind > timing.interval / 10;
        if late {
            slot.turn = now;
        }
        self.running += 1;
        let token = Token { slot: at, serial: slot.serial };
        let (target, timeout) = (slot.wanted.target.clone(), timing.timeout);
        Some(Start { token, target, timeout, behind, late })
    }

    /// A probe ended. Tells the verdict on its backend where it is another than before; the answer
    /// of one that is gone, or is asked otherwise by now, says nothing.
    pub fn done(&mut self, token: Token, answer: Answer, now: Instant) -> Option<Verdict> {
        self.running = self.running.saturating_sub(1);
        let jitter = self.slots.get(token.slot)?.as_ref()?.wanted.timing.jitter;
        let jitter = self.throw(jitter);
        let slot = self.slots.get_mut(token.slot)?.as_mut()?;
        if slot.serial != token.serial {
            return None;
        }
        slot.turn += slot.wanted.timing.interval;
        let due = now.max(slot.turn + jitter);
        slot.due = Some(due);
        self.due.insert((due, token.slot));
        let good = answer.good;
        slot.last = Some((now, answer));
        let before = slot.judge.standing();
        let healthy = slot.judge.hear(good?, &slot.wanted.timing)?;
        self.counts[before as usize] -= 1;
        self.counts[slot.judge.standing() as usize] += 1;
        Some(Verdict { service: slot.service.clone(), endpoint: slot.wanted.endpoint, healthy })
    }

    /// Probes under way.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Backends, each once for each service, by what is held of them: unknown, healthy, unhealthy.
    pub fn counts(&self) -> [u64; 3] {
        self.counts
    }

    /// All that is known, by service and endpoint.
    pub fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let slots = self.services.values().flat_map(BTreeMap::values);
        slots.filter_map(|at| self.slots.get(*at)?.as_ref()).map(|slot| Known {
            service: &slot.service,
            endpoint: slot.wanted.endpoint,
            standing: slot.judge.standing(),
            needs: slot.judge.needs(&slot.wanted.timing),
            last: slot.last.as_ref(),
            due: slot.due,
        })
    }

    /// Any time below `most`.
    fn throw(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.rng.u64(..most.as_micros().max(1) as u64))
    }
}
