//! Property tests of two state machines connected by a path with loss and delay. The path keeps the
//! order of packets, as networks do for one flow. Otherwise a delayed Down could arrive after a
//! later Up and take the session down.

use std::collections::BTreeMap;

use fastrand::Rng;
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Properties of the path.
#[derive(Clone, Copy, Debug)]
struct Path {
    min_delay: Duration,
    /// Maximum delay in addition to `min_delay`.
    extra_delay: Duration,
    /// Probability of a loss in percent.
    loss: u64,
    /// Exclusive upper bound of consecutive losses in one direction.
    consecutive_losses_below: u32,
}

struct Pair {
    sides: [Machine; 2],
    path: Path,
    now: Instant,
    started: Instant,
    /// Packets in flight with the side that receives them, by arrival time and serial number.
    in_flight: BTreeMap<(Instant, u64), (usize, Packet)>,
    /// Consecutive losses of each side's packets.
    lost: [u32; 2],
    last_arrival: [Instant; 2],
    serial: u64,
    rng: Rng,
    changes: [Vec<(Instant, Change)>; 2],
}

impl Pair {
    fn new(settings: [Settings; 2], path: Path, seed: u64) -> Pair {
        let now = Instant::now();
        let [one, two] = settings;
        Pair {
            sides: [Machine::new(one, 1, seed, now), Machine::new(two, 2, !seed, now)],
            path,
            now,
            started: now,
            in_flight: BTreeMap::new(),
            lost: [0; 2],
            last_arrival: [now; 2],
            serial: 0,
            rng: Rng::with_seed(seed | 1),
            changes: [Vec::new(), Vec::new()],
        }
    }

    fn apply(&mut self, side: usize, output: Output) {
        if let Some(change) = output.change {
            self.changes[side].push((self.now, change));
        }
        let Some(packet) = output.send else { return };
        assert_eq!(Packet::parse(&packet.emit()), Ok(packet));
        if self.rng.u64(..100) < self.path.loss
            && self.lost[side] + 1 < self.path.consecutive_losses_below
        {
            self.lost[side] += 1;
            return;
        }
        self.lost[side] = 0;
        let extra_micros = self.rng.u64(..self.path.extra_delay.as_micros().max(1) as u64);
        let delay = self.path.min_delay + Duration::from_micros(extra_micros);
        self.serial += 1;
        let arrival = self.last_arrival[side].max(self.now + delay);
        self.last_arrival[side] = arrival;
        self.in_flight.insert((arrival, self.serial), (1 - side, packet));
    }

    /// Advances the clock and processes arrivals and timers.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.in_flight.keys().next().map(|(at, _)| *at);
            let dues = self.sides.iter().filter_map(Machine::next_due);
            let Some(next) = dues.chain(arrival).min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now) {
                if let Some((_, (side, packet))) = self.in_flight.pop_first() {
                    let matches = [0, self.sides[side].local].contains(&packet.your_discriminator);
                    let output = matches.then(|| self.sides[side].receive(&packet, self.now));
                    self.apply(side, output.and_then(Result::ok).unwrap_or_default());
                }
                continue;
            }
            for side in [0, 1] {
                if self.sides[side].next_due().is_some_and(|due| due <= self.now) {
                    let output = self.sides[side].tick(self.now);
                    self.apply(side, output);
                }
            }
        }
        self.now = end;
    }

    fn are_up(&self) -> bool {
        self.sides.iter().all(|side| side.state == State::Up)
    }

    /// Returns all changes other than [`Change::Up`], with side and time since the start.
    fn downs(&self) -> Vec<(usize, Duration, Change)> {
        let changes =
            |side: usize| self.changes[side].iter().map(move |(at, change)| (side, at, change));
        let all = changes(0).chain(changes(1)).filter(|(_, _, change)| **change != Change::Up);
        all.map(|(side, at, change)| (side, *at - self.started, *change)).collect()
    }
}

prop_compose! {
    fn any_settings()(
        transmit_ms in prop_oneof![10u32..30, 10u32..2000],
        receive_ms in prop_oneof![10u32..30, 10u32..2000],
        multiplier in 3u8..6,
    ) -> Settings {
        Settings { transmit_ms, receive_ms, multiplier, ..Settings::default() }
    }
}

/// Returns paths whose delays vary by less than the shortest detection time tolerates (3 * 10 ms),
/// whose minimum delay may exceed many intervals, and which never lose two packets in a row.
fn any_path() -> impl Strategy<Value = Path> {
    (0u32..200, 0u32..5, 0u64..40).prop_map(|(min_delay, extra_delay, loss)| Path {
        min_delay: MS * min_delay,
        extra_delay: MS * extra_delay,
        loss,
        consecutive_losses_below: 2,
    })
}

proptest! {
    #[test]
    fn sessions_come_up_and_stay_up_on_lossy_paths(
        one in any_settings(), two in any_settings(), path in any_path(), seed in any::<u64>(),
        passive in any::<bool>(),
    ) {
        let mut pair = Pair::new([one, Settings { passive, ..two }], path, seed);
        pair.run(Duration::from_secs(20));
        prop_assert!(pair.are_up());
        pair.run(Duration::from_secs(120));
        prop_assert_eq!(pair.downs(), vec![]);
        // All poll sequences are complete, so that both sides use the same timers.
        let [a, b] = &pair.sides;
        prop_assert_eq!(a.transmit_interval(), b.receive_interval());
        prop_assert_eq!(b.transmit_interval(), a.receive_interval());
        prop_assert_eq!(a.detection_time(), b.transmit_interval() * u32::from(two.multiplier));
    }

    #[test]
    fn silence_is_detected_exactly_at_the_detection_time(
        one in any_settings(), two in any_settings(), path in any_path(), seed in any::<u64>(),
    ) {
        let mut pair = Pair::new([one, two], path, seed);
        pair.run(Duration::from_secs(60));
        prop_assert!(pair.are_up());
        let last_received = pair.sides.each_ref().map(|side| side.remote.received_at.unwrap());
        let detection = pair.sides.each_ref().map(Machine::detection_time);
        pair.in_flight.clear();
        pair.path = Path { loss: 100, consecutive_losses_below: u32::MAX, ..path };
        pair.run(Duration::from_secs(60));
        for side in [0, 1] {
            let &(at, change) = pair.changes[side].last().unwrap();
            prop_assert_eq!(change, Change::Down(Reason::Expired));
            prop_assert_eq!(at, last_received[side] + detection[side]);
        }
        pair.path = path;
        pair.run(Duration::from_secs(20));
        prop_assert!(pair.are_up());
    }

    #[test]
    fn timers_change_at_any_time_without_a_flap(
        settings in proptest::collection::vec(
            (0usize..2, any_settings(), prop_oneof![0u64..300, 0u64..6000]), 1..12,
        ),
        path in any_path(), seed in any::<u64>(),
    ) {
        let mut pair = Pair::new([Settings::default(); 2], path, seed);
        pair.run(Duration::from_secs(20));
        prop_assert!(pair.are_up());
        for (side, settings, wait) in settings {
            // The multiplier stays the same: a smaller one takes effect with the next packet, so
            // that an earlier loss could make the detection time expire.
            let settings = Settings { multiplier: 3, ..settings };
            pair.sides[side].set(settings, pair.now);
            pair.run(Duration::from_millis(wait));
        }
        pair.run(Duration::from_secs(60));
        prop_assert_eq!(pair.downs(), vec![]);
        for side in &pair.sides {
            prop_assert_eq!(side.advertised, side.desired_timers());
            prop_assert!(side.before_poll.is_none());
        }
    }

    #[test]
    fn admin_down_is_reported_as_such_and_a_restarted_side_comes_up(
        one in any_settings(), two in any_settings(), path in any_path(), seed in any::<u64>(),
    ) {
        let mut pair = Pair::new([one, two], path, seed);
        pair.run(Duration::from_secs(60));
        let output = pair.sides[0].stop(pair.now);
        pair.apply(0, output);
        pair.run(Duration::from_secs(30));
        let reasons = pair.changes.each_ref().map(|changes| changes.last().unwrap().1);
        prop_assert_eq!(reasons, [Reason::Stopped, Reason::NeighborAdminDown].map(Change::Down));
        // A restarted process has no state of the previous one.
        pair.sides[0] = Machine::new(one, 3, seed, pair.now);
        pair.run(Duration::from_secs(20));
        prop_assert!(pair.are_up());
    }

    #[test]
    fn arbitrary_packets_keep_invariants(
        packets in proptest::collection::vec((any::<[u8; 24]>(), any::<u8>()), 1..60),
    ) {
        let bytes: Vec<u8> = packets
            .into_iter()
            .flat_map(|(mut bytes, wait)| {
                (bytes[0], bytes[3]) = (0x20 | bytes[0] & 0x1f, 24);
                bytes[1] &= 0xfa;
                [vec![wait], bytes.to_vec()].concat()
            })
            .collect();
        crate::harness::machine(&bytes);
    }
}
