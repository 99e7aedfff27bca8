//! Tests of the scheduler in simulated time, with random behavior of backends and random durations
//! of probes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn endpoint(n: u16) -> Endpoint {
    Endpoint { addr: [10, 0, (n >> 8) as u8, n as u8].into(), port: 80, protocol: 6 }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn timing(interval: u64, timeout: u64, jitter: u64, rise: u32, fall: u32) -> Timing {
    let [interval, timeout, jitter] = [interval, timeout, jitter].map(ms);
    Timing { interval, timeout, jitter, rise, fall, damping: 2 }
}

fn check(n: u16, timing: Timing) -> (DesiredCheck<u16>, Option<bool>) {
    (DesiredCheck { endpoint: endpoint(n), timing, target: n }, None)
}

fn result(good: bool) -> ProbeResult {
    ProbeResult { good: Some(good), reason: "".into(), took: Duration::ZERO }
}

/// Backends that become good or bad at given times, and a clock that advances by 1 ms per step.
struct Fixture {
    scheduler: Scheduler<u16>,
    started: Instant,
    now: Instant,
    /// For each backend, the times at which it becomes good or bad.
    changes: Vec<Vec<(Duration, bool)>>,
    /// Running probes by the time of their result.
    running: BTreeMap<(Instant, u64), (Token, bool)>,
    starts: Vec<Vec<Instant>>,
    verdicts: Vec<Vec<(Duration, bool)>>,
    late: usize,
    serial: u64,
}

impl Fixture {
    fn new(
        at_once: usize,
        seed: u64,
        timing: Timing,
        changes: Vec<Vec<(Duration, bool)>>,
    ) -> Fixture {
        let now = Instant::now();
        let mut scheduler = Scheduler::new(at_once, seed);
        let all = (0..changes.len() as u16).map(|n| check(n, timing)).collect();
        assert_eq!(scheduler.set(&name("web"), all, now), []);
        Fixture {
            scheduler,
            started: now,
            now,
            running: BTreeMap::new(),
            starts: vec![Vec::new(); changes.len()],
            verdicts: vec![Vec::new(); changes.len()],
            changes,
            late: 0,
            serial: 0,
        }
    }

    fn is_good(&self, backend: u16) -> bool {
        let at = self.now - self.started;
        let changes = &self.changes[usize::from(backend)];
        changes.iter().rev().find(|(from, _)| *from <= at).is_none_or(|(_, good)| *good)
    }

    /// Runs until this time; `duration_of` returns the duration of a successful probe. Probes of a
    /// bad backend hang.
    fn run(
        &mut self,
        until: Duration,
        at_once: usize,
        mut duration_of: impl FnMut(u16) -> Duration,
    ) {
        while self.now - self.started < until {
            while let Some(start) = self.scheduler.start(self.now) {
                let good = self.is_good(start.target);
                let took =
                    if good { duration_of(start.target).min(start.timeout) } else { start.timeout };
                self.serial += 1;
                self.running.insert((self.now + took, self.serial), (start.token, good));
                self.starts[usize::from(start.target)].push(self.now);
                self.late += usize::from(start.late);
            }
            assert!(self.running.len() <= at_once, "more probes than the limit");
            assert_eq!(self.scheduler.running(), self.running.len());
            let ended: Vec<_> = self.running.range(..=(self.now, u64::MAX)).collect();
            let ended: Vec<_> = ended.into_iter().map(|(key, value)| (*key, *value)).collect();
            for (key, (token, good)) in ended {
                self.running.remove(&key);
                if let Some(verdict) = self.scheduler.done(token, result(good), self.now) {
                    let n = verdict.endpoint.addr.to_string();
                    let n: usize = n.rsplit('.').next().unwrap().parse().unwrap();
                    self.verdicts[n].push((self.now - self.started, verdict.healthy));
                }
            }
            self.now += ms(1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn lasting_changes_are_detected_in_time_exactly_once(
        seed in any::<u64>(),
        interval in 50_u64..400,
        timeout_share in 1_u64..=100,
        jitter_share in 0_u64..=50,
        rise in 1_u32..4,
        fall in 1_u32..5,
        changes in prop::collection::vec(
            prop::collection::vec((1_u64..3_000, any::<bool>()), 1..6),
            1..12,
        ),
        speeds in prop::collection::vec(0_u64..400, 12),
    ) {
        let timing = timing(
            interval,
            (interval * timeout_share / 100).max(1),
            interval * jitter_share / 100,
            rise,
            fall,
        );
        let changes: Vec<Vec<(Duration, bool)>> = changes
            .into_iter()
            .map(|mut changes| {
                changes.sort_unstable();
                changes.into_iter().map(|(at, good)| (ms(at), good)).collect()
            })
            .collect();
        let mut fixture = Fixture::new(12, seed, timing, changes);
        // Guaranteed bounds for the detection of a failure, and of the recovery of a backend with
        // maximum damping.
        let slack = timing.jitter + timing.timeout + ms(2);
        let fails = timing.interval * fall + slack;
        let rises = timing.interval * (rise << timing.damping) + slack;
        let end = ms(3_000) + fails.max(rises);
        fixture.run(end, 12, |n| ms(speeds[usize::from(n)]));
        prop_assert_eq!(fixture.late, 0);
        for (changes, verdicts) in fixture.changes.iter().zip(&fixture.verdicts) {
            // No verdict is repeated.
            prop_assert!(verdicts.windows(2).all(|two| two[0].1 != two[1].1));
            // Ignore changes to the same state.
            let mut effective: Vec<(Duration, bool)> = vec![(Duration::ZERO, true)];
            for (at, good) in changes {
                if effective.last().is_some_and(|(_, before)| before != good) {
                    effective.push((*at, *good));
                }
            }
            let ends = effective.iter().skip(1).map(|(at, _)| *at).chain([end]);
            for ((from, good), to) in effective.iter().zip(ends) {
                let limit = *from + if *good { rises } else { fails };
                if to >= limit {
                    let by_then = verdicts.iter().rev().find(|(at, _)| *at <= limit);
                    prop_assert_eq!(by_then.map(|(_, healthy)| *healthy), Some(*good));
                }
            }
        }
        // The state of the scheduler agrees with its verdicts, and its counts with its state.
        let mut counts = [0; 3];
        fixture.scheduler.statuses().for_each(|status| counts[status.state as usize] += 1);
        prop_assert_eq!(fixture.scheduler.counts(), counts);
        for (status, verdicts) in fixture.scheduler.statuses().zip(&fixture.verdicts) {
            let last = verdicts.last().map(|(_, healthy)| *healthy);
            prop_assert_eq!(status.state.verdict(), last);
        }
    }
}

#[test]
fn saturated_scheduler_delays_all_backends_equally() {
    let bad = vec![vec![(Duration::ZERO, false)]; 20];
    let mut fixture = Fixture::new(2, 7, timing(100, 100, 10, 1, 3), bad);
    // Twenty backends that hang for 100 ms each, two at once: each is probed once per second
    // instead of ten times.
    fixture.run(ms(10_500), 2, |_| ms(0));
    let counts: Vec<usize> = fixture.starts.iter().map(Vec::len).collect();
    let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!((9..=11).contains(min) && max - min <= 1, "{counts:?}");
    assert!(fixture.late > 150, "{}", fixture.late);
    for starts in &fixture.starts {
        let longest = starts.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!(longest <= ms(1_100), "no backend is skipped: {longest:?}");
    }
    assert!(fixture.verdicts.iter().all(|verdicts| verdicts.len() == 1 && !verdicts[0].1));
}

#[test]
fn backends_added_together_are_spread_over_the_interval() {
    let good = vec![vec![]; 200];
    let mut fixture = Fixture::new(200, 3, timing(1_000, 100, 100, 1, 3), good);
    fixture.run(ms(1_000), 200, |_| ms(1));
    let started = fixture.started;
    let tenth = |at: &Instant| (*at - started).as_millis() / 100;
    let mut tenths = [0; 10];
    for starts in &fixture.starts {
        assert_eq!(starts.len(), 1);
        tenths[tenth(&starts[0]) as usize] += 1;
    }
    assert!(tenths.iter().all(|count| (5..45).contains(count)), "{tenths:?}");
}

#[test]
fn schedule_does_not_drift_with_jitter() {
    let mut fixture = Fixture::new(1, 5, timing(100, 50, 40, 1, 3), vec![vec![]]);
    fixture.run(ms(10_000), 1, |_| ms(3));
    assert!((99..=101).contains(&fixture.starts[0].len()), "{}", fixture.starts[0].len());
    let gaps: Vec<_> =
        fixture.starts[0].windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
    assert!(gaps.iter().any(|gap| *gap > 115) && gaps.iter().any(|gap| *gap < 85), "{gaps:?}");
}

/// Starts all probes that are due, completes them with this result, and returns the verdicts.
fn round(scheduler: &mut Scheduler<u16>, now: Instant, good: bool) -> Vec<Verdict> {
    let started: Vec<Token> =
        std::iter::from_fn(|| scheduler.start(now)).map(|s| s.token).collect();
    started.into_iter().filter_map(|token| scheduler.done(token, result(good), now)).collect()
}

#[test]
fn changed_check_keeps_the_verdict_and_ignores_old_results() {
    let (web, now) = (name("web"), Instant::now());
    let mut scheduler = Scheduler::new(8, 1);
    let once = timing(100, 50, 0, 1, 1);
    scheduler.set(&web, vec![check(1, once)], now);
    let verdicts = round(&mut scheduler, now + ms(100), false);
    assert_eq!(verdicts, [Verdict { service: web.clone(), endpoint: endpoint(1), healthy: false }]);
    let start = scheduler.start(now + ms(200)).unwrap();
    // The port has changed; the tables have the verdict.
    let other = (DesiredCheck { target: 99, ..check(1, once).0 }, Some(false));
    assert_eq!(scheduler.set(&web, vec![other.clone()], now + ms(210)), []);
    assert_eq!(
        scheduler.done(start.token, result(true), now + ms(220)),
        None,
        "the result is of the old target"
    );
    assert_eq!(scheduler.counts(), [0, 0, 1]);
    assert_eq!(scheduler.running(), 0);
    assert!(round(&mut scheduler, now + ms(310), true)[0].healthy);
    // The backend is removed while its probe is running.
    let start = scheduler.start(now + ms(410)).unwrap();
    scheduler.set(&web, vec![], now + ms(411));
    scheduler.set(&web, vec![check(2, once)], now + ms(412));
    assert_eq!(scheduler.done(start.token, result(false), now + ms(413)), None);
    assert_eq!((scheduler.counts(), scheduler.running()), ([1, 0, 0], 0));
}

#[test]
fn missing_verdict_is_returned_again_and_stored_verdict_adopted() {
    let (web, now) = (name("web"), Instant::now());
    let mut scheduler = Scheduler::new(8, 1);
    let rises_after_two = timing(100, 50, 0, 2, 1);
    scheduler.set(&web, vec![check(1, rises_after_two), check(2, rises_after_two)], now);
    assert_eq!(round(&mut scheduler, now + ms(100), false).len(), 2);
    // The tables have only one of the two verdicts, for example because the other backend was
    // removed and added again.
    let recorded = |n, verdict| (check(n, rises_after_two).0, verdict);
    let missing =
        scheduler.set(&web, vec![recorded(1, Some(false)), recorded(2, None)], now + ms(110));
    assert_eq!(missing, [Verdict { service: web.clone(), endpoint: endpoint(2), healthy: false }]);

    let mut scheduler = Scheduler::new(8, 1);
    assert_eq!(scheduler.set(&web, vec![recorded(1, Some(false))], now), []);
    assert_eq!(scheduler.counts(), [0, 0, 1]);
    assert_eq!(round(&mut scheduler, now + ms(100), true), []);
    assert!(round(&mut scheduler, now + ms(200), true)[0].healthy, "after two successes");
    // A backend without a verdict adopts that of the tables.
    let mut scheduler = Scheduler::new(8, 1);
    scheduler.set(&web, vec![recorded(1, None)], now);
    assert_eq!(scheduler.set(&web, vec![recorded(1, Some(false))], now), []);
    assert_eq!(scheduler.counts(), [0, 0, 1]);
}

#[test]
fn probes_not_run_count_neither_way() {
    let (web, now) = (name("web"), Instant::now());
    let mut scheduler = Scheduler::new(8, 1);
    scheduler.set(&web, vec![check(1, timing(100, 50, 0, 1, 2))], now);
    let mut at = now + ms(100);
    for good in [Some(false), None, None, None, Some(false)] {
        let start = scheduler.start(at).unwrap();
        let verdicts = scheduler.done(start.token, ProbeResult { good, ..result(true) }, at);
        assert_eq!(verdicts.is_some(), good == Some(false) && at > now + ms(400));
        at += ms(100);
    }
}
