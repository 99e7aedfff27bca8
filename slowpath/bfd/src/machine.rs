//! State machine of one BFD session (RFC 5880 section 6). It has no clock and no socket: the time
//! and received packets are arguments; packets to send and changes of state are returned.
//!
//! ```text
//!               receives Down            receives Init or Up
//!      .-------> Down ----------> Init ------------------> Up
//!      |           |  receives Init                         ^
//!      |           `----------------------------------------'
//!      `--- detection time expires (Init, Up); receives Down (Up), AdminDown (Init, Up)
//! ```
//!
//! Timers change by a poll sequence: packets with the P bit carry the new values, and until the
//! neighbor responds with the F bit the safer of the old and new values applies. A poll sequence is
//! only used in state Up. In other states the timers in each packet take effect at once, because
//! RFC 5880 section 6.8.3 delays changes in state Up only.

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

/// Minimum transmit interval while the session is not up (RFC 5880 section 6.8.3).
const SLOW: Duration = Duration::from_secs(1);

/// State machine of a session.
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: Settings,
    pub(crate) local: u32,
    pub(crate) state: State,
    pub(crate) since: Instant,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) remote: Remote,
    pub(crate) counts: Counts,
    /// The last packet of the neighbor had state AdminDown.
    held: bool,
    rng: Rng,
    /// Timers advertised in packets.
    said: Timers,
    /// During a poll sequence: timers advertised before it.
    before: Option<Timers>,
    /// When the poll sequence began.
    asked: Instant,
    /// No poll sequence begins before this time, because late responses to the previous one would
    /// be taken for responses to it.
    poll_after: Option<Instant>,
    /// Administratively down: when to stop sending AdminDown, and at which interval to send it.
    farewell: Option<(Instant, Duration)>,
    finished: bool,
    next: Option<Instant>,
    /// When the last packet was sent, and the interval on which `next` is based.
    sent: Option<Instant>,
    paced: Duration,
}

impl Machine {
    /// Creates a session in state Down. `discriminator` must be nonzero and unique among sessions;
    /// `seed` determines the jitter.
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

    /// Changes the settings. A session that is up stays up and changes its timers by a poll
    /// sequence.
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

    /// Takes the session administratively down. The neighbor is sent AdminDown for its detection
    /// time, so that it does not take the following silence for a failure (RFC 5880 section
    /// 6.8.16).
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

    /// Starts a session that is administratively down.
    pub fn start(&mut self, now: Instant) {
        if self.state == State::AdminDown {
            self.remote = Remote::unknown();
            (self.farewell, self.finished) = (None, false);
            self.turn(State::Down, None, now);
            self.pace(now);
        }
    }

    /// Returns whether the session is administratively down and AdminDown was sent for long enough.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Processes a packet for this session (RFC 5880 section 6.8.6, after the session lookup).
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
            // A response still in flight may take about as long as this one did.
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
        // Responses with F are always sent. Changes of state are sent in addition to the periodic
        // packets.
        let news = self.state != state && self.may_send();
        let send = (packet.poll || news).then(|| self.emit(packet.poll, now));
        Ok(Output { send, change })
    }

    /// Handles expired timers.
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

    /// Returns the latest time for the next [`Machine::tick`].
    pub fn next_due(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        let farewell = self.farewell.map(|(until, _)| until);
        [self.next, self.deadline(), farewell].into_iter().flatten().min()
    }

    /// Changes the state and returns the change to report, if any.
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

    /// Returns the timers that settings and state require.
    fn wanted(&self) -> Timers {
        let (transmit, receive) = (self.settings.transmit(), self.settings.receive());
        let slow = if self.state == State::Up { Duration::ZERO } else { SLOW };
        Timers { transmit: transmit.max(slow), receive }
    }

    /// Returns the transmit interval before jitter. A longer interval applies once the neighbor has
    /// confirmed it (RFC 5880 section 6.8.3), and the neighbor's receive interval is the minimum.
    pub(crate) fn transmit_interval(&self) -> Duration {
        if let Some((_, interval)) = self.farewell {
            return interval;
        }
        let ours = self.before.map_or(self.said.transmit, |b| b.transmit.min(self.said.transmit));
        ours.max(self.remote.timers.receive)
    }

    /// Returns the minimum interval between the neighbor's packets. A shorter one applies once the
    /// neighbor has confirmed it.
    pub(crate) fn receive_interval(&self) -> Duration {
        let ours = self.before.map_or(self.said.receive, |b| b.receive.max(self.said.receive));
        ours.max(self.remote.timers.transmit)
    }

    /// Returns the detection time (RFC 5880 section 6.8.4).
    pub(crate) fn detection_time(&self) -> Duration {
        self.receive_interval() * u32::from(self.remote.multiplier)
    }

    /// Returns the minimum detection time of the neighbor for our packets.
    fn neighbours_patience(&self) -> Duration {
        self.transmit_interval() * u32::from(self.settings.multiplier)
    }

    fn deadline(&self) -> Option<Instant> {
        if self.state == State::AdminDown {
            return None;
        }
        self.remote.heard.map(|heard| heard + self.detection_time())
    }

    /// Returns whether periodic packets are sent (RFC 5880 section 6.8.7).
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

    /// Reschedules the next packet after a change: at once if periodic packets were stopped,
    /// earlier if the interval became shorter.
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

    /// Returns the next packet and schedules the one after it.
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

    /// Returns 75 % to 100 % of an interval, so that senders do not synchronize; at most 90 % with
    /// a multiplier of 1 (RFC 5880 section 6.8.7).
    fn jittered(&mut self, interval: Duration) -> Duration {
        let most = if self.settings.multiplier == 1 { 90 } else { 100 };
        let micros = interval.as_micros() as u64;
        Duration::from_micros(self.rng.u64(micros * 75 / 100..=micros * most / 100))
    }
}
