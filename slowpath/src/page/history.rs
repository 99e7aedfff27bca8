//! Rates over the last ten minutes, in rings of fixed size.
//!
//! A sampler takes the counters each [`INTERVAL`]. The rings are in this process, not in the
//! browser: the first view has them without a script, and all viewers see the same.

use std::array;
use std::borrow::Borrow;
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

/// Counters of one thing by their ids in the region, in ascending order of the ids.
pub type Counts<const N: usize> = Vec<(u32, [u64; N])>;

/// Counters of one thing at the latest sample, and the ring of one of its rates.
#[derive(Clone, Debug)]
struct Series<const N: usize> {
    counts: Counts<N>,
    /// `None` until two samples have counters of the same id.
    rates: Option<[f64; N]>,
    /// `None` if the table has its maximum number of rings.
    ring: Option<Ring>,
    sample: u64,
}

/// Rates of things that have the same counters, by key. The ring of a thing has the rate of its
/// first counter.
#[derive(Debug)]
pub struct RateTable<K, const N: usize> {
    series: HashMap<K, Series<N>>,
    max_rings: usize,
}

impl<K: Eq + Hash, const N: usize> RateTable<K, N> {
    /// Creates a table with at most `max_rings` rings. Further things have rates only.
    pub fn new(max_rings: usize) -> RateTable<K, N> {
        RateTable { series: HashMap::new(), max_rings }
    }

    /// Takes the counters of all things at the sample `number`, `seconds` after the one before, and
    /// returns the sums of all rates. Of equal keys, the first one counts. Things that are no
    /// longer there are forgotten. A counter that began anew has the rate 0 for one sample.
    fn sample(
        &mut self,
        number: u64,
        seconds: f64,
        counts: impl IntoIterator<Item = (K, Counts<N>)>,
    ) -> [f64; N] {
        let mut sums = [0.0; N];
        let mut rings = self.series.values().filter(|series| series.ring.is_some()).count();
        for (key, counts) in counts {
            match self.series.get_mut(&key) {
                Some(series) if series.sample == number => {}
                Some(series) => {
                    series.rates = rates(&counts, &series.counts, seconds);
                    series.counts = counts;
                    series.sample = number;
                    if series.ring.is_none() && rings < self.max_rings {
                        series.ring = Some(Ring::default());
                        rings += 1;
                    }
                    let rates = series.rates.unwrap_or([0.0; N]);
                    if let Some(ring) = &mut series.ring {
                        ring.push(rates[0]);
                    }
                    for (sum, rate) in sums.iter_mut().zip(rates) {
                        *sum += rate;
                    }
                }
                None => {
                    let ring = (rings < self.max_rings).then(Ring::default);
                    rings += usize::from(ring.is_some());
                    self.series.insert(key, Series { counts, rates: None, ring, sample: number });
                }
            }
        }
        self.series.retain(|_, series| series.sample == number);
        sums
    }

    /// Returns the latest rates of a thing; `None` if there are none yet.
    pub fn rates<Q>(&self, key: &Q) -> Option<[f64; N]>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.series.get(key)?.rates
    }

    /// Returns the ring of a thing's first rate.
    pub fn ring<Q>(&self, key: &Q) -> Option<&Ring>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.series.get(key)?.ring.as_ref()
    }
}

fn rate(now: u64, before: u64, seconds: f64) -> f64 {
    now.saturating_sub(before) as f64 / seconds
}

/// Returns the rates of a thing, summed over the ids that had counters before. An id that is new to
/// it has none: the counters may be those of an earlier owner, or have grown in the meantime. If
/// all ids are new, the result is `None`.
fn rates<const N: usize>(
    now: &[(u32, [u64; N])],
    before: &[(u32, [u64; N])],
    seconds: f64,
) -> Option<[f64; N]> {
    let (mut sums, mut is_known) = ([0.0; N], now.is_empty());
    for (id, counts) in now {
        let Ok(at) = before.binary_search_by_key(id, |(id, _)| *id) else { continue };
        is_known = true;
        for ((sum, now), before) in sums.iter_mut().zip(counts).zip(before[at].1) {
            *sum += rate(*now, before, seconds);
        }
    }
    is_known.then_some(sums)
}

/// Counters of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<S, B> {
    /// Packets and bytes received, and drops, all since the region was created.
    pub totals: [u64; 3],
    /// Bytes, packets, new flows and drops of the services without counters of their own.
    pub others: [u64; 4],
    /// Flows in the flow table.
    pub flows: u64,
    /// Bytes, packets, new flows and drops of services.
    pub services: Vec<(S, Counts<4>)>,
    /// Bytes, packets and new flows of backends.
    pub backends: Vec<(B, Counts<3>)>,
    /// Packets dropped by arm and reason, as indexes.
    pub drops: Vec<((u8, usize), [u64; 1])>,
    /// Share of time in iterations with packets, by lcore.
    pub busy: Vec<(u32, f64)>,
}

impl<S, B> Default for Sample<S, B> {
    fn default() -> Sample<S, B> {
        Sample {
            totals: [0; 3],
            others: [0; 4],
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
    counts: [u64; 3],
    counts_of_others: [u64; 4],
    /// Latest rates of packets, bytes, new flows and drops.
    pub rates: [f64; 4],
    /// Latest rates of bytes, packets, new flows and drops of the services without counters of
    /// their own.
    pub others: [f64; 4],
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
    /// Share of time in iterations with packets, by lcore.
    pub busy: HashMap<u32, Ring>,
}

/// Maximum number of services with rings.
const MAX_SERVICES: usize = 1024;
/// Maximum number of backends with rings. Others have no rates either, since reading the counters
/// of all of them each time would cost too much.
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
            counts: [0; 3],
            counts_of_others: [0; 4],
            rates: [0.0; 4],
            others: [0.0; 4],
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
        let elapsed = before.map(|before| now.duration_since(before).as_secs_f64().max(0.001));
        let seconds = elapsed.unwrap_or(1.0);
        // The sum of rates by id, since a sum of counters would jump with the ids.
        let [_, _, new_flows, _] = self.services.sample(self.number, seconds, sample.services);
        if elapsed.is_some() {
            let totals: [f64; 3] =
                array::from_fn(|at| rate(sample.totals[at], self.counts[at], seconds));
            self.others =
                array::from_fn(|at| rate(sample.others[at], self.counts_of_others[at], seconds));
            let [packets, bytes, drops] = totals;
            self.rates = [packets, bytes, new_flows + self.others[2], drops];
            for (ring, rate) in self.totals.iter_mut().zip(self.rates) {
                ring.push(rate);
            }
        }
        self.counts = sample.totals;
        self.counts_of_others = sample.others;
        self.flows.push(sample.flows as f64);
        self.backends.sample(self.number, seconds, sample.backends);
        let drops = sample.drops.into_iter().map(|(key, counts)| (key, vec![(0, counts)]));
        self.drops.sample(self.number, seconds, drops);
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
        let counts = |bytes| vec![(7, [bytes, 0, 0, 0])];
        let services = services.iter().map(|(name, bytes)| (*name, counts(*bytes))).collect();
        Sample { totals: [0, bytes, 0], services, ..Sample::default() }
    }

    fn bytes(history: &TestHistory, service: &str) -> Option<f64> {
        history.services.rates(service).map(|rates| rates[0])
    }

    #[test]
    fn rates_are_differences_over_the_time_that_passed() {
        let (mut history, start) = (TestHistory::default(), Instant::now());
        history.add(sample(1_000, &[("a", 500)]), start);
        assert_eq!((history.rates[1], history.totals[1].0.len()), (0.0, 0), "no rate yet");
        history.add(sample(5_000, &[("a", 900), ("b", 7)]), start + 2 * INTERVAL);
        assert_eq!(history.rates[1], 1_000.0);
        assert_eq!(bytes(&history, "a"), Some(100.0));
        assert_eq!(bytes(&history, "b"), None, "new: all of it is older");
        // The region began anew: no rate that cannot be.
        history.add(sample(10, &[("a", 2)]), start + 3 * INTERVAL);
        assert_eq!((history.rates[1], bytes(&history, "a")), (0.0, Some(0.0)));
        assert!(history.services.ring("b").is_none(), "removed");
        let twice = [("a", 202), ("a", 202)];
        history.add(sample(10, &twice), start + 4 * INTERVAL);
        assert_eq!(bytes(&history, "a"), Some(100.0));
    }

    #[test]
    fn ids_that_change_make_no_peak() {
        let (mut history, start) = (TestHistory::default(), Instant::now());
        // Each id has 100 bytes and 10 new flows per second.
        let count = |number: u64| [1_000_000 + 200 * number, 0, 50_000 + 20 * number, 0];
        let ids: [&[u32]; 8] = [&[1, 2], &[1, 2], &[1], &[], &[2], &[1, 2], &[3], &[1, 2, 3]];
        let mut found = Vec::new();
        for (number, ids) in (0..).zip(ids) {
            let counts = ids.iter().map(|id| (*id, count(number))).collect();
            let services = vec![("a", counts)];
            let others = [0, 0, 4 * number, 0];
            let one = Sample { services, others, ..Sample::default() };
            history.add(one, start + INTERVAL * number as u32);
            found.push((bytes(&history, "a"), history.rates[2]));
        }
        let expected = [
            (None, 0.0),
            (Some(200.0), 22.0),
            (Some(100.0), 12.0),
            (Some(0.0), 2.0),
            (None, 2.0),
            (Some(100.0), 12.0),
            (None, 2.0),
            (Some(100.0), 12.0),
        ];
        assert_eq!(found, expected);
        let peak = |ring: &Ring| ring.0.iter().copied().fold(0.0, f32::max);
        assert_eq!(peak(history.services.ring("a").unwrap()), 200.0);
        assert_eq!(peak(&history.totals[2]), 22.0);
        assert_eq!(history.others[2], 2.0);
    }

    #[test]
    fn every_service_has_rates_and_the_first_ones_have_curves() {
        let (mut history, start) = (History::<usize, u32>::default(), Instant::now());
        let all = 10_000;
        for number in 0..2_u64 {
            let counts =
                |service: usize| vec![(service as u32, [number * service as u64, 0, 0, 0])];
            let services = (0..all).map(|service| (service, counts(service))).collect();
            let one = Sample { services, ..Sample::default() };
            history.add(one, start + INTERVAL * number as u32);
        }
        for service in [0, MAX_SERVICES, all - 1] {
            let rates = history.services.rates(&service).unwrap();
            assert_eq!(rates[0], service as f64 / 2.0, "{service}");
        }
        assert!(history.services.ring(&(MAX_SERVICES - 1)).is_some());
        assert!(history.services.ring(&MAX_SERVICES).is_none());
        // A service that is removed makes its ring available.
        for number in 2..4 {
            let services = (1..all).map(|service| (service, Vec::new())).collect();
            let one = Sample { services, ..Sample::default() };
            history.add(one, start + INTERVAL * number);
        }
        assert!(history.services.ring(&MAX_SERVICES).is_some());
        let rings = history.services.series.values().filter(|one| one.ring.is_some()).count();
        assert_eq!(rings, MAX_SERVICES);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut history, start) = (TestHistory::default(), Instant::now());
        for number in 0..SAMPLES as u64 + 9 {
            let mut one = sample(number, &[("a", number)]);
            one.backends =
                (0..MAX_BACKENDS as u32 + 9).map(|id| (id, vec![(id, [0; 3])])).collect();
            history.add(one, start + INTERVAL * number as u32);
        }
        let rings = || history.backends.series.values().filter_map(|one| one.ring.as_ref());
        assert_eq!(rings().count(), MAX_BACKENDS);
        assert_eq!(history.services.ring("a").unwrap().0.len(), SAMPLES);
        assert!(rings().all(|ring| ring.0.len() <= SAMPLES));
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
