//! Rates from differences of counters, and their last values for sparklines.

use std::collections::HashMap;
use std::time::Instant;

use slowpath::control::report::{DropReport, NicReport, ServiceReport, Status};
use tables::record::NONE;

/// Number of values that a series keeps.
pub const HISTORY: usize = 60;
/// Maximum number of rows with a series (240 bytes each). Further rows have rates only.
pub const MAX_SERIES: usize = 8192;

/// The last [`HISTORY`] values of a rate or share.
#[derive(Clone, Debug)]
pub struct Series {
    values: Box<[f32; HISTORY]>,
    /// Index of the next value.
    next: usize,
    len: usize,
}

impl Default for Series {
    fn default() -> Series {
        Series { values: Box::new([f32::NAN; HISTORY]), next: 0, len: 0 }
    }
}

impl Series {
    /// Appends a value, in place of the oldest one if the series is full.
    pub fn push(&mut self, value: f32) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % HISTORY;
        self.len = (self.len + 1).min(HISTORY);
    }

    /// Returns the last `count` values, oldest first; fewer if there are not as many.
    pub fn last(&self, count: usize) -> Vec<f32> {
        let count = count.min(self.len);
        let first = self.next + HISTORY - count;
        (0..count).map(|index| self.values[(first + index) % HISTORY]).collect()
    }
}

/// Counters of a row, or their rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts<T> {
    /// Packets.
    pub packets: T,
    /// Bytes.
    pub bytes: T,
    /// Flows that were created.
    pub new_flows: T,
    /// Packets that were dropped.
    pub drops: T,
}

/// Rates per second.
pub type Rates = Counts<f64>;

impl Counts<u64> {
    /// Returns the counts of a row with a single counter of any unit, which takes the place of
    /// `packets`.
    fn of_one(value: u64) -> Counts<u64> {
        Counts { packets: value, ..Counts::default() }
    }

    fn as_array(self) -> [u64; 4] {
        [self.packets, self.bytes, self.new_flows, self.drops]
    }

    /// Returns the rates since `before`; `None` if a counter was reset.
    fn rates_since(self, before: Counts<u64>, seconds: f64) -> Option<Rates> {
        let (now, before) = (self.as_array(), before.as_array());
        if now.iter().zip(before).any(|(now, before)| *now < before) {
            return None;
        }
        let rate = |index: usize| (now[index] - before[index]) as f64 / seconds;
        Some(Rates { packets: rate(0), bytes: rate(1), new_flows: rate(2), drops: rate(3) })
    }
}

/// A row that is followed over samples.
#[derive(Clone, Debug)]
struct Track {
    counts: Counts<u64>,
    /// Rates between the last two samples; `None` after the first sample and after a reset.
    rates: Option<Rates>,
    /// Rates of packets; `None` beyond [`MAX_SERIES`].
    series: Option<Series>,
    /// The last round (call of [`Tracks::advance`]) whose sample contained the row.
    round: u64,
}

/// Rates over the whole appliance.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Packets, bytes and new flows of all services, and all drops; `None` until the second sample.
    pub rates: Option<Rates>,
    /// Packets per second.
    pub packets: Series,
    /// New flows per second.
    pub new_flows: Series,
    /// Drops per second.
    pub drops: Series,
    /// Mean share of the lcores' time in poll iterations with packets, 0 to 1.
    pub busy: Series,
}

/// Follows all counters over samples.
#[derive(Debug, Default)]
pub struct Tracks {
    at: Option<Instant>,
    round: u64,
    /// Number of series in use.
    series: usize,
    services: HashMap<String, Track>,
    /// Backends by their id in the region.
    backends: HashMap<u32, Track>,
    /// Drops and counters of NICs, by arm and name.
    counters: HashMap<String, Track>,
    /// Lcores by id: the last round that contained it, and its busy share.
    lcores: HashMap<u32, (u64, Series)>,
    /// The whole appliance.
    pub totals: Totals,
}

/// The reports that a sample consists of.
pub struct Reports<'a> {
    /// Response of `GET /status`.
    pub status: &'a Status,
    /// Response of `GET /services`.
    pub services: &'a [ServiceReport],
    /// Response of `GET /drops`.
    pub drops: &'a [DropReport],
    /// Response of `GET /nics`.
    pub nics: &'a [NicReport],
}

impl Tracks {
    /// Computes rates from the counters of a sample and those before. Removes the rows that the
    /// sample does not contain.
    pub fn advance(&mut self, at: Instant, reports: &Reports<'_>) {
        let seconds = self.at.map(|before| at.saturating_duration_since(before).as_secs_f64());
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        self.at = Some(at);
        self.round += 1;
        let round = self.round;
        let mut step = Step { round, seconds, series: &mut self.series };
        let mut sum = Rates::default();
        let mut any_known = false;
        // Drops and NICs come first: they are few, and so always get a series.
        for drop in reports.drops {
            let key = counter_key(&drop.arm, &drop.reason);
            let counts = Counts::of_one(drop.packets);
            let rates = step.follow(&mut self.counters, key.as_str(), counts);
            any_known |= rates.is_some();
            sum.drops += rates.map_or(0.0, |rates| rates.packets);
        }
        for nic in reports.nics {
            for (name, value) in nic_counters(nic) {
                let key = nic_key(&nic.arm, name);
                step.follow(&mut self.counters, key.as_str(), Counts::of_one(value));
            }
        }
        for service in reports.services {
            let counts = Counts {
                packets: service.packets,
                bytes: service.bytes,
                new_flows: service.new_flows,
                drops: service.drops,
            };
            let rates = step.follow(&mut self.services, service.name.as_str(), counts);
            any_known |= rates.is_some();
            let rates = rates.unwrap_or_default();
            sum.packets += rates.packets;
            sum.bytes += rates.bytes;
            sum.new_flows += rates.new_flows;
        }
        for backend in reports.services.iter().flat_map(|service| &service.backends) {
            let counts = Counts {
                packets: backend.packets,
                bytes: backend.bytes,
                new_flows: backend.new_flows,
                drops: 0,
            };
            // Backends that are not in the region have no id. A backend of several services is in
            // the list of each.
            if backend.id == NONE {
                continue;
            }
            if self.backends.get(&backend.id).is_none_or(|track| track.round != round) {
                step.follow(&mut self.backends, &backend.id, counts);
            }
        }
        forget(&mut self.services, round, &mut self.series);
        forget(&mut self.backends, round, &mut self.series);
        forget(&mut self.counters, round, &mut self.series);
        for lcore in &reports.status.lcores {
            let (seen, series) = self.lcores.entry(lcore.id).or_default();
            *seen = round;
            series.push(lcore.busy as f32);
        }
        self.lcores.retain(|_, (seen, _)| *seen == round);
        let totals = &mut self.totals;
        // After a reset of all counters, for example by a new region, nothing is known.
        totals.rates = any_known.then_some(sum);
        let known = |value: f64| if any_known { value as f32 } else { f32::NAN };
        totals.packets.push(known(sum.packets));
        totals.new_flows.push(known(sum.new_flows));
        totals.drops.push(known(sum.drops));
        let lcores = &reports.status.lcores;
        let busy: f64 = lcores.iter().map(|lcore| lcore.busy).sum();
        totals.busy.push((busy / lcores.len().max(1) as f64) as f32);
    }

    /// Returns the rates of a service.
    pub fn service(&self, name: &str) -> Option<Rates> {
        self.services.get(name)?.rates
    }

    /// Returns the rates of a backend.
    pub fn backend(&self, id: u32) -> Option<Rates> {
        self.backends.get(&id)?.rates
    }

    /// Returns the drops per second of an arm and reason.
    pub fn drop(&self, arm: &str, reason: &str) -> Option<f64> {
        Some(self.counters.get(&counter_key(arm, reason))?.rates?.packets)
    }

    /// Returns the rate per second of a counter of an arm's NIC.
    pub fn nic(&self, arm: &str, name: &str) -> Option<f64> {
        Some(self.counters.get(&nic_key(arm, name))?.rates?.packets)
    }

    /// Returns the series of a service.
    pub fn service_series(&self, name: &str) -> Option<&Series> {
        self.services.get(name)?.series.as_ref()
    }

    /// Returns the series of a backend.
    pub fn backend_series(&self, id: u32) -> Option<&Series> {
        self.backends.get(&id)?.series.as_ref()
    }

    /// Returns the series of drops of an arm and reason.
    pub fn drop_series(&self, arm: &str, reason: &str) -> Option<&Series> {
        self.counters.get(&counter_key(arm, reason))?.series.as_ref()
    }

    /// Returns the series of a counter of an arm's NIC.
    pub fn nic_series(&self, arm: &str, name: &str) -> Option<&Series> {
        self.counters.get(&nic_key(arm, name))?.series.as_ref()
    }

    /// Returns the series of an lcore's busy share.
    pub fn lcore_series(&self, id: u32) -> Option<&Series> {
        self.lcores.get(&id).map(|(_, series)| series)
    }
}

/// Name under which the field [`NicReport::arrived`] is followed, like a counter.
pub const ARRIVED: &str = "arrived";
/// Name under which the field [`NicReport::taken`] is followed, like a counter.
pub const TAKEN: &str = "taken";

/// Returns all counters of a NIC by name.
pub fn nic_counters(nic: &NicReport) -> impl Iterator<Item = (&str, u64)> {
    let named = nic.counters.iter().chain(&nic.events).chain(&nic.driver_counters);
    let named = named.map(|(name, value)| (name.as_str(), *value));
    [(ARRIVED, nic.arrived), (TAKEN, nic.taken)].into_iter().chain(named)
}

fn counter_key(arm: &str, reason: &str) -> String {
    format!("{arm}\n{reason}")
}

fn nic_key(arm: &str, name: &str) -> String {
    format!("nic\n{arm}\n{name}")
}

/// One round of [`Tracks::advance`].
struct Step<'s> {
    round: u64,
    /// Seconds since the sample before; `None` for the first one.
    seconds: Option<f64>,
    series: &'s mut usize,
}

impl Step<'_> {
    /// Stores the counters of a row, and returns its rates.
    fn follow<K, Q>(
        &mut self,
        tracks: &mut HashMap<K, Track>,
        key: &Q,
        counts: Counts<u64>,
    ) -> Option<Rates>
    where
        K: std::borrow::Borrow<Q> + Eq + std::hash::Hash,
        Q: ToOwned<Owned = K> + Eq + std::hash::Hash + ?Sized,
    {
        let Some(track) = tracks.get_mut(key) else {
            let mut series = (*self.series < MAX_SERIES).then(Series::default);
            if let Some(series) = &mut series {
                series.push(f32::NAN);
                *self.series += 1;
            }
            let new = Track { counts, rates: None, series, round: self.round };
            tracks.insert(key.to_owned(), new);
            return None;
        };
        let before = std::mem::replace(&mut track.counts, counts);
        track.rates = self.seconds.and_then(|seconds| counts.rates_since(before, seconds));
        track.round = self.round;
        if track.series.is_none() && *self.series < MAX_SERIES {
            track.series = Some(Series::default());
            *self.series += 1;
        }
        if let Some(series) = &mut track.series {
            series.push(track.rates.map_or(f32::NAN, |rates| rates.packets as f32));
        }
        track.rates
    }
}

/// Removes the rows that the sample of this round does not contain.
fn forget<K: Eq + std::hash::Hash>(tracks: &mut HashMap<K, Track>, round: u64, series: &mut usize) {
    tracks.retain(|_, track| {
        let seen = track.round == round;
        if !seen && track.series.is_some() {
            *series -= 1;
        }
        seen
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use slowpath::control::report::{BackendReport, Lcore};
    use std::time::Duration;

    fn service(name: &str, packets: u64) -> ServiceReport {
        let backend = BackendReport { id: 7, packets, ..BackendReport::default() };
        ServiceReport {
            name: name.into(),
            packets,
            bytes: packets * 100,
            backends: vec![backend],
            ..ServiceReport::default()
        }
    }

    fn advance(tracks: &mut Tracks, at: Instant, services: &[ServiceReport], drops: u64) {
        let lcores = vec![Lcore { busy: 0.5, ..Lcore::default() }];
        let status = Status { lcores, ..Status::default() };
        let drop = DropReport {
            arm: "ingress".into(),
            reason: "no_route".into(),
            packets: drops,
            ..DropReport::default()
        };
        let nic = NicReport { arm: "ingress".into(), arrived: drops, ..NicReport::default() };
        let reports = Reports { status: &status, services, drops: &[drop], nics: &[nic] };
        tracks.advance(at, &reports);
    }

    #[test]
    fn a_series_keeps_the_last_values() {
        let mut series = Series::default();
        assert!(series.last(10).is_empty());
        (0..HISTORY + 5).for_each(|value| series.push(value as f32));
        assert_eq!(series.last(3), [62.0, 63.0, 64.0]);
        assert_eq!(series.last(1000).len(), HISTORY);
        assert_eq!(series.last(1000)[0], 5.0);
    }

    #[test]
    fn rates_are_differences_over_the_time_between_samples() {
        let (mut tracks, start) = (Tracks::default(), Instant::now());
        advance(&mut tracks, start, &[service("a", 1000)], 4);
        assert_eq!((tracks.service("a"), tracks.totals.rates), (None, None));
        advance(&mut tracks, start + Duration::from_secs(2), &[service("a", 3000)], 10);
        let rates = tracks.service("a").unwrap();
        assert_eq!((rates.packets, rates.bytes), (1000.0, 100_000.0));
        assert_eq!(tracks.backend(7).unwrap().packets, 1000.0);
        assert_eq!(tracks.drop("ingress", "no_route"), Some(3.0));
        assert_eq!(tracks.nic("ingress", ARRIVED), Some(3.0));
        assert_eq!(tracks.totals.rates.unwrap().drops, 3.0);
        let series = tracks.service_series("a").unwrap().last(9);
        assert!(series.len() == 2 && series[0].is_nan() && series[1] == 1000.0, "{series:?}");
        assert_eq!(tracks.totals.busy.last(1), [0.5]);
    }

    #[test]
    fn a_reset_counter_has_no_rate_until_the_next_sample() {
        let (mut tracks, start) = (Tracks::default(), Instant::now());
        for (second, packets) in [(0, 1000), (1, 2000), (2, 50), (3, 60)] {
            let at = start + Duration::from_secs(second);
            advance(&mut tracks, at, &[service("a", packets)], packets);
            match second {
                2 => {
                    assert_eq!((tracks.service("a"), tracks.backend(7)), (None, None));
                    assert_eq!(tracks.drop("ingress", "no_route"), None);
                    assert_eq!(tracks.totals.rates, None);
                    assert!(tracks.service_series("a").unwrap().last(1)[0].is_nan());
                }
                3 => assert_eq!(tracks.service("a").unwrap().packets, 10.0),
                _ => {}
            }
        }
        // Two samples at the same time give no rate.
        advance(&mut tracks, start + Duration::from_secs(3), &[service("a", 90)], 90);
        assert_eq!(tracks.service("a"), None);
    }

    #[test]
    fn series_are_bounded_and_rows_that_disappear_are_removed() {
        let (mut tracks, start) = (Tracks::default(), Instant::now());
        let all: Vec<_> = (0..MAX_SERIES + 100).map(|n| service(&format!("s{n}"), 5)).collect();
        advance(&mut tracks, start, &all, 0);
        let with = |tracks: &Tracks| {
            let all = tracks.services.values().chain(tracks.counters.values());
            all.filter(|track| track.series.is_some()).count()
        };
        assert_eq!((tracks.series, with(&tracks)), (MAX_SERIES, MAX_SERIES));
        assert_eq!(tracks.services.len(), all.len());
        assert!(tracks.drop_series("ingress", "no_route").is_some());
        advance(&mut tracks, start + Duration::from_secs(1), &all, 0);
        assert_eq!(tracks.service(&all[all.len() - 1].name).unwrap().packets, 0.0);
        advance(&mut tracks, start + Duration::from_secs(2), &all[..2], 0);
        assert_eq!((tracks.services.len(), tracks.backends.len()), (2, 1));
        // Their series are free for others: the backend has one from the next sample on.
        let last = [service("new", 1)];
        advance(&mut tracks, start + Duration::from_secs(3), &last, 0);
        assert!(tracks.service_series("new").is_some() && tracks.backend_series(7).is_some());
        assert!(tracks.series < 10, "{}", tracks.series);
    }
}
