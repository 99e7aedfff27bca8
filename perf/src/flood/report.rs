//! What came out of a simulation, and whether it is what Weir promises.

use super::plan::{AFTER, DURING, ERROR_LIMITS, ESTABLISHED, Mode, Plan, ROUND_TRIPS_MS};
use std::fmt;
use std::time::Duration;
use tables::counters::{ArmCounter, Counter};
use tables::reason::DropReason;
use tables::region::Region;

/// Of new clients so many in a hundred must come through during a flood.
const MOST: u64 = 95;

/// Clients of one kind.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// How many began.
    pub begun: u64,
    /// How many got everything through. Established ones are never through.
    pub through: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that did not leave, or not as they should.
    pub lost: u64,
    /// The first of those.
    pub first: Option<String>,
}

impl Tally {
    pub(super) fn lost(&mut self, what: impl FnOnce() -> String) {
        self.lost += 1;
        self.first.get_or_insert_with(what);
    }

    /// How many of a hundred came through.
    pub fn percent(&self) -> f64 {
        if self.begun == 0 { 100.0 } else { 100.0 * self.through as f64 / self.begun as f64 }
    }
}

/// What came out of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was simulated.
    pub plan: Plan,
    /// Established clients, new ones by round trip, and the same after the flood.
    pub tallies: Vec<Tally>,
    /// Packets of the flood, backends' answers to it included.
    pub flood_packets: u64,
    /// Their bytes.
    pub flood_bytes: u64,
    /// Flows in the table before the flood.
    pub flows_before: u32,
    /// The most flows in the table at any time.
    pub flows_most: u32,
    /// Flows in the table when all that is unconfirmed has ended.
    pub flows_after: u32,
    /// ICMP errors that Weir sent, and their bytes.
    pub errors: (u64, u64),
    /// Flows that were evicted.
    pub evicted: u64,
    /// Drops by reason, all of the run, the most frequent one first.
    pub drops: Vec<(&'static str, u64)>,
    /// Seconds of the flood on the simulation's clock.
    pub seconds: f64,
    /// Million packets a second that the machine simulated.
    pub wall_mpps: f64,
}

impl Outcome {
    pub(super) fn new(plan: &Plan, tallies: usize) -> Outcome {
        Outcome {
            plan: *plan,
            tallies: vec![Tally::default(); tallies],
            flood_packets: 0,
            flood_bytes: 0,
            flows_before: 0,
            flows_most: 0,
            flows_after: 0,
            errors: (0, 0),
            evicted: 0,
            drops: Vec::new(),
            seconds: 0.0,
            wall_mpps: 0.0,
        }
    }

    pub(super) fn took(&mut self, wall: Duration, ns: u64) {
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

    /// Established clients.
    pub fn established(&self) -> &Tally {
        &self.tallies[ESTABLISHED]
    }

    /// New clients during the flood, by round trip.
    pub fn during(&self) -> &[Tally] {
        &self.tallies[DURING..AFTER]
    }

    /// New clients after the flood, by round trip.
    pub fn after(&self) -> &[Tally] {
        &self.tallies[AFTER..]
    }

    /// For how long an unconfirmed flow of NAT stays in the table, milliseconds: the places for
    /// them divided by the rate. It must exceed two round trips.
    pub fn limit_ms(&self) -> f64 {
        let places = tables::flow::places(self.plan.flows)[0];
        1000.0 * f64::from(places) / self.plan.rate as f64
    }

    /// Whether this round trip is within what is promised. Without NAT each one is.
    pub fn is_within(&self, trip: usize) -> bool {
        let within = self.limit_ms() >= 2.0 * ROUND_TRIPS_MS[trip] as f64;
        self.plan.mode != Mode::Nat || !self.plan.kind.begins_flows() || within
    }

    /// The promises that were broken, a line each. `new` says whether new clients are promised
    /// anything at this rate.
    pub fn broken(&self, new: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let established = self.established();
        if established.lost > 0 {
            let (lost, first) = (established.lost, &established.first);
            broken.push(format!("established clients lost {lost} packets, first {first:?}"));
        }
        for (trip, tally) in self.during().iter().enumerate().filter(|_| new) {
            if self.is_within(trip) && tally.through * 100 < tally.begun * MOST {
                let (through, begun, first) = (tally.through, tally.begun, &tally.first);
                broken.push(format!(
                    "of {begun} new clients with {} ms {through} came through, first {first:?}",
                    ROUND_TRIPS_MS[trip]
                ));
            }
        }
        for (tally, ms) in self.after().iter().zip(ROUND_TRIPS_MS) {
            if tally.through < tally.begun {
                let (through, begun, first) = (tally.through, tally.begun, &tally.first);
                broken.push(format!(
                    "a second after the end {through} of {begun} with {ms} ms, first {first:?}"
                ));
            }
        }
        let most = u64::from(ERROR_LIMITS.by_arm) * 2 * (self.seconds as u64 + 2);
        if self.errors.0 > most || self.errors.1 > self.flood_bytes {
            broken.push(format!("{} errors of {} bytes were sent", self.errors.0, self.errors.1));
        }
        let confirmed = || self.tallies.iter().map(|tally| tally.begun);
        let wanted = match self.plan.mode {
            Mode::Return => 0,
            _ => confirmed().sum::<u64>(),
        };
        if u64::from(self.flows_after) > wanted {
            broken.push(format!("{} flows are left, of {wanted} clients", self.flows_after));
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
            self.flows_most,
            self.flows_after,
            self.errors.1 as f64 / self.flood_bytes.max(1) as f64,
            self.wall_mpps,
        )
    }
}
