//! Checks that every packet of every case gets the verdict that the case measures.

use super::*;
use ebpf_fallback::program::STAGES;
use tables::scope::CACHE_MAX_S;

/// Number of flows, small to keep the tests short.
const FLOWS: u32 = 256;

/// The stages that handle a usual packet completely.
const FAST_STAGES: [&str; 7] =
    ["plain4", "plain6", "tunnel4", "tunnel6", "vxlan4", "vxlan6", "geneve6"];

struct Harness {
    feeder: Feeder,
    fixture: KernelFixture,
}

impl Harness {
    fn new(work: Workload, family: Family, gateway: TunnelKind) -> Harness {
        pin_to_first_cpu().unwrap();
        let fixture = KernelFixture::load(Setting { work, family, gateway }, FLOWS).unwrap();
        Harness { feeder: Feeder::load().unwrap(), fixture }
    }

    /// Asserts that all packets of this direction get the verdict and none is dropped.
    fn assert_all_get(&mut self, direction: Direction, order: Order, verdict: VerdictCounter) {
        let packets = self.fixture.packets(direction, FLOWS, order).unwrap();
        self.feeder.start(&packets).unwrap();
        self.feeder.set_target(self.fixture.entry().unwrap()).unwrap();
        let before = self.fixture.verdicts(verdict);
        self.feeder.run(FLOWS).unwrap();
        let setting = self.fixture.setting;
        assert_eq!(self.fixture.drops(), [], "{setting:?} {direction:?}");
        let count = self.fixture.verdicts(verdict) - before;
        assert_eq!(count, u64::from(FLOWS), "{setting:?} {direction:?}");
    }

    /// Asserts that the packets of each direction get their verdict: all of them with all stages,
    /// and nine of ten with only the entry program and [`FAST_STAGES`] loaded.
    fn assert_fast_stages_suffice(&mut self, directions: &[(Direction, VerdictCounter)]) {
        // The programs' header cache expires whenever the clock is a multiple of CACHE_MAX_S; the
        // next packet then needs `decap`. Therefore the test does not begin shortly before that
        // moment.
        while CACHE_MAX_S - self.fixture.region.now_s() % CACHE_MAX_S <= 8 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        for (direction, verdict) in directions {
            self.assert_all_get(*direction, Order::Shuffled, *verdict);
        }
        for (stage, name) in STAGES.iter().enumerate() {
            if !FAST_STAGES.contains(name) {
                self.fixture.program.remove_stage(stage).unwrap();
            }
        }
        for (direction, verdict) in directions {
            self.assert_most_get(*direction, *verdict);
        }
    }

    /// Asserts that nine of ten packets get the verdict, and that the others are dropped only
    /// because a stage is missing.
    fn assert_most_get(&mut self, direction: Direction, verdict: VerdictCounter) {
        let packets = self.fixture.packets(direction, FLOWS, Order::Shuffled).unwrap();
        self.feeder.start(&packets).unwrap();
        let before = self.fixture.verdicts(verdict);
        self.feeder.run(FLOWS).unwrap();
        // A flow whose entry is not in one of the first positions of its bucket needs other stages.
        let (drops, missing) = (self.fixture.drops(), DropReason::StageMissing);
        assert!(drops.iter().all(|(reason, _)| *reason == missing), "{drops:?}");
        let fast = self.fixture.verdicts(verdict) - before;
        let setting = self.fixture.setting;
        let enough = fast > u64::from(FLOWS / 10 * 9);
        assert!(enough, "{setting:?} {direction:?}: {fast} of {FLOWS}");
    }
}

/// Asserts that requests get the verdict: of new and of established flows, in both orders, and with
/// the fast stages alone.
fn assert_requests_get(
    work: Workload,
    family: Family,
    gateway: TunnelKind,
    verdict: VerdictCounter,
) {
    let mut harness = Harness::new(work, family, gateway);
    let setting = harness.fixture.setting;
    harness.feeder.start(&Packets::requests(&setting, FLOWS, Order::Creation)).unwrap();
    harness.feeder.run(FLOWS).unwrap();
    assert_eq!(harness.fixture.verdicts(verdict), 0, "{work:?}: no target is set yet");
    let expected_flows = if work == Workload::Return { 0 } else { FLOWS };
    // After a reset the same flows have other paths than those in the caches of the programs.
    for orders in [
        [Order::Creation, Order::Shuffled, Order::Shuffled],
        [Order::Shuffled, Order::Creation, Order::Creation],
    ] {
        for order in orders {
            harness.assert_all_get(Direction::Requests, order, verdict);
        }
        assert_eq!(harness.fixture.flows(), expected_flows, "{work:?}");
        harness.fixture.reset().unwrap();
        assert_eq!(harness.fixture.flows(), 0, "{work:?}");
    }
    harness.assert_all_get(Direction::Requests, Order::Creation, verdict);
    harness.assert_fast_stages_suffice(&[(Direction::Requests, verdict)]);
}

#[test]
fn every_request_gets_its_verdict() {
    for family in [Family::V4, Family::V6] {
        for gateway in [TunnelKind::Geneve, TunnelKind::Vxlan] {
            assert_requests_get(Workload::Return, family, gateway, VerdictCounter::Return);
        }
    }
    assert_requests_get(Workload::Tunnel, Family::V4, TunnelKind::Geneve, VerdictCounter::Tunnel);
    assert_requests_get(Workload::Nat, Family::V4, TunnelKind::Geneve, VerdictCounter::Nat);
}

#[test]
fn replies_of_both_families_return_through_either_gateway() {
    for family in [Family::V4, Family::V6] {
        for gateway in [TunnelKind::Geneve, TunnelKind::Vxlan] {
            for (work, verdict) in
                [(Workload::Tunnel, VerdictCounter::Tunnel), (Workload::Nat, VerdictCounter::Nat)]
            {
                let mut harness = Harness::new(work, family, gateway);
                let answers = match work {
                    Workload::Nat => [Direction::Answers; 2],
                    _ => [Direction::Answers, Direction::PlainAnswers],
                };
                harness.assert_all_get(Direction::Requests, Order::Creation, verdict);
                for direction in answers {
                    harness.assert_all_get(direction, Order::Shuffled, VerdictCounter::Answer);
                }
                harness.assert_all_get(Direction::Requests, Order::Shuffled, verdict);
                assert_eq!(harness.fixture.flows(), FLOWS, "{work:?}");
                let packets = harness.fixture.packets(Direction::Both, FLOWS, Order::Shuffled);
                harness.feeder.start(&packets.unwrap()).unwrap();
                let before = [verdict, VerdictCounter::Answer].map(|v| harness.fixture.verdicts(v));
                harness.feeder.run(2 * FLOWS).unwrap();
                let after = [verdict, VerdictCounter::Answer].map(|v| harness.fixture.verdicts(v));
                assert_eq!(after, before.map(|n| n + u64::from(FLOWS)), "{work:?}");
                let [first, second] = answers.map(|direction| (direction, VerdictCounter::Answer));
                harness.assert_fast_stages_suffice(&[
                    (Direction::Requests, verdict),
                    first,
                    second,
                ]);
            }
        }
    }
}

#[test]
fn floor_programs_run() {
    for name in ["nothing", "look_up", "parse"] {
        Floor::load(name).unwrap().run(name, 4).unwrap();
    }
}
