//! Simulates floods beside honest clients: time is counted in packets of the flood, so that the
//! results do not depend on the machine's speed. The lcore, its tables and its clock are the
//! fastpath's own; only the frames are in ordinary memory.
//!
//! ```text
//!  attacker (a packet each 1/rate s) --+
//!  established clients, steadily ------+--> Lcore::forward --> each honest packet is checked
//!  new clients, 1,000 a second --------+         ^
//!                                                +-- the clock, advanced by the packets
//! ```

mod clients;
mod plan;
mod report;
mod spoofed;
mod wire;

use crate::fixture;
use crate::poller::lcore_config;
use clients::{Client, Frames, Side, Step, TCP, TCP_REPEAT, UDP, UDP_REPEAT};
use fastpath::burst::{Arrival, BURST, Burst};
use fastpath::dispatch::Exits;
use fastpath::lcore::Lcore;
use plan::{AFTER, DURING, ESTABLISHED, TALLIES};
use spoofed::Attacker;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::error::Error;
use std::time::Instant;
use tables::flow::Flows;
use tables::region::Region;
use wire::{End, Pool, Tagged, ends};

pub use plan::{Kind, Mode, Plan, ROUND_TRIPS_MS};
pub use report::{Outcome, Tally, unconfirmed_ms};

/// The interval between an established client's packets, nanoseconds.
const PERIOD_NS: u64 = 250 * MS;
/// Half of an established client's round trip, nanoseconds.
const ESTABLISHED_HALF_NS: u64 = MS;
/// One in this many established clients is silent during the flood.
const SILENT: u32 = 16;
/// Nanoseconds per millisecond.
const MS: u64 = 1_000_000;
/// The tag of the flood's packets.
const FLOOD: u32 = u32::MAX;

/// A due packet: time in nanoseconds, client, and step.
type Due = Reverse<(u64, u32, usize)>;

/// Whether the attacker sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flood {
    On,
    Off,
}

/// An honest packet in the current burst.
struct Sent {
    client: u32,
    step: usize,
    side: Side,
}

struct Simulation<'r> {
    plan: Plan,
    lcore: Lcore<'r>,
    flows: Flows<'r>,
    burst: Burst<Tagged>,
    output: Output,
    pool: Pool,
    frames: Frames,
    attacker: Attacker,
    clients: Vec<Client>,
    due: BinaryHeap<Due>,
    /// Honest packets of the current burst.
    sent: Vec<Sent>,
    now_ns: u64,
    /// The time up to which the lcore's clock was advanced.
    clock_us: u64,
    /// The time at which the number of flows is read next.
    sample_ns: u64,
    /// Whether the initial clients are established.
    established: bool,
    /// Whether the initial clients keep sending.
    keeps_sending: bool,
    outcome: Outcome,
}

/// The frames that left in a burst.
struct Output {
    /// Honest frames: the index in [`Simulation::sent`], the arm, and the bytes.
    honest: Vec<(u32, u8, Vec<u8>)>,
    /// Answers that backends will send to flood packets: the backend's end and the destination.
    answerable: Option<VecDeque<(End, End)>>,
    /// The offset of the IP packet in a frame that a backend receives.
    at: usize,
}

impl Exits<Tagged> for Output {
    fn port(&mut self, arm: u8, buffer: Tagged) {
        if buffer.tag != FLOOD {
            return self.honest.push((buffer.tag, arm, buffer.bytes().to_vec()));
        }
        if let Some(answerable) = self.answerable.as_mut().filter(|_| arm == 1)
            && let Some((src, dst)) = ends(buffer.bytes(), self.at)
        {
            answerable.push_back((dst, src));
        }
    }

    fn kernel(&mut self, _: u8, _: Tagged) -> bool {
        false
    }
}

/// Simulates a flood beside established and new clients, and the time after it.
///
/// # Errors
/// The region's error, or losses of clients before the flood begins.
pub fn run(plan: &Plan) -> Result<Outcome, Box<dyn Error>> {
    let (region, _) = fixture::region(&fixture::sizes(plan.flows))?;
    fixture::fill_tables(&region, &plan.mode.policy())?;
    Flows::new(&region).recover();
    let mut simulation = Simulation::new(&region, plan)?;
    simulation.establish()?;
    simulation.flood();
    simulation.after();
    simulation.idle();
    Ok(simulation.finish(&region))
}

/// Measures how many flows per second an lcore begins with NAT, including the writing of frames:
/// SYNs of spoofed clients, as fast as this machine processes them.
///
/// # Errors
/// The region's error.
pub fn insert_capacity(flows: u32) -> Result<u64, Box<dyn Error>> {
    let plan = Plan {
        mode: Mode::Nat,
        kind: Kind::Syn,
        rate: 1_000_000_000,
        flows,
        established: 1,
        new_per_s: 0,
        ms: 0,
    };
    let (region, _) = fixture::region(&fixture::sizes(flows))?;
    fixture::fill_tables(&region, &plan.mode.policy())?;
    Flows::new(&region).recover();
    let mut simulation = Simulation::new(&region, &plan)?;
    simulation.establish()?;
    // At this rate, a simulated nanosecond is one packet. The first pass fills the ring of
    // unconfirmed flows; in the second one, which is measured, each insert evicts a flow.
    let ring = u64::from(tables::flow::unconfirmed_ring_slots(flows)[0]);
    simulation.run_until(simulation.now_ns + ring, Flood::On);
    let started = Instant::now();
    simulation.run_until(simulation.now_ns + ring.max(1_000_000), Flood::On);
    Ok((ring.max(1_000_000) as f64 / started.elapsed().as_secs_f64()) as u64)
}

impl<'r> Simulation<'r> {
    fn new(region: &'r Region, plan: &Plan) -> Result<Simulation<'r>, Box<dyn Error>> {
        let lcore =
            Lcore::join(region, lcore_config(0, 1)).ok_or("no status line for the lcore")?;
        let frames = Frames::new(plan.mode);
        let attacker = Attacker::new(plan.kind, plan.mode, &frames);
        let answered = plan.kind == Kind::AnsweredUdp;
        let output = Output {
            honest: Vec::new(),
            answerable: answered.then(VecDeque::new),
            at: if plan.mode == Mode::Nat { crate::feed::PLAIN } else { crate::feed::INNER },
        };
        Ok(Simulation {
            plan: *plan,
            lcore,
            flows: Flows::new(region),
            burst: Burst::default(),
            output,
            pool: Pool::default(),
            frames,
            attacker,
            clients: Vec::new(),
            due: BinaryHeap::new(),
            sent: Vec::new(),
            now_ns: 0,
            clock_us: 0,
            sample_ns: 0,
            established: false,
            keeps_sending: false,
            outcome: Outcome::new(plan, TALLIES),
        })
    }

    /// Adds new clients at `new_per_s` per second, alternating the three round trips and both
    /// protocols.
    fn add_clients(&mut self, ms: u64, tally: usize) {
        let count = u64::from(self.plan.new_per_s) * ms / 1000;
        for n in 0..count {
            let trip = n as usize % ROUND_TRIPS_MS.len();
            let half_ns = ROUND_TRIPS_MS[trip] * MS / 2;
            let udp = n / 3 % 2 == 1;
            let at_ns = self.now_ns + n * 1_000 * MS / u64::from(self.plan.new_per_s);
            self.begin(at_ns, udp, half_ns, tally + trip);
        }
    }

    fn begin(&mut self, at_ns: u64, udp: bool, half_ns: u64, tally: usize) {
        let number = self.clients.len() as u32;
        self.clients.push(Client::new(number, self.plan.mode, udp, half_ns, tally));
        self.outcome.tallies[tally].begun += 1;
        self.due.push(Reverse((at_ns, number, 0)));
    }

    /// Establishes the connections that exist before the flood.
    fn establish(&mut self) -> Result<(), Box<dyn Error>> {
        for n in 0..self.plan.established {
            self.begin(self.now_ns + u64::from(n) * 10_000, n % 2 == 1, 0, ESTABLISHED);
        }
        self.run_until(self.now_ns + u64::from(self.plan.established) * 10_000 + MS, Flood::Off);
        let tally = &self.outcome.tallies[ESTABLISHED];
        match &tally.first {
            None => Ok(()),
            Some(first) => Err(format!("before the flood: {first}").into()),
        }
    }

    /// Runs the flood. Established clients send a packet each period, except one in [`SILENT`] of
    /// them, which sends nothing.
    fn flood(&mut self) {
        (self.established, self.keeps_sending) = (true, true);
        for number in (0..self.plan.established).filter(|n| n % SILENT != 0) {
            let offset = PERIOD_NS * u64::from(number) / u64::from(self.plan.established);
            self.due.push(Reverse((self.now_ns + offset, number, 0)));
        }
        self.outcome.flows_before = self.flows.live();
        self.add_clients(self.plan.ms, DURING);
        let started = Instant::now();
        let first_ns = self.now_ns;
        self.run_until(first_ns + (self.plan.ms + 3 * ROUND_TRIPS_MS[2]) * MS, Flood::On);
        self.outcome.record_duration(started.elapsed(), self.now_ns - first_ns);
    }

    /// Adds new clients again, one second after the end of the flood.
    fn after(&mut self) {
        self.run_until(self.now_ns + 1_000 * MS, Flood::Off);
        self.add_clients(self.plan.ms, AFTER);
        self.run_until(self.now_ns + (self.plan.ms + 3 * ROUND_TRIPS_MS[2]) * MS, Flood::Off);
    }

    /// Sends nothing for twelve seconds, which is longer than the idle timeout of a flow that was
    /// reset, so that a flow whose forged reset was accepted has expired. Then all established
    /// clients send once, and nothing is sent until all unconfirmed flows have expired.
    fn idle(&mut self) {
        self.keeps_sending = false;
        self.run_until(self.now_ns + 12_000 * MS, Flood::Off);
        for number in 0..self.plan.established {
            self.due.push(Reverse((self.now_ns + u64::from(number) * 1_000, number, 0)));
        }
        self.run_until(self.now_ns + 35_000 * MS, Flood::Off);
        self.outcome.flows_after = self.flows.live();
    }

    /// Runs until `end_ns`, with or without the flood.
    fn run_until(&mut self, end_ns: u64, flood: Flood) {
        // The remainder of a division, which is less than a nanosecond, counts in the next burst.
        let (mut carry, per_s) = (0, self.plan.rate);
        while self.now_ns < end_ns {
            self.send_due();
            if flood == Flood::On {
                let count = BURST - self.burst.len;
                (0..count).for_each(|_| self.send_flood());
                carry += count as u64 * 1_000 * MS;
                self.now_ns += carry / per_s;
                carry %= per_s;
            } else if self.burst.len == 0 {
                // A step is at most a millisecond, so that the sweep of idle flows keeps up.
                let next = self.due.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
                self.now_ns = next.min(end_ns).min(self.now_ns + MS);
            }
            self.forward();
        }
    }

    /// Adds the due honest packets to the burst.
    fn send_due(&mut self) {
        while self.burst.len < BURST
            && let Some(Reverse((at, number, step))) = self.due.peek().copied()
            && at <= self.now_ns
        {
            self.due.pop();
            let client = self.clients[number as usize];
            let (side, _, packet) = self.script(&client)[step];
            let tag = self.sent.len() as u32;
            self.sent.push(Sent { client: number, step, side });
            if let Some(bytes) = client.write(self.plan.mode, side, packet, &mut self.frames) {
                let arm = if side == Side::Client { 0 } else { self.plan.mode.answers_at() };
                self.burst.push(Tagged::new(&self.pool, bytes, tag), arm, Arrival::Plain);
            } else {
                self.sent.pop();
                self.next_step(number, step);
            }
        }
    }

    /// Returns the packets that a client and its backend exchange.
    fn script(&self, client: &Client) -> &'static [Step] {
        match (self.is_established(client), client.udp) {
            (false, false) => TCP,
            (false, true) => UDP,
            (true, false) => TCP_REPEAT,
            (true, true) => UDP_REPEAT,
        }
    }

    fn is_established(&self, client: &Client) -> bool {
        self.established && client.tally == ESTABLISHED
    }

    fn send_flood(&mut self) {
        let pending = self.output.answerable.as_mut().and_then(VecDeque::pop_front);
        let (arm, bytes) = match pending {
            Some((from, to)) => (1, self.frames.answer(from, to)),
            None => {
                let established = &self.clients[..self.plan.established as usize];
                self.attacker.next(established)
            }
        };
        self.outcome.flood_packets += 1;
        self.outcome.flood_bytes += bytes.len() as u64;
        self.burst.push(Tagged::new(&self.pool, bytes, FLOOD), arm, Arrival::Plain);
    }

    /// Forwards the burst, checks the honest packets, and advances the clock.
    fn forward(&mut self) {
        self.lcore.forward(&mut self.burst, &mut self.output);
        let mut sent = std::mem::take(&mut self.sent);
        let mut output = std::mem::take(&mut self.output.honest);
        for (tag, sent) in (0..).zip(sent.drain(..)) {
            let Sent { client: number, step, side } = sent;
            let client = &mut self.clients[number as usize];
            let good = output
                .iter()
                .find(|(of, ..)| *of == tag)
                .is_some_and(|(_, arm, frame)| client.check(self.plan.mode, side, *arm, frame));
            let tally = client.tally;
            self.outcome.tallies[tally].packets += 1;
            if good || tally == ESTABLISHED {
                self.next_step(number, step);
            }
            if !good {
                let trip = 2 * self.clients[number as usize].half_ns / MS;
                let what = self.script(&self.clients[number as usize])[step];
                self.outcome.tallies[tally]
                    .lost(|| format!("client {number}, {trip} ms: {what:?}"));
            }
        }
        output.clear();
        (self.sent, self.output.honest) = (sent, output);
        let now_us = self.now_ns / 1_000;
        if now_us > self.clock_us {
            self.lcore.advance_us(now_us - self.clock_us);
            self.clock_us = now_us;
        }
        if self.now_ns >= self.sample_ns {
            self.sample_ns = self.now_ns + MS;
            self.outcome.flows_max = self.outcome.flows_max.max(self.flows.live());
        }
    }

    /// Schedules the packet after a client's step, if there is one.
    fn next_step(&mut self, number: u32, step: usize) {
        let client = self.clients[number as usize];
        let script = self.script(&client);
        let next = step + 1;
        let half_ns = match self.is_established(&client) {
            true => ESTABLISHED_HALF_NS,
            false => client.half_ns,
        };
        if next < script.len() {
            let halves = script[next].1 - script[step].1;
            self.due.push(Reverse((self.now_ns + halves * half_ns, number, next)));
        } else if client.tally == ESTABLISHED {
            if self.keeps_sending {
                self.due.push(Reverse((self.now_ns + PERIOD_NS - half_ns, number, 0)));
            }
        } else {
            self.outcome.tallies[client.tally].finished += 1;
        }
    }

    fn finish(self, region: &Region) -> Outcome {
        let mut outcome = self.outcome;
        outcome.count(region);
        outcome
    }
}

#[cfg(test)]
mod tests;
