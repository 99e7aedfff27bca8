//! Rates over the last ten minutes, in rings of fixed size.
//!
//! A sampler takes the counters each [`INTERVAL`]. The rings are in this process, not in the
//! browser: the first view has them without a script, and all viewers see the same.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Interval between two samples.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// Number of samples that a ring holds: ten minutes.
const SAMPLES: usize = 300;
/// Number of points of a sparkline. Each is the maximum of as many samples, so that a peak of two
/// seconds is seen.
pub const POINTS: usize = 60;
const SAMPLES_PER_POINT: u64 = (SAMPLES / POINTS) as u64;

/// The latest values of one quantity, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ring(VecDeque<f32>);

impl Ring {
    /// Adds a value; the oldest one leaves a full ring.
    pub fn push(&mut self, value: f64) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(value as f32);
    }

    /// Returns the points of a sparkline, of which the last is that of the sample `number`: the
    /// maximum of each group of samples, `None` before the first sample. Groups keep their samples
    /// while time goes on, so that a point moves but does not change.
    pub fn points(&self, number: u64) -> [Option<f32>; POINTS] {
        let mut points = [None; POINTS];
        let last = number / SAMPLES_PER_POINT;
        for (age, value) in (0..).zip(self.0.iter().rev()) {
            let Some(group) = number.checked_sub(age).map(|one| one / SAMPLES_PER_POINT) else {
                break;
            };
            let Some(at) = (POINTS as u64 - 1).checked_sub(last - group) else { break };
            let point: &mut Option<f32> = &mut points[at as usize];
            *point = Some(point.map_or(*value, |most| most.max(*value)));
        }
        points
    }
}

/// Counters of one thing at two samples, and the ring of one of its rates.
#[derive(Clone, Debug)]
struct Series<const N: usize> {
    counts: [u64; N],
    rates: [f64; N],
    ring: Ring,
    sample: u64,
}

/// Rates of things that have the same counters, by key. The ring of a thing has the rate of its
/// first counter.
#[derive(Debug)]
pub struct RateTable<K, const N: usize> {
    series: HashMap<K, Series<N>>,
    max: usize,
}

impl<K: Eq + Hash, const N: usize> RateTable<K, N> {
    /// Creates a table of at most `max` things; further ones have no rates.
    pub fn new(max: usize) -> RateTable<K, N> {
        RateTable { series: HashMap::new(), max }
    }

    /// Takes the counters of all things at the sample `number`, `seconds` after the one before. Of
    /// equal keys, the first one counts. Things that are no longer there are forgotten. A counter
    /// that began anew has the rate 0 for one sample.
    fn sample(
        &mut self,
        number: u64,
        seconds: f64,
        counts: impl IntoIterator<Item = (K, [u64; N])>,
    ) {
        for (key, counts) in counts {
            let has_capacity = self.series.len() < self.max;
            if let Some(series) = self.series.get_mut(&key) {
                if series.sample == number {
                    continue;
                }
                let pairs = counts.iter().zip(series.counts);
                let mut rates = pairs.map(|(now, before)| rate(*now, before, seconds));
                series.rates = std::array::from_fn(|_| rates.next().unwrap_or_default());
                series.counts = counts;
                series.sample = number;
                series.ring.push(series.rates[0]);
            } else if has_capacity {
                let (rates, ring) = ([0.0; N], Ring::default());
                self.series.insert(key, Series { counts, rates, ring, sample: number });
            }
        }
        self.series.retain(|_, series| series.sample == number);
    }

    /// Returns the latest rates of a thing, and the ring of the first one.
    pub fn get<Q>(&self, key: &Q) -> Option<([f64; N], &Ring)>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.series.get(key).map(|series| (series.rates, &series.ring))
    }
}

fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

/// Counters of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<S, B> {
    /// Packets and bytes received, new flows, drops, all since the region was created.
    pub totals: [u64; 4],
    /// Flows in the flow table.
    pub flows: u64,
    /// Bytes, packets, new flows and drops of services.
    pub services: Vec<(S, [u64; 4])>,
    /// Bytes, packets and new flows of backends.
    pub backends: Vec<(B, [u64; 3])>,
    /// Packets dropped by arm and reason, as indexes.
    pub drops: Vec<((u8, usize), [u64; 1])>,
    /// Share of busy iterations by lcore.
    pub busy: Vec<(u32, f64)>,
}

impl<S, B> Default for Sample<S, B> {
    fn default() -> Sample<S, B> {
        Sample {
            totals: [0; 4],
            flows: 0,
            services: Vec::new(),
            backends: Vec::new(),
            drops: Vec::new(),
            busy: Vec::new(),
        }
    }
}

/// The history of everything that the page draws.
#[derive(Debug)]
pub struct History<S, B> {
    /// Number of the latest sample.
    pub number: u64,
    at: Option<Instant>,
    counts: [u64; 4],
    /// Latest rates of the totals.
    pub rates: [f64; 4],
    /// Rings of packets, bytes, new flows and drops per second.
    pub totals: [Ring; 4],
    /// Flows in the flow table.
    pub flows: Ring,
    /// Bytes, packets, new flows and drops per second by service.
    pub services: RateTable<S, 4>,
    /// Bytes, packets and new flows per second by backend.
    pub backends: RateTable<B, 3>,
    /// Drops per second by arm and reason.
    pub drops: RateTable<(u8, usize), 1>,
    /// Share of busy iterations by lcore.
    pub busy: HashMap<u32, Ring>,
}

/// Maximum number of services with rates.
pub const MAX_SERVICES: usize = 1024;
/// Maximum number of backends with rates.
pub const MAX_BACKENDS: usize = 2048;
/// Maximum number of pairs of arm and drop reason; above their number.
const MAX_DROPS: usize = 1024;
/// Maximum number of lcores; above their number.
const MAX_LCORES: usize = 256;

impl<S: Eq + Hash, B: Eq + Hash> Default for History<S, B> {
    fn default() -> History<S, B> {
        History {
            number: 0,
            at: None,
            counts: [0; 4],
            rates: [0.0; 4],
            totals: Default::default(),
            flows: Ring::default(),
            services: RateTable::new(MAX_SERVICES),
            backends: RateTable::new(MAX_BACKENDS),
            drops: RateTable::new(MAX_DROPS),
            busy: HashMap::new(),
        }
    }
}

impl<S: Eq + Hash, B: Eq + Hash> History<S, B> {
    /// Adds a sample.
    pub fn add(&mut self, sample: Sample<S, B>, now: Instant) {
        let before = self.at.replace(now);
        self.number += 1;
        // Without a sample before, nothing has a rate yet.
        let seconds = before.map(|before| now.duration_since(before).as_secs_f64().max(0.001));
        if let Some(seconds) = seconds {
            let counts = sample.totals.iter().zip(self.counts);
            for (at, (now, before)) in counts.enumerate() {
                self.rates[at] = rate(*now, before, seconds);
                self.totals[at].push(self.rates[at]);
            }
        }
        self.counts = sample.totals;
        self.flows.push(sample.flows as f64);
        let seconds = seconds.unwrap_or(1.0);
        self.services.sample(self.number, seconds, sample.services);
        self.backends.sample(self.number, seconds, sample.backends);
        self.drops.sample(self.number, seconds, sample.drops);
        self.busy.retain(|lcore, _| sample.busy.iter().any(|(known, _)| known == lcore));
        for (lcore, busy) in sample.busy.into_iter().take(MAX_LCORES) {
            self.busy.entry(lcore).or_default().push(busy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TestHistory = History<&'static str, u32>;

    fn sample(bytes: u64, services: &[(&'static str, u64)]) -> Sample<&'static str, u32> {
        let services = services.iter().map(|(name, bytes)| (*name, [*bytes, 0, 0, 0])).collect();
        Sample { totals: [0, bytes, 0, 0], services, ..Sample::default() }
    }

    #[test]
    fn rates_are_differences_over_the_time_that_passed() {
        let (mut history, start) = (TestHistory::default(), Instant::now());
        history.add(sample(1_000, &[("a", 500)]), start);
        assert_eq!((history.rates[1], history.totals[1].0.len()), (0.0, 0), "no rate yet");
        history.add(sample(5_000, &[("a", 900), ("b", 7)]), start + 2 * INTERVAL);
        assert_eq!(history.rates[1], 1_000.0);
        assert_eq!(history.services.get("a").unwrap().0[0], 100.0);
        assert_eq!(history.services.get("b").unwrap().0[0], 0.0, "new: all of it is older");
        // The region began anew: no rate that cannot be.
        history.add(sample(10, &[("a", 2)]), start + 3 * INTERVAL);
        assert_eq!((history.rates[1], history.services.get("a").unwrap().0[0]), (0.0, 0.0));
        assert!(history.services.get("b").is_none(), "removed");
        let twice = [("a", 202), ("a", 202)];
        history.add(sample(10, &twice), start + 4 * INTERVAL);
        assert_eq!(history.services.get("a").unwrap().0[0], 100.0);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut history, start) = (TestHistory::default(), Instant::now());
        for number in 0..SAMPLES as u64 + 9 {
            let mut one = sample(number, &[("a", number)]);
            one.backends = (0..MAX_BACKENDS as u32 + 9).map(|id| (id, [0; 3])).collect();
            history.add(one, start + INTERVAL * number as u32);
        }
        assert_eq!(history.backends.series.len(), MAX_BACKENDS);
        assert_eq!(history.services.get("a").unwrap().1.0.len(), SAMPLES);
        assert!(history.backends.series.values().all(|one| one.ring.0.len() <= SAMPLES));
    }

    #[test]
    fn points_are_maxima_of_fixed_groups() {
        let mut ring = Ring::default();
        assert_eq!(ring.points(0), [None; POINTS]);
        // Samples 1 to 12, with a peak at 7: groups 0 (1 to 4), 1 (5 to 9), 2 (10 to 12).
        for number in 1..=12_u32 {
            ring.push(if number == 7 { 100.0 } else { f64::from(number) });
        }
        let points = ring.points(12);
        assert_eq!(points[POINTS - 3..], [Some(4.0), Some(100.0), Some(12.0)]);
        assert_eq!(points[..POINTS - 3], [None; POINTS - 3]);
        // A full ring fills all points, also while the last group is incomplete.
        for number in 13..=1000_u32 {
            ring.push(f64::from(number));
            let points = ring.points(number.into());
            assert_eq!(points[POINTS - 1], Some(number as f32));
            assert!(number < 300 || points[1..].iter().all(Option::is_some), "{number}");
        }
    }
}
