//! One session (RFC 5880, 6). No clock and no socket: times and packets are arguments, what to send
//! and what changed is returned.
//!
//! ```text
//!                 hears Down               hears Init or Up
//!      .-------> Down ----------> Init ------------------> Up
//!      |           |  hears Init                            ^
//!      |           `----------------------------------------'
//!      `--- nothing for the detection time (Init, Up); hears Down (Up), AdminDown (Init, Up)
//! ```
//!
//! Timers are changed by a poll: a packet that asks to be answered says the new ones, and until the
//! answer is there whichever is safer counts. Polls are for sessions that are up; before, the
//! timers stand in every packet and nobody's patience depends on them (6.8.3 holds back changes in
//! state Up alone).

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::packet::{Diagnostic, Discard, Packet, State};
use crate::settings::Settings;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod words;

pub use words::{Change, Output, Reason};
use words::{Counts, Remote, Timers};

/// Nobody sends oftener while the session is not up (6.8.3).
const SLOW: Duration = Duration::from_secs(1);

/// A session's machine.
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: Settings,
    pub(crate) local: u32,
    pub(crate) state: State,
    pub(crate) since: Instant,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) remote: Remote,
    pub(crate) counts: Counts,
    /// The neighbour's last word was that it holds the session down.
    held: bool,
    rng: Rng,
    /// What we announce.
    said: Timers,
    /// While a poll is under way: what we announced before.
    before: Option<Timers>,
    /// When the poll began.
    asked: Instant,
    /// The next poll begins no earlier: late answers to the last one would be taken for its.
    poll_after: Option<Instant>,
    /// Held down: packets say so until then, this often.
    farewell: Option<(Instant, Duration)>,
    finished: bool,
    next: Option<Instant>,
    /// When we last sent, and by which interval `next` is reckoned.
    sent: Option<Instant>,
    paced: Duration,
}

impl Machine {
    /// A session that is down. `discriminator` names it at the neighbour, it is not 0 and no other
    /// session's; `seed` decides the jitter.
    pub fn new(settings: Settings, discriminator: u32, seed: u64, now: Instant) -> Machine {
        let mut machine = Machine {
            settings,
            local: discriminator,
            state: State::Down,
            since: now,
            diagnostic: Diagnostic::None,
            remote: Remote::unknown(),
            counts: Counts::default(),
            held: false,
            rng: Rng::with_seed(seed),
            said: Timers { transmit: SLOW, receive: settings.receive() },
            before: None,
            asked: now,
            poll_after: None,
            farewell: None,
            finished: false,
            next: None,
            sent: None,
            paced: SLOW,
        };
        machine.said = machine.wanted();
        machine.pace(now);
        machine
    }

    /// Other settings. Timers of a session that is up change by a poll; it stays up.
    pub fn set(&mut self, settings: Settings, now: Instant) {
        if self.settings == settings {
            return;
        }
        self.settings = settings;
        if self.state != State::Up {
            self.said = self.wanted();
        }
        self.pace(now);
        self.next = self.next.map(|_| now);
    }

    /// Holds the session down. The neighbour is told for as long as it would take to miss us, so
    /// that it takes our silence for no failure (6.8.16).
    pub fn stop(&mut self, now: Instant) -> Output {
        if self.state == State::AdminDown {
            return Output::default();
        }
        let (interval, known) = (self.transmit_interval(), self.remote.discriminator != 0);
        let patience = interval * u32::from(self.settings.multiplier);
        let change = self.turn(State::AdminDown, Some(Reason::Stopped), now);
        self.farewell = Some((now + patience, interval));
        self.finished = !known;
        let send = (known || !self.settings.passive).then(|| self.emit(false, now));
        Output { send, change }
    }

    /// Takes up a session that was held down.
    pub fn start(&mut self, now: Instant) {
        if self.state == State::AdminDown {
            self.remote = Remote::unknown();
            (self.farewell, self.finished) = (None, false);
            self.turn(State::Down, None, now);
            self.pace(now);
        }
    }

    /// Whether it is held down and the neighbour has been told for long enough.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// A packet for this session (6.8.6, what comes after the choice of the session).
    pub fn hear(&mut self, packet: &Packet, now: Instant) -> Result<Output, Discard> {
        if self.state == State::AdminDown {
            return Err(Discard::AdminDown);
        }
        self.counts.received += 1;
        let micros = |us: u32| Duration::from_micros(us.into());
        self.remote = Remote {
            state: packet.state,
            diagnostic: packet.diagnostic,
            discriminator: packet.my_discriminator,
            multiplier: packet.multiplier,
            independent: packet.independent,
            demand: packet.demand,
            timers: Timers {
                transmit: micros(packet.desired_transmit_us),
                receive: micros(packet.required_receive_us),
            },
            heard: Some(now),
        };
        if packet.last && self.before.take().is_some() {
            // An answer that is still under way takes about as long as this one took.
            let took = now.saturating_duration_since(self.asked);
            self.poll_after = Some(now + self.neighbours_patience() + 2 * took);
        }
        let state = self.state;
        let held = std::mem::replace(&mut self.held, packet.state == State::AdminDown);
        let held = (self.held && !held).then_some(Change::Held);
        let change = match (state, packet.state) {
            (State::Init | State::Up, State::AdminDown) => {
                self.turn(State::Down, Some(Reason::NeighbourAdminDown), now).or(held)
            }
            (State::Down, State::AdminDown) => held,
            (State::Down, State::Down) => self.turn(State::Init, None, now),
            (State::Down, State::Init) => self.turn(State::Up, None, now),
            (State::Init, State::Init | State::Up) => self.turn(State::Up, None, now),
            (State::Up, State::Down) => self.turn(State::Down, Some(Reason::NeighbourDown), now),
            _ => None,
        };
        self.pace(now);
        // Answers are sent whatever else is not; news go between the turns, not with them.
        let news = self.state != state && self.may_send();
        let send = (packet.poll || news).then(|| self.emit(packet.poll, now));
        Ok(Output { send, change })
    }

    /// Time passed.
    pub fn tick(&mut self, now: Instant) -> Output {
        let mut change = None;
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.remote = Remote::unknown();
            if self.state != State::Down {
                change = self.turn(State::Down, Some(Reason::Expired), now);
                self.next = Some(now);
            }
            self.pace(now);
        }
        self.finished |= self.farewell.is_some_and(|(until, _)| until <= now);
        if self.finished {
            self.next = None;
        }
        let due = self.next.is_some_and(|next| next <= now);
        let send = due.then(|| self.emit(false, now));
        Output { send, change }
    }

    /// When [`Machine::tick`] has something to do next.
    pub fn next_due(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        let farewell = self.farewell.map(|(until, _)| until);
        [self.next, self.deadline(), farewell].into_iter().flatten().min()
    }

    /// From state to state; what is to be told of it.
    fn turn(&mut self, to: State, why: Option<Reason>, now: Instant) -> Option<Change> {
        let from = std::mem::replace(&mut self.state, to);
        self.since = now;
        self.diagnostic = why.map(Reason::diagnostic).unwrap_or_default();
        if from == State::Up {
            (self.before, self.poll_after) = (None, None);
            self.said = self.wanted();
            self.counts.downs += 1;
        }
        match to {
            State::Up => {
                self.counts.ups += 1;
                Some(Change::Up)
            }
            _ => why.filter(|_| from == State::Up).map(Change::Down),
        }
    }

    /// The timers that settings and state ask for.
    fn wanted(&self) -> Timers {
        let (transmit, receive) = (self.settings.transmit(), self.settings.receive());
        let slow = if self.state == State::Up { Duration::ZERO } else { SLOW };
        Timers { transmit: transmit.max(slow), receive }
    }

    /// How often we send at most: an interval that grows does so when the neighbour has confirmed
    /// it (6.8.3), and never oftener than it wants.
    pub(crate) fn transmit_interval(&self) -> Duration {
        if let Some((_, interval)) = self.farewell {
            return interval;
        }
        let ours = self.before.map_or(self.said.transmit, |b| b.transmit.min(self.said.transmit));
        ours.max(self.remote.timers.receive)
    }

    /// How often the neighbour sends at most: one that we let shrink counts when it has confirmed.
    pub(crate) fn receive_interval(&self) -> Duration {
        let ours = self.before.map_or(self.said.receive, |b| b.receive.max(self.said.receive));
        ours.max(self.remote.timers.transmit)
    }

    /// So long may nothing come (6.8.4).
    pub(crate) fn detection_time(&self) -> Duration {
        self.receive_interval() * u32::from(self.remote.multiplier)
    }

    /// So long the neighbour bears our silence, at least.
    fn neighbours_patience(&self) -> Duration {
        self.transmit_interval() * u32::from(self.settings.multiplier)
    }

    fn deadline(&self) -> Option<Instant> {
        if self.state == State::AdminDown {
            return None;
        }
        self.remote.heard.map(|heard| heard + self.detection_time())
    }

    /// Whether packets go out by themselves (6.8.7).
    fn may_send(&self) -> bool {
        if self.farewell.is_some() {
            return true;
        }
        let waits = self.settings.passive && self.remote.discriminator == 0;
        let unwanted = self.remote.timers.receive.is_zero();
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        let polls = self.before.is_some() || self.said != self.wanted();
        let silenced = self.remote.demand && both_up && !polls;
        !(waits || unwanted || silenced)
    }

    /// Puts the next packet in its place after something changed: at once where we were silent,
    /// earlier where the interval became shorter.
    fn pace(&mut self, now: Instant) {
        if !self.may_send() {
            self.next = None;
            return;
        }
        let interval = self.transmit_interval();
        let Some(next) = self.next else {
            self.next = Some(now);
            return;
        };
        if interval < self.paced {
            self.paced = interval;
            let wait = self.jittered(interval);
            self.next = Some(next.min(self.sent.map_or(now, |sent| sent + wait)));
        }
    }

    /// The next packet; the one after it is due an interval later.
    fn emit(&mut self, last: bool, now: Instant) -> Packet {
        let wanted = self.wanted();
        let rested = self.poll_after.is_none_or(|after| after <= now);
        if self.state == State::Up && self.before.is_none() && self.said != wanted && rested {
            self.before = Some(std::mem::replace(&mut self.said, wanted));
            self.asked = now;
        }
        let interval = self.transmit_interval();
        let wait = self.jittered(interval);
        (self.sent, self.paced) = (Some(now), interval);
        self.next = self.may_send().then(|| now + wait);
        self.counts.sent += 1;
        let micros = |time: Duration| time.as_micros() as u32;
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.before.is_some() && !last,
            last,
            independent: self.settings.independent,
            demand: false,
            multiplier: self.settings.multiplier,
            my_discriminator: self.local,
            your_discriminator: self.remote.discriminator,
            desired_transmit_us: micros(self.said.transmit),
            required_receive_us: micros(self.said.receive),
            required_echo_us: 0,
        }
    }

    /// 75 to 100 % of an interval, so that nobody sends in step; 90 % where the first packet that
    /// is missing decides (6.8.7).
    fn jittered(&mut self, interval: Duration) -> Duration {
        let most = if self.settings.multiplier == 1 { 90 } else { 100 };
        let micros = interval.as_micros() as u64;
        Duration::from_micros(self.rng.u64(micros * 75 / 100..=micros * most / 100))
    }
}
