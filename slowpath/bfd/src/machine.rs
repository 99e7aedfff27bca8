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
//! Timers change by a poll sequence: packets with the P bit carry the new values. Until the
//! neighbor responds with the F bit, the safer of the old and the new value applies: the shorter
//! transmit interval, and the longer detection time. A poll sequence is only used in state Up. In
//! other states the timers in each packet take effect at once, because RFC 5880 section 6.8.3
//! delays changes in state Up only.

use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::packet::{Diagnostic, Discard, Packet, State};
use crate::settings::Settings;

mod event;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use event::{Change, Output, Reason};
use event::{Counts, Remote, Timers};

/// Minimum transmit interval while the session is not up (RFC 5880 section 6.8.3).
const SLOW_INTERVAL: Duration = Duration::from_secs(1);

/// State machine of a session.
#[derive(Debug)]
pub struct Machine {
    pub(crate) settings: Settings,
    /// Local discriminator.
    pub(crate) local: u32,
    pub(crate) state: State,
    pub(crate) since: Instant,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) remote: Remote,
    pub(crate) counts: Counts,
    /// The last packet of the neighbor had state AdminDown.
    remote_admin_down: bool,
    rng: Rng,
    /// Timers advertised in packets.
    advertised: Timers,
    /// During a poll sequence: timers advertised before it.
    before_poll: Option<Timers>,
    /// When the current or last poll sequence began.
    poll_started: Instant,
    /// No poll sequence begins before this time, because a late response to the previous sequence
    /// would be taken for a response to the new one.
    poll_after: Option<Instant>,
    /// Administratively down: when to stop sending AdminDown, and at which interval to send it.
    shutdown: Option<(Instant, Duration)>,
    finished: bool,
    /// When the next periodic packet is due; `None` if none are sent.
    next: Option<Instant>,
    /// When the last packet was sent.
    sent: Option<Instant>,
    /// The interval on which `next` is based, before jitter.
    scheduled_interval: Duration,
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
            remote_admin_down: false,
            rng: Rng::with_seed(seed),
            advertised: Timers { transmit: SLOW_INTERVAL, receive: settings.receive() },
            before_poll: None,
            poll_started: now,
            poll_after: None,
            shutdown: None,
            finished: false,
            next: None,
            sent: None,
            scheduled_interval: SLOW_INTERVAL,
        };
        machine.advertised = machine.desired_timers();
        machine.reschedule(now);
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
            self.advertised = self.desired_timers();
        }
        self.reschedule(now);
        self.next = self.next.map(|_| now);
    }

    /// Takes the session administratively down. The neighbor is sent AdminDown for its detection
    /// time, so that the following silence is not taken for a failure (RFC 5880 section 6.8.16).
    pub fn stop(&mut self, now: Instant) -> Output {
        if self.state == State::AdminDown {
            return Output::default();
        }
        let (interval, has_remote) = (self.transmit_interval(), self.remote.discriminator != 0);
        let detection_time = interval * u32::from(self.settings.multiplier);
        let change = self.set_state(State::AdminDown, Some(Reason::Stopped), now);
        self.shutdown = Some((now + detection_time, interval));
        self.finished = !has_remote;
        let send = (has_remote || !self.settings.passive).then(|| self.next_packet(false, now));
        Output { send, change }
    }

    /// Starts a session that is administratively down; no effect on others.
    pub fn start(&mut self, now: Instant) {
        if self.state == State::AdminDown {
            self.remote = Remote::unknown();
            (self.shutdown, self.finished) = (None, false);
            self.set_state(State::Down, None, now);
            self.reschedule(now);
        }
    }

    /// Returns whether the session is administratively down, and AdminDown was sent for long enough
    /// or there is no neighbor to send it to.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Processes a packet for this session (RFC 5880 section 6.8.6, after the session lookup).
    pub fn receive(&mut self, packet: &Packet, now: Instant) -> Result<Output, Discard> {
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
            received_at: Some(now),
        };
        if packet.final_bit && self.before_poll.take().is_some() {
            // Several packets with P may have been sent, so that further responses are in flight.
            // They may take about as long as this one did.
            let took = now.saturating_duration_since(self.poll_started);
            self.poll_after = Some(now + self.remote_detection_time() + 2 * took);
        }
        let state = self.state;
        let was_admin_down =
            std::mem::replace(&mut self.remote_admin_down, packet.state == State::AdminDown);
        let neighbor_admin_down =
            (self.remote_admin_down && !was_admin_down).then_some(Change::NeighborAdminDown);
        let change = match (state, packet.state) {
            (State::Init | State::Up, State::AdminDown) => self
                .set_state(State::Down, Some(Reason::NeighborAdminDown), now)
                .or(neighbor_admin_down),
            (State::Down, State::AdminDown) => neighbor_admin_down,
            (State::Down, State::Down) => self.set_state(State::Init, None, now),
            (State::Down, State::Init) => self.set_state(State::Up, None, now),
            (State::Init, State::Init | State::Up) => self.set_state(State::Up, None, now),
            (State::Up, State::Down) => {
                self.set_state(State::Down, Some(Reason::NeighborDown), now)
            }
            _ => None,
        };
        self.reschedule(now);
        // A packet with P is always answered, even if periodic packets are not sent. A change of
        // state is sent at once, in addition to the periodic packets.
        let state_changed = self.state != state && self.may_send();
        let send = (packet.poll || state_changed).then(|| self.next_packet(packet.poll, now));
        Ok(Output { send, change })
    }

    /// Handles expired timers: takes the session down after the detection time, and returns a
    /// periodic packet that is due.
    pub fn tick(&mut self, now: Instant) -> Output {
        let mut change = None;
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.remote = Remote::unknown();
            if self.state != State::Down {
                change = self.set_state(State::Down, Some(Reason::Expired), now);
                self.next = Some(now);
            }
            self.reschedule(now);
        }
        self.finished |= self.shutdown.is_some_and(|(until, _)| until <= now);
        if self.finished {
            self.next = None;
        }
        let due = self.next.is_some_and(|next| next <= now);
        let send = due.then(|| self.next_packet(false, now));
        Output { send, change }
    }

    /// Returns the latest time for the next [`Machine::tick`].
    pub fn next_due(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        let shutdown = self.shutdown.map(|(until, _)| until);
        [self.next, self.deadline(), shutdown].into_iter().flatten().min()
    }

    /// Changes the state and returns the change to report, if any.
    fn set_state(&mut self, to: State, why: Option<Reason>, now: Instant) -> Option<Change> {
        let from = std::mem::replace(&mut self.state, to);
        self.since = now;
        self.diagnostic = why.map(Reason::diagnostic).unwrap_or_default();
        if from == State::Up {
            (self.before_poll, self.poll_after) = (None, None);
            self.advertised = self.desired_timers();
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
    fn desired_timers(&self) -> Timers {
        let (transmit, receive) = (self.settings.transmit(), self.settings.receive());
        let slow = if self.state == State::Up { Duration::ZERO } else { SLOW_INTERVAL };
        Timers { transmit: transmit.max(slow), receive }
    }

    /// Returns the transmit interval before jitter. A longer interval applies once the neighbor has
    /// confirmed it (RFC 5880 section 6.8.3), and the neighbor's receive interval is the minimum.
    pub(crate) fn transmit_interval(&self) -> Duration {
        if let Some((_, interval)) = self.shutdown {
            return interval;
        }
        let local = self
            .before_poll
            .map_or(self.advertised.transmit, |b| b.transmit.min(self.advertised.transmit));
        local.max(self.remote.timers.receive)
    }

    /// Returns the minimum interval between the neighbor's packets. A shorter one applies once the
    /// neighbor has confirmed it.
    pub(crate) fn receive_interval(&self) -> Duration {
        let local = self
            .before_poll
            .map_or(self.advertised.receive, |b| b.receive.max(self.advertised.receive));
        local.max(self.remote.timers.transmit)
    }

    /// Returns the detection time (RFC 5880 section 6.8.4).
    pub(crate) fn detection_time(&self) -> Duration {
        self.receive_interval() * u32::from(self.remote.multiplier)
    }

    /// Returns the neighbor's detection time for our packets (RFC 5880 section 6.8.4), as far as
    /// it follows from the transmit interval in use.
    fn remote_detection_time(&self) -> Duration {
        self.transmit_interval() * u32::from(self.settings.multiplier)
    }

    /// Returns when the detection time expires.
    fn deadline(&self) -> Option<Instant> {
        if self.state == State::AdminDown {
            return None;
        }
        self.remote.received_at.map(|at| at + self.detection_time())
    }

    /// Returns whether periodic packets are sent (RFC 5880 section 6.8.7).
    fn may_send(&self) -> bool {
        if self.shutdown.is_some() {
            return true;
        }
        let waits = self.settings.passive && self.remote.discriminator == 0;
        let unwanted = self.remote.timers.receive.is_zero();
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        let polls = self.before_poll.is_some() || self.advertised != self.desired_timers();
        let silenced = self.remote.demand && both_up && !polls;
        !(waits || unwanted || silenced)
    }

    /// Reschedules the next packet after a change: not at all if no periodic packets are sent, at
    /// once if they were stopped before, earlier if the interval became shorter.
    fn reschedule(&mut self, now: Instant) {
        if !self.may_send() {
            self.next = None;
            return;
        }
        let interval = self.transmit_interval();
        let Some(next) = self.next else {
            self.next = Some(now);
            return;
        };
        if interval < self.scheduled_interval {
            self.scheduled_interval = interval;
            let wait = self.jittered(interval);
            self.next = Some(next.min(self.sent.map_or(now, |sent| sent + wait)));
        }
    }

    /// Returns the next packet and schedules the one after it.
    fn next_packet(&mut self, final_bit: bool, now: Instant) -> Packet {
        let desired = self.desired_timers();
        let may_poll = self.poll_after.is_none_or(|after| after <= now);
        if self.state == State::Up
            && self.before_poll.is_none()
            && self.advertised != desired
            && may_poll
        {
            self.before_poll = Some(std::mem::replace(&mut self.advertised, desired));
            self.poll_started = now;
        }
        let interval = self.transmit_interval();
        let wait = self.jittered(interval);
        (self.sent, self.scheduled_interval) = (Some(now), interval);
        self.next = self.may_send().then(|| now + wait);
        self.counts.sent += 1;
        let micros = |time: Duration| time.as_micros() as u32;
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.before_poll.is_some() && !final_bit,
            final_bit,
            independent: self.settings.independent,
            demand: false,
            multiplier: self.settings.multiplier,
            my_discriminator: self.local,
            your_discriminator: self.remote.discriminator,
            desired_transmit_us: micros(self.advertised.transmit),
            required_receive_us: micros(self.advertised.receive),
            required_echo_us: 0,
        }
    }

    /// Returns 75 % to 100 % of an interval, so that senders do not synchronize; at most 90 % with
    /// a multiplier of 1 (RFC 5880 section 6.8.7).
    fn jittered(&mut self, interval: Duration) -> Duration {
        let max_percent = if self.settings.multiplier == 1 { 90 } else { 100 };
        let micros = interval.as_micros() as u64;
        Duration::from_micros(self.rng.u64(micros * 75 / 100..=micros * max_percent / 100))
    }
}
