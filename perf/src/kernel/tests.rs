//! Checks that every packet of every case gets the verdict that the case measures.

use super::*;
use ebpf_fallback::program::STAGES;
use tables::scope::KEPT_S;

/// Small, to keep the test short.
const FLOWS: u32 = 256;

/// The stages that handle a usual packet completely.
const SHORT: [&str; 7] = ["plain4", "plain6", "tunnel4", "tunnel6", "vxlan4", "vxlan6", "geneve6"];

struct Rig {
    feeder: Feeder,
    world: World,
}

impl Rig {
    fn new(work: Work, family: Family, gateway: TunnelKind) -> Rig {
        stay().unwrap();
        let world = World::load(Setting { work, family, gateway }, FLOWS).unwrap();
        Rig { feeder: Feeder::load().unwrap(), world }
    }

    /// Asserts that all packets of this direction get the verdict and none is dropped.
    fn all_have(&mut self, direction: Direction, order: Order, verdict: VerdictCounter) {
        let packets = self.world.packets(direction, FLOWS, order).unwrap();
        self.feeder.begin(&packets).unwrap();
        self.feeder.lead_to(self.world.entry().unwrap()).unwrap();
        let before = self.world.verdicts(verdict);
        self.feeder.run(FLOWS).unwrap();
        let setting = self.world.setting;
        assert_eq!(self.world.drops(), [], "{setting:?} {direction:?}");
        let had = self.world.verdicts(verdict) - before;
        assert_eq!(had, u64::from(FLOWS), "{setting:?} {direction:?}");
    }

    /// Asserts the same as [`Rig::all_have`] for each direction, with only the entry program and
    /// [`SHORT`] loaded.
    fn short(&mut self, directions: &[(Direction, VerdictCounter)]) {
        // The programs' cache of a gateway expires with each KEPT_S seconds of the clock; the
        // next packet then needs `decap`. So the packets that fill the cache and those that use
        // it are kept on the same side of that moment.
        while KEPT_S - self.world.region.now_s() % KEPT_S <= 8 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        for (direction, verdict) in directions {
            self.all_have(*direction, Order::Other, *verdict);
        }
        for (stage, name) in STAGES.iter().enumerate() {
            if !SHORT.contains(name) {
                self.world.program.unset(stage).unwrap();
            }
        }
        for (direction, verdict) in directions {
            self.most_have(*direction, *verdict);
        }
    }

    /// Asserts that nine of ten packets get the verdict; the others miss a stage.
    fn most_have(&mut self, direction: Direction, verdict: VerdictCounter) {
        let packets = self.world.packets(direction, FLOWS, Order::Other).unwrap();
        self.feeder.begin(&packets).unwrap();
        let before = self.world.verdicts(verdict);
        self.feeder.run(FLOWS).unwrap();
        // A flow whose entry is not in one of the first positions takes the slow stages.
        let (drops, missing) = (self.world.drops(), DropReason::StageMissing);
        assert!(drops.iter().all(|(reason, _)| *reason == missing), "{drops:?}");
        let short = self.world.verdicts(verdict) - before;
        let setting = self.world.setting;
        let enough = short > u64::from(FLOWS / 10 * 9);
        assert!(enough, "{setting:?} {direction:?}: {short} of {FLOWS}");
    }
}

fn requests(work: Work, family: Family, gateway: TunnelKind, verdict: VerdictCounter) {
    let mut rig = Rig::new(work, family, gateway);
    let setting = rig.world.setting;
    rig.feeder.begin(&Packets::requests(&setting, FLOWS, Order::Begun)).unwrap();
    rig.feeder.run(FLOWS).unwrap();
    assert_eq!(rig.world.verdicts(verdict), 0, "{work:?}: nothing gets them yet");
    let known = if work == Work::Return { 0 } else { FLOWS };
    // After a renewal the same flows have other paths than the cached ones.
    for orders in
        [[Order::Begun, Order::Other, Order::Other], [Order::Other, Order::Begun, Order::Begun]]
    {
        for order in orders {
            rig.all_have(Direction::Requests, order, verdict);
        }
        assert_eq!(rig.world.flows(), known, "{work:?}");
        rig.world.renew().unwrap();
        assert_eq!(rig.world.flows(), 0, "{work:?}");
    }
    rig.all_have(Direction::Requests, Order::Begun, verdict);
    rig.short(&[(Direction::Requests, verdict)]);
}

#[test]
fn every_request_makes_its_journey() {
    for family in [Family::V4, Family::V6] {
        for gateway in [TunnelKind::Geneve, TunnelKind::Vxlan] {
            requests(Work::Return, family, gateway, VerdictCounter::Return);
        }
    }
    requests(Work::Tunnel, Family::V4, TunnelKind::Geneve, VerdictCounter::Tunnel);
    requests(Work::Nat, Family::V4, TunnelKind::Geneve, VerdictCounter::Nat);
}

#[test]
fn answers_of_both_families_go_back_by_either_gateway() {
    for family in [Family::V4, Family::V6] {
        for gateway in [TunnelKind::Geneve, TunnelKind::Vxlan] {
            for (work, verdict) in
                [(Work::Tunnel, VerdictCounter::Tunnel), (Work::Nat, VerdictCounter::Nat)]
            {
                let mut rig = Rig::new(work, family, gateway);
                let answers = match work {
                    Work::Nat => [Direction::Answers; 2],
                    _ => [Direction::Answers, Direction::PlainAnswers],
                };
                rig.all_have(Direction::Requests, Order::Begun, verdict);
                for direction in answers {
                    rig.all_have(direction, Order::Other, VerdictCounter::Answer);
                }
                rig.all_have(Direction::Requests, Order::Other, verdict);
                assert_eq!(rig.world.flows(), FLOWS, "{work:?}");
                let packets = rig.world.packets(Direction::Both, FLOWS, Order::Other);
                rig.feeder.begin(&packets.unwrap()).unwrap();
                let before = [verdict, VerdictCounter::Answer].map(|v| rig.world.verdicts(v));
                rig.feeder.run(2 * FLOWS).unwrap();
                let after = [verdict, VerdictCounter::Answer].map(|v| rig.world.verdicts(v));
                assert_eq!(after, before.map(|n| n + u64::from(FLOWS)), "{work:?}");
                let [first, second] = answers.map(|direction| (direction, VerdictCounter::Answer));
                rig.short(&[(Direction::Requests, verdict), first, second]);
            }
        }
    }
}

#[test]
fn floors_run() {
    for name in ["nothing", "look_up", "parse"] {
        Floor::load(name).unwrap().run(name, 4).unwrap();
    }
}
