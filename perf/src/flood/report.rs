//! The results of a simulation, and the check against Weir's promises (PROMISES.md).

use super::plan::{AFTER, DURING, ERROR_LIMITS, ESTABLISHED, Mode, Plan, ROUND_TRIPS_MS};
use std::fmt;
use std::time::Duration;
use tables::counters::{ArmCounter, Counter};
use tables::flow::{DEFAULT_PERCENT, budget};
use tables::reason::DropReason;
use tables::region::Region;

/// The percentage of new clients that must finish during a flood.
const MIN_FINISHED_PERCENT: u64 = 95;

/// The results of one group of clients.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Clients that began.
    pub begun: u64,
    /// Clients whose exchange finished; always zero for established clients.
    pub finished: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that did not leave, or left incorrectly.
    pub lost: u64,
    /// A description of the first lost packet.
    pub first: Option<String>,
}

impl Tally {
    pub(super) fn lost(&mut self, what: impl FnOnce() -> String) {
        self.lost += 1;
        self.first.get_or_insert_with(what);
    }

    /// Returns the percentage of clients that finished.
    pub fn percent(&self) -> f64 {
        if self.begun == 0 { 100.0 } else { 100.0 * self.finished as f64 / self.begun as f64 }
    }
}

/// The results of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The parameters.
    pub plan: Plan,
    /// Established clients, new ones by round trip, and the same after the flood.
    pub tallies: Vec<Tally>,
    /// Packets of the flood, including backends' answers to it.
    pub flood_packets: u64,
    /// Bytes of these packets.
    pub flood_bytes: u64,
    /// Flows in the table before the flood.
    pub flows_before: u32,
    /// The maximum number of flows in the table.
    pub flows_max: u32,
    /// Flows in the table after all unconfirmed ones have expired.
    pub flows_after: u32,
    /// ICMP errors that Weir sent, and their bytes.
    pub errors: (u64, u64),
    /// Evicted flows.
    pub evicted: u64,
    /// Drops by reason over the whole run, the most frequent first.
    pub drops: Vec<(&'static str, u64)>,
    /// Seconds of the flood on the simulation's clock.
    pub seconds: f64,
    /// Million packets per second that the machine simulated.
    pub wall_mpps: f64,
}

/// Returns how long an unconfirmed NAT flow stays in a table of `flows` flows at most, in
/// milliseconds, if `rate` such flows begin in a second.
pub fn unconfirmed_ms(flows: u32, rate: u64) -> f64 {
    1000.0 * f64::from(budget(flows, DEFAULT_PERCENT[0])) / rate as f64
}

impl Outcome {
    pub(super) fn new(plan: &Plan, tallies: usize) -> Outcome {
        Outcome {
            plan: *plan,
            tallies: vec![Tally::default(); tallies],
            flood_packets: 0,
            flood_bytes: 0,
            flows_before: 0,
            flows_max: 0,
            flows_after: 0,
            errors: (0, 0),
            evicted: 0,
            drops: Vec::new(),
            seconds: 0.0,
            wall_mpps: 0.0,
        }
    }

    pub(super) fn record_duration(&mut self, wall: Duration, ns: u64) {
        self.seconds = ns as f64 / 1e9;
        self.wall_mpps = self.flood_packets as f64 / wall.as_secs_f64() / 1e6;
    }

    pub(super) fn count(&mut self, region: &Region) {
        let counters = region.counters();
        let arms =
            |counter| counters.sum(|page| page.arm_count(0, counter) + page.arm_count(1, counter));
        let (packets, bytes) = (ArmCounter::OriginatedPackets, ArmCounter::OriginatedBytes);
        self.errors = (arms(packets), arms(bytes));
        self.evicted = counters.sum(|page| page.lcore_count(Counter::FlowsEvicted));
        let dropped = |reason: &DropReason| {
            counters.sum(|page| page.dropped(0, *reason) + page.dropped(1, *reason))
        };
        let drops = DropReason::ALL.iter().map(|reason| (reason.name(), dropped(reason)));
        self.drops = drops.filter(|(_, count)| *count > 0).collect();
        self.drops.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    }

    /// Returns the results of the established clients.
    pub fn established(&self) -> &Tally {
        &self.tallies[ESTABLISHED]
    }

    /// Returns the results of new clients during the flood, by round trip.
    pub fn during(&self) -> &[Tally] {
        &self.tallies[DURING..AFTER]
    }

    /// Returns the results of new clients after the flood, by round trip.
    pub fn after(&self) -> &[Tally] {
        &self.tallies[AFTER..]
    }

    /// Returns how long an unconfirmed NAT flow stays in the table at most, in milliseconds: the
    /// budget of such flows divided by the rate. A client whose two round trips take longer does
    /// not finish.
    pub fn limit_ms(&self) -> f64 {
        unconfirmed_ms(self.plan.flows, self.plan.rate)
    }

    /// Returns whether a promise covers this round trip. Without NAT, and for floods that begin no
    /// flows, all are covered.
    pub fn is_within(&self, trip: usize) -> bool {
        let within = self.limit_ms() >= 2.0 * ROUND_TRIPS_MS[trip] as f64;
        self.plan.mode != Mode::Nat || !self.plan.kind.begins_flows() || within
    }

    /// Returns the broken promises, one per line. `promises_new` states whether new clients during
    /// a flood of this rate are promised anything.
    pub fn broken(&self, promises_new: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let established = self.established();
        if established.lost > 0 {
            let (lost, first) = (established.lost, &established.first);
            broken.push(format!("established clients lost {lost} packets, the first {first:?}"));
        }
        for (trip, tally) in self.during().iter().enumerate().filter(|_| promises_new) {
            if self.is_within(trip) && tally.finished * 100 < tally.begun * MIN_FINISHED_PERCENT {
                let (finished, begun, first) = (tally.finished, tally.begun, &tally.first);
                broken.push(format!(
                    "{finished} of {begun} new clients with a round trip of {} ms finished, first \
                     loss {first:?}",
                    ROUND_TRIPS_MS[trip]
                ));
            }
        }
        for (tally, ms) in self.after().iter().zip(ROUND_TRIPS_MS) {
            if tally.finished < tally.begun {
                let (finished, begun, first) = (tally.finished, tally.begun, &tally.first);
                broken.push(format!(
                    "{finished} of {begun} clients with a round trip of {ms} ms that began one \
                     second after the flood finished, first loss {first:?}"
                ));
            }
        }
        let max_errors = u64::from(ERROR_LIMITS.by_arm) * 2 * (self.seconds as u64 + 2);
        if self.errors.0 > max_errors || self.errors.1 > self.flood_bytes {
            broken.push(format!("{} errors of {} bytes were sent", self.errors.0, self.errors.1));
        }
        let clients = || self.tallies.iter().map(|tally| tally.begun);
        let max_flows = match self.plan.mode {
            Mode::Return => 0,
            _ => clients().sum::<u64>(),
        };
        if u64::from(self.flows_after) > max_flows {
            broken.push(format!("{} flows remain, of {max_flows} clients", self.flows_after));
        }
        broken
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { mode, kind, rate, .. } = self.plan;
        let percents = |tallies: &[Tally]| {
            let all: Vec<_> =
                tallies.iter().map(|tally| format!("{:.1}", tally.percent())).collect();
            all.join(" / ")
        };
        let name = format!("{mode:?}, {kind:?}").to_lowercase();
        write!(
            f,
            "| {name} | {:.2} | {} of {} | {} | {} | {} -> {} -> {} | {:.4} | {:.2} |",
            rate as f64 / 1e6,
            self.established().lost,
            self.established().packets,
            percents(self.during()),
            percents(self.after()),
            self.flows_before,
            self.flows_max,
            self.flows_after,
            self.errors.1 as f64 / self.flood_bytes.max(1) as f64,
            self.wall_mpps,
        )
    }
}
