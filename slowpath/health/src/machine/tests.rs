//! Tests of the scheduler in simulated time, with arbitrary behavior of backends and duration of
//! probes.

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

fn wanted(n: u16, timing: Timing) -> (Wanted<u16>, Option<bool>) {
    (Wanted { endpoint: endpoint(n), timing, target: n }, None)
}

fn answer(good: bool) -> Answer {
    Answer { good: Some(good), why: "".into(), took: Duration::ZERO }
}

/// Backends that become good or bad at given times, and a clock that advances by 1 ms per step.
struct World {
    machine: Machine<u16>,
    begun: Instant,
    now: Instant,
    /// For each backend, the times at which it becomes good or bad.
    turns: Vec<Vec<(Duration, bool)>>,
    /// Running probes by the time of their result.
    under_way: BTreeMap<(Instant, u64), (Token, bool)>,
    begins: Vec<Vec<Instant>>,
    told: Vec<Vec<(Duration, bool)>>,
    late: usize,
    serial: u64,
}

impl World {
    fn new(at_once: usize, seed: u64, timing: Timing, turns: Vec<Vec<(Duration, bool)>>) -> World {
        let now = Instant::now();
        let mut machine = Machine::new(at_once, seed);
        let all = (0..turns.len() as u16).map(|n| wanted(n, timing)).collect();
        assert_eq!(machine.set(&name("web"), all, now), []);
        World {
            machine,
            begun: now,
            now,
            under_way: BTreeMap::new(),
            begins: vec![Vec::new(); turns.len()],
            told: vec![Vec::new(); turns.len()],
            turns,
            late: 0,
            serial: 0,
        }
    }

    fn is_good(&self, backend: u16) -> bool {
        let at = self.now - self.begun;
        let turns = &self.turns[usize::from(backend)];
        turns.iter().rev().find(|(from, _)| *from <= at).is_none_or(|(_, good)| *good)
    }

    /// Runs until this time; `takes` returns the duration of a successful probe. Probes of a bad
    /// backend hang.
    fn run(&mut self, until: Duration, at_once: usize, mut takes: impl FnMut(u16) -> Duration) {
        while self.now - self.begun < until {
            while let Some(start) = self.machine.start(self.now) {
                let good = self.is_good(start.target);
                let took =
                    if good { takes(start.target).min(start.timeout) } else { start.timeout };
                self.serial += 1;
                self.under_way.insert((self.now + took, self.serial), (start.token, good));
                self.begins[usize::from(start.target)].push(self.now);
                self.late += usize::from(start.late);
            }
            assert!(self.under_way.len() <= at_once, "more than the bound");
            assert_eq!(self.machine.running(), self.under_way.len());
            let ended: Vec<_> = self.under_way.range(..=(self.now, u64::MAX)).collect();
            let ended: Vec<_> = ended.into_iter().map(|(key, value)| (*key, *value)).collect();
            for (key, (token, good)) in ended {
                self.under_way.remove(&key);
                if let Some(verdict) = self.machine.done(token, answer(good), self.now) {
                    let n = verdict.endpoint.addr.to_string();
                    let n: usize = n.rsplit('.').next().unwrap().parse().unwrap();
                    self.told[n].push((self.now - self.begun, verdict.healthy));
                }
            }
            self.now += ms(1);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_lasting_change_is_told_in_time_once_and_never_lost(
        seed in any::<u64>(),
        interval in 50_u64..400,
        timeout_share in 1_u64..=100,
        jitter_share in 0_u64..=50,
        rise in 1_u32..4,
        fall in 1_u32..5,
        turns in prop::collection::vec(
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
        let turns: Vec<Vec<(Duration, bool)>> = turns
            .into_iter()
            .map(|mut turns| {
                turns.sort_unstable();
                turns.into_iter().map(|(at, good)| (ms(at), good)).collect()
            })
            .collect();
        let mut world = World::new(12, seed, timing, turns);
        // Guaranteed bounds for the detection of a failure, and of the recovery of a backend with
        // maximum damping.
        let slack = timing.jitter + timing.timeout + ms(2);
        let fails = timing.interval * fall + slack;
        let rises = timing.interval * (rise << timing.damping) + slack;
        let end = ms(3_000) + fails.max(rises);
        world.run(end, 12, |n| ms(speeds[usize::from(n)]));
        prop_assert_eq!(world.late, 0);
        for (turns, told) in world.turns.iter().zip(&world.told) {
            // No verdict is repeated.
            prop_assert!(told.windows(2).all(|two| two[0].1 != two[1].1));
            // Ignore changes to the same state.
            let mut lasting: Vec<(Duration, bool)> = vec![(Duration::ZERO, true)];
            for (at, good) in turns {
                if lasting.last().is_some_and(|(_, before)| before != good) {
                    lasting.push((*at, *good));
                }
            }
            let ends = lasting.iter().skip(1).map(|(at, _)| *at).chain([end]);
            for ((from, good), to) in lasting.iter().zip(ends) {
                let limit = *from + if *good { rises } else { fails };
                if to >= limit {
                    let by_then = told.iter().rev().find(|(at, _)| *at <= limit);
                    prop_assert_eq!(by_then.map(|(_, healthy)| *healthy), Some(*good));
                }
            }
        }
        // The state of the scheduler agrees with its verdicts, and its counts with its state.
        let mut counts = [0; 3];
        world.machine.known().for_each(|known| counts[known.standing as usize] += 1);
        prop_assert_eq!(world.machine.counts(), counts);
        for (known, told) in world.machine.known().zip(&world.told) {
            let last = told.last().map(|(_, healthy)| *healthy);
            prop_assert_eq!(known.standing.verdict(), last);
        }
    }
}

#[test]
fn with_too_little_room_all_are_late_alike_and_counted() {
    let bad = vec![vec![(Duration::ZERO, false)]; 20];
    let mut world = World::new(2, 7, timing(100, 100, 10, 1, 3), bad);
    // Twenty backends that hang for 100 ms each, two at once: each is probed once per second
    // instead of ten times.
    world.run(ms(10_500), 2, |_| ms(0));
    let counts: Vec<usize> = world.begins.iter().map(Vec::len).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!((9..=11).contains(least) && most - least <= 1, "{counts:?}");
    assert!(world.late > 150, "{}", world.late);
    for begins in &world.begins {
        let longest = begins.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!(longest <= ms(1_100), "nobody is passed over: {longest:?}");
    }
    assert!(world.told.iter().all(|told| told.len() == 1 && !told[0].1));
}

#[test]
fn those_that_come_together_are_spread_over_the_interval() {
    let good = vec![vec![]; 200];
    let mut world = World::new(200, 3, timing(1_000, 100, 100, 1, 3), good);
    world.run(ms(1_000), 200, |_| ms(1));
    let begun = world.begun;
    let tenth = |at: &Instant| (*at - begun).as_millis() / 100;
    let mut tenths = [0; 10];
    for begins in &world.begins {
        assert_eq!(begins.len(), 1);
        tenths[tenth(&begins[0]) as usize] += 1;
    }
    assert!(tenths.iter().all(|count| (5..45).contains(count)), "{tenths:?}");
}

#[test]
fn turns_keep_their_beat_whatever_the_jitter() {
    let mut world = World::new(1, 5, timing(100, 50, 40, 1, 3), vec![vec![]]);
    world.run(ms(10_000), 1, |_| ms(3));
    assert!((99..=101).contains(&world.begins[0].len()), "{}", world.begins[0].len());
    let gaps: Vec<_> =
        world.begins[0].windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
    assert!(gaps.iter().any(|gap| *gap > 115) && gaps.iter().any(|gap| *gap < 85), "{gaps:?}");
}

/// Completes all probes that are due with this result, and returns the verdicts.
fn round(machine: &mut Machine<u16>, now: Instant, good: bool) -> Vec<Verdict> {
    let begun: Vec<Token> = std::iter::from_fn(|| machine.start(now)).map(|s| s.token).collect();
    begun.into_iter().filter_map(|token| machine.done(token, answer(good), now)).collect()
}

#[test]
fn a_backend_that_is_asked_otherwise_keeps_its_verdict_and_old_answers_say_nothing() {
    let (web, now) = (name("web"), Instant::now());
    let mut machine = Machine::new(8, 1);
    let once = timing(100, 50, 0, 1, 1);
    machine.set(&web, vec![wanted(1, once)], now);
    let told = round(&mut machine, now + ms(100), false);
    assert_eq!(told, [Verdict { service: web.clone(), endpoint: endpoint(1), healthy: false }]);
    let start = machine.start(now + ms(200)).unwrap();
    // The port has changed; the tables have the verdict.
    let other = (Wanted { target: 99, ..wanted(1, once).0 }, Some(false));
    assert_eq!(machine.set(&web, vec![other.clone()], now + ms(210)), []);
    assert_eq!(
        machine.done(start.token, answer(true), now + ms(220)),
        None,
        "it asked the old one"
    );
    assert_eq!(machine.counts(), [0, 0, 1]);
    assert_eq!(machine.running(), 0);
    assert!(round(&mut machine, now + ms(310), true)[0].healthy);
    // The backend is removed while its probe is running.
    let start = machine.start(now + ms(410)).unwrap();
    machine.set(&web, vec![], now + ms(411));
    machine.set(&web, vec![wanted(2, once)], now + ms(412));
    assert_eq!(machine.done(start.token, answer(false), now + ms(413)), None);
    assert_eq!((machine.counts(), machine.running()), ([1, 0, 0], 0));
}

#[test]
fn a_verdict_that_the_tables_lost_is_told_again_and_one_from_before_a_restart_is_kept() {
    let (web, now) = (name("web"), Instant::now());
    let mut machine = Machine::new(8, 1);
    let once = timing(100, 50, 0, 2, 1);
    machine.set(&web, vec![wanted(1, once), wanted(2, once)], now);
    assert_eq!(round(&mut machine, now + ms(100), false).len(), 2);
    // The tables have only one of the two verdicts, for example because the other backend was
    // removed and added again.
    let held = |n, verdict| (wanted(n, once).0, verdict);
    let lost = machine.set(&web, vec![held(1, Some(false)), held(2, None)], now + ms(110));
    assert_eq!(lost, [Verdict { service: web.clone(), endpoint: endpoint(2), healthy: false }]);

    let mut machine = Machine::new(8, 1);
    assert_eq!(machine.set(&web, vec![held(1, Some(false))], now), []);
    assert_eq!(machine.counts(), [0, 0, 1]);
    assert_eq!(round(&mut machine, now + ms(100), true), []);
    assert!(round(&mut machine, now + ms(200), true)[0].healthy, "after two good ones");
    // Without a verdict, that of the tables is adopted.
    let mut machine = Machine::new(8, 1);
    machine.set(&web, vec![held(1, None)], now);
    assert_eq!(machine.set(&web, vec![held(1, Some(false))], now), []);
    assert_eq!(machine.counts(), [0, 0, 1]);
}

#[test]
fn what_this_machine_could_not_ask_counts_neither_way() {
    let (web, now) = (name("web"), Instant::now());
    let mut machine = Machine::new(8, 1);
    machine.set(&web, vec![wanted(1, timing(100, 50, 0, 1, 2))], now);
    let mut at = now + ms(100);
    for good in [Some(false), None, None, None, Some(false)] {
        let start = machine.start(at).unwrap();
        let told = machine.done(start.token, Answer { good, ..answer(true) }, at);
        assert_eq!(told.is_some(), good == Some(false) && at > now + ms(400));
        at += ms(100);
    }
}
