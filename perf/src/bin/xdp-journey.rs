//! Measures the XDP packet path: nanoseconds per packet, gross and net of writing the packet.
//! Needs root; takes two to three minutes, less with `--only`.
//!
//! All cases run in turn, round after round, together with two kinds of references. The floors are
//! a program that drops, one with one lookup, one that parses, and the writing of packets that the
//! first program then drops. The other reference is one lookup in the kernel's LRU table, in which
//! other load balancers keep their flows. `gross` is the time per packet of the kernel's test run:
//! the median over the rounds of each round's median call, with the lowest and the highest round
//! beside it. `net` is `gross` less the time to write the same packets and pass them on.
//!
//! Requests, answers, and both in turn are measured, for both address families and both kinds of
//! gateway.
//!
//! With 65,536 flows the result depends on the order of their packets: that in which the flows were
//! created, as in other load balancers' figures, or a different one, as in the DPDK plane's
//! benchmark.

#![forbid(unsafe_code)]

use clap::Parser;
use perf::capture::Capture;
use perf::fixture::{Family, Workload};
use perf::kernel::{
    CALL, CAPTURED_CALL, Direction, Failure, Feeder, Floor, KernelFixture, Order, Packets, Setting,
    pin_to_first_cpu,
};
use tables::counters::VerdictCounter;
use tables::record::TunnelKind;

/// The number of flows; each case uses as many of them as it states.
const FLOWS: u32 = 1 << 16;

#[derive(Parser)]
#[command(about = "Measure the XDP plane in nanoseconds per packet")]
struct Arguments {
    /// Set the rounds over all cases
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Set the calls of 65,536 packets for each case in a round; with `--capture all`, 16 calls of
    /// 4,096 packets take the place of each
    #[arg(long, default_value_t = 8)]
    calls: u32,
    /// Measure only cases whose name contains this (repeatable)
    #[arg(long)]
    only: Vec<String>,
    /// Capture packets during all cases
    #[arg(long, value_enum, default_value = "off")]
    capture: Capture,
}

/// The packets of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Packets that match no service and no flow.
    Unmatched,
    /// Packets that each begin a flow.
    New,
    /// Packets of established flows: their direction, the number of flows, and their order.
    Established(Direction, u32, Order),
}

/// A case: its name, the tables it runs on, and its packets.
struct Case {
    name: String,
    setting: Setting,
    traffic: Traffic,
}

impl Case {
    /// Returns the verdict counters whose sum counts the case's packets.
    fn verdicts(&self) -> &'static [VerdictCounter] {
        use VerdictCounter::{Answer, Nat, Return, Tunnel};
        let nat = self.setting.work == Workload::Nat;
        match self.traffic {
            Traffic::Unmatched => &[Return],
            Traffic::Established(Direction::Answers | Direction::PlainAnswers, ..) => &[Answer],
            Traffic::Established(Direction::Both, ..) if nat => &[Nat, Answer],
            Traffic::Established(Direction::Both, ..) => &[Tunnel, Answer],
            _ if nat => &[Nat],
            _ => &[Tunnel],
        }
    }

    fn packets(&self, fixture: &KernelFixture) -> Result<Packets, Failure> {
        match self.traffic {
            Traffic::Unmatched => {
                let setting = Setting { work: Workload::Return, ..self.setting };
                Ok(Packets::requests(&setting, FLOWS, Order::Shuffled))
            }
            Traffic::New => Ok(Packets::requests(&self.setting, FLOWS, Order::Creation)),
            Traffic::Established(direction, flows, order) => {
                fixture.packets(direction, flows, order)
            }
        }
    }
}

/// Returns the cases of one setting. New flows come first: they are the established flows of the
/// later cases.
fn cases(setting: Setting) -> Vec<Case> {
    use Direction::{Answers, Both, PlainAnswers, Requests};
    let Setting { work, family, gateway } = setting;
    let gateway = if gateway == TunnelKind::Vxlan { "VXLAN" } else { "GENEVE" };
    let inside = if family == Family::V6 { "v6" } else { "v4" };
    let mode = if work == Workload::Nat { "NAT" } else { "tunnel" };
    let mut all = Vec::new();
    let mut add = |mode: &str, what: &str, traffic| {
        let name = format!("{gateway} {inside} {mode}, {what}");
        all.push(Case { name, setting, traffic });
    };
    if work == Workload::Tunnel {
        add("return", "unmatched", Traffic::Unmatched);
    }
    add(mode, "new flows", Traffic::New);
    let mut established = |what: &str, direction, flows, order| {
        add(mode, what, Traffic::Established(direction, flows, order));
    };
    established("requests, 1 flow", Requests, 1, Order::Shuffled);
    established("answers, 1 flow", Answers, 1, Order::Shuffled);
    if work == Workload::Tunnel {
        established("plain answers, 1 flow", PlainAnswers, 1, Order::Shuffled);
    }
    established("both, 1 flow", Both, 1, Order::Shuffled);
    if gateway == "GENEVE" && inside == "v4" {
        established("requests, 1,024", Requests, 1 << 10, Order::Shuffled);
        established("answers, 1,024", Answers, 1 << 10, Order::Shuffled);
        established("requests, 65,536, creation order", Requests, FLOWS, Order::Creation);
        established("answers, 65,536, creation order", Answers, FLOWS, Order::Creation);
    }
    established("requests, 65,536", Requests, FLOWS, Order::Shuffled);
    established("answers, 65,536", Answers, FLOWS, Order::Shuffled);
    established("both, 65,536", Both, FLOWS, Order::Shuffled);
    all
}

/// Returns all settings, each of which gets its own tables.
fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for gateway in [TunnelKind::Geneve, TunnelKind::Vxlan] {
        for family in [Family::V4, Family::V6] {
            for work in [Workload::Tunnel, Workload::Nat] {
                all.push(Setting { work, family, gateway });
            }
        }
    }
    all
}

/// The floor programs and their names in the output.
const FLOORS: [(&str, &str); 3] =
    [("nothing", "drop"), ("look_up", "one lookup"), ("parse", "parse")];

/// The reference: one lookup in the kernel's LRU map, which other load balancers use as flow
/// table.
const LRU: (&str, &str) = ("keep", "the kernel's LRU table");
/// The cases of the reference: number of flows and their order. The first inserts them all.
const LRU_CASES: [(&str, u32, Order); 4] = [
    ("new flows", FLOWS, Order::Creation),
    ("1 flow", 1, Order::Shuffled),
    ("65,536 flows, creation order", FLOWS, Order::Creation),
    ("65,536 flows, other order", FLOWS, Order::Shuffled),
];

/// The tables of one setting, its cases, and for each case the nanoseconds per packet of each
/// round: gross, and of writing the packets only.
struct Group {
    fixture: KernelFixture,
    cases: Vec<(Case, Vec<f64>, Vec<f64>)>,
}

fn main() -> Result<(), Failure> {
    pin_to_first_cpu()?;
    let arguments = Arguments::parse();
    let mut feeder = Feeder::load()?;
    let selected = |case: &Case| {
        arguments.only.is_empty() || arguments.only.iter().any(|text| case.name.contains(text))
    };
    let mut groups = Vec::new();
    for setting in settings() {
        let cases: Vec<_> = cases(setting).into_iter().filter(selected).collect();
        if !cases.is_empty() {
            let cases = cases.into_iter().map(|case| (case, Vec::new(), Vec::new())).collect();
            let mut fixture = KernelFixture::load(setting, FLOWS)?;
            fixture.capture(arguments.capture)?;
            groups.push(Group { fixture, cases });
        }
    }
    // Records that find no space would make the capture cheaper than it is.
    let packets_per_call = match arguments.capture {
        Capture::Off | Capture::Other => CALL,
        Capture::All => CAPTURED_CALL,
    };
    let calls = arguments.calls * (CALL / packets_per_call);
    let mut floors = Vec::new();
    for (program, _) in FLOORS {
        floors.push(Floor::load(program)?);
    }
    let mut floor_rounds = [const { Vec::new() }; FLOORS.len()];
    let mut lru = Floor::load(LRU.0)?;
    let mut lru_rounds = [const { Vec::new() }; LRU_CASES.len()];
    let mut write_only_rounds = Vec::new();
    for _ in 0..arguments.rounds {
        for ((floor, (program, _)), rounds) in floors.iter_mut().zip(FLOORS).zip(&mut floor_rounds)
        {
            rounds.push(round(arguments.calls, || floor.run(program, CALL))?);
        }
        let setting = settings()[0];
        let (drop, _) = FLOORS[0];
        feeder.set_target(floors[0].program(drop)?)?;
        feeder.start(&Packets::requests(&setting, FLOWS, Order::Shuffled))?;
        write_only_rounds.push(round(arguments.calls, || feeder.run(CALL))?);
        feeder.set_target(lru.program(LRU.0)?)?;
        for ((_, flows, order), rounds) in LRU_CASES.iter().zip(&mut lru_rounds) {
            feeder.start(&Packets::requests(&setting, *flows, *order))?;
            rounds.push(round(arguments.calls, || feeder.run(CALL))?);
        }
        for group in &mut groups {
            group.fixture.reset()?;
            establish(&mut feeder, &mut group.fixture)?;
            for (case, gross, write_only) in &mut group.cases {
                let packets = case.packets(&group.fixture)?;
                feeder.start(&packets)?;
                feeder.set_target(floors[0].program(drop)?)?;
                write_only.push(round(calls, || feeder.run(packets_per_call))?);
                feeder.start(&packets)?;
                let calls = (calls, packets_per_call);
                gross.push(measure(&mut feeder, &mut group.fixture, case, calls)?);
            }
        }
    }
    let write_only = Figure::of(&write_only_rounds);
    let title = format!("ns/packet in the kernel, {} rounds", arguments.rounds);
    println!("{title:<48} gross  lowest..highest      net");
    for ((_, name), rounds) in FLOORS.iter().zip(&floor_rounds) {
        println!("  {name:<46}{}", Figure::of(rounds));
    }
    println!("  {:<46}{write_only}", "written, passed on, dropped");
    for ((name, ..), rounds) in LRU_CASES.iter().zip(&lru_rounds).skip(1) {
        let (name, figure) = (format!("{}, {name}", LRU.1), Figure::of(rounds));
        println!("  {name:<46}{figure}{:>9.0}", figure.median - write_only.median);
    }
    for (case, gross, write_only) in groups.iter().flat_map(|group| &group.cases) {
        let (figure, write_only) = (Figure::of(gross), Figure::of(write_only));
        println!("  {:<46}{figure}{:>9.0}", case.name, figure.median - write_only.median);
    }
    Ok(())
}

/// Establishes all flows of a fixture, each confirmed by a request after an answer.
fn establish(feeder: &mut Feeder, fixture: &mut KernelFixture) -> Result<(), Failure> {
    feeder.set_target(fixture.entry()?)?;
    for direction in [Direction::Requests, Direction::Answers, Direction::Requests] {
        feeder.start(&fixture.packets(direction, FLOWS, Order::Creation)?)?;
        feeder.run(FLOWS)?;
    }
    Ok(())
}

/// Measures one round of a case, a number of calls with a number of packets each, in nanoseconds
/// per packet. Fails unless all of the case's packets had the expected verdict, and if records of
/// captured packets were lost.
fn measure(
    feeder: &mut Feeder,
    fixture: &mut KernelFixture,
    case: &Case,
    (calls, packets): (u32, u32),
) -> Result<f64, Failure> {
    let new = case.traffic == Traffic::New;
    if new {
        fixture.reset()?;
    }
    fixture.drop_captured();
    feeder.set_target(fixture.entry()?)?;
    let count =
        |fixture: &KernelFixture| case.verdicts().iter().map(|v| fixture.verdicts(*v)).sum::<u64>();
    let (calls, before) = (if new { FLOWS / packets } else { calls }, count(fixture));
    let lost_before = fixture.lost_captured()?;
    // As the loader does every ten milliseconds, outside of the measured time.
    let ns = round(calls, || {
        fixture.drop_captured();
        feeder.run(packets)
    })?;
    let lost = fixture.lost_captured()? - lost_before;
    if lost != 0 {
        return Err(format!("{}: {lost} records of captured packets were lost", case.name).into());
    }
    let counted = count(fixture) - before;
    if counted != u64::from(calls * packets) {
        let text = format!(
            "{}: {counted} of {} packets had the expected verdict; drops: {:?}",
            case.name,
            calls * packets,
            fixture.drops()
        );
        return Err(text.into());
    }
    if new {
        if fixture.flows() != FLOWS {
            return Err(format!("{}: {} of {FLOWS} flows exist", case.name, fixture.flows()).into());
        }
        establish(feeder, fixture)?;
    }
    Ok(ns)
}

/// Returns the median of `calls` calls.
fn round(calls: u32, mut call: impl FnMut() -> Result<f64, Failure>) -> Result<f64, Failure> {
    let times = (0..calls).map(|_| call()).collect::<Result<Vec<_>, _>>()?;
    Ok(Figure::of(&times).median)
}

/// A median with the lowest and the highest value.
struct Figure {
    median: f64,
    lowest: f64,
    highest: f64,
}

impl Figure {
    fn of(times: &[f64]) -> Figure {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        let (lowest, highest) = (times[0], times[times.len() - 1]);
        Figure { median: times[times.len() / 2], lowest, highest }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let spread = format!("{:.0}..{:.0}", self.lowest, self.highest);
        write!(f, "{:>6.0}  {spread:>15}", self.median)
    }
}
