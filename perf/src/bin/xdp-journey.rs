//! Measures the journey in the kernel: nanoseconds a packet, and net of what writing the packet
//! costs. Needs root; takes half a minute.
//!
//! All cases and the floors (a program that drops, one that looks one row up, one that parses, the
//! packets written and handed to the one that drops), and one look-up in the kernel's own LRU
//! table, in which other balancers keep their flows, are run in turn, round after round. `gross` is
//! what the kernel's test run says of a packet, the median over all calls; lowest and highest round
//! stand beside it. `net` is less the time of a packet that is only written and handed on.
//!
//! Among 65,536 flows it matters in which order they are met: in that in which they began, as other
//! balancers' figures were taken, or, as in the other plane's bench, in another.

use perf::kernel::{CALL, Failure, Feeder, Floor, Order, World, stay};
use perf::world::Work;
use tables::counters::VerdictCounter;

const ROUNDS: usize = 5;
/// Packets of a case in a round.
const CALLS: u32 = 16;
/// Flows that there are; each case meets so many of them.
const FLOWS: u32 = 1 << 16;

/// A case: its name, what it asks for, what shall become of its packets, of how many flows.
struct Case {
    name: &'static str,
    work: Work,
    verdict: VerdictCounter,
    flows: u32,
    meets: Meets,
}

/// Which flows a case meets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meets {
    New,
    Known(Order),
}

const NEW: Meets = Meets::New;
const BEGUN: Meets = Meets::Known(Order::Begun);
const OTHER: Meets = Meets::Known(Order::Other);

const fn case(
    name: &'static str,
    (work, verdict): (Work, VerdictCounter),
    flows: u32,
    meets: Meets,
) -> Case {
    Case { name, work, verdict, flows, meets }
}

const RETURN: (Work, VerdictCounter) = (Work::Return, VerdictCounter::Return);
const TUNNEL: (Work, VerdictCounter) = (Work::Tunnel, VerdictCounter::Tunnel);
const NAT: (Work, VerdictCounter) = (Work::Nat, VerdictCounter::Nat);

/// The floors: programs, and what they are called.
const FLOORS: [(&str, &str); 3] =
    [("nothing", "drop"), ("look_up", "one look-up"), ("parse", "parse")];

/// The peer: one look-up in the kernel's own flow table, LRU, as other balancers keep theirs in it.
const KEEP: (&str, &str) = ("keep", "the kernel's LRU table");
/// What it is asked for: flows, in which order. The first makes it know them all.
const KEPT: [(&str, u32, Order); 4] = [
    ("all anew", FLOWS, Order::Begun),
    ("1 flow", 1, Order::Other),
    ("65,536 flows, as begun", FLOWS, Order::Begun),
    ("65,536, another order", FLOWS, Order::Other),
];

/// New flows come first, since they are those that the others then know.
const CASES: [Case; 10] = [
    case("AWS return, between strangers", RETURN, FLOWS, OTHER),
    case("tunnel, a new flow each", TUNNEL, FLOWS, NEW),
    case("tunnel, 1 flow", TUNNEL, 1, OTHER),
    case("tunnel, 1,024 flows", TUNNEL, 1 << 10, OTHER),
    case("tunnel, 65,536 flows, as begun", TUNNEL, FLOWS, BEGUN),
    case("tunnel, 65,536, another order", TUNNEL, FLOWS, OTHER),
    case("NAT44, a new flow each", NAT, FLOWS, NEW),
    case("NAT44, 1 flow", NAT, 1, OTHER),
    case("NAT44, 65,536 flows, as begun", NAT, FLOWS, BEGUN),
    case("NAT44, 65,536, another order", NAT, FLOWS, OTHER),
];

fn main() -> Result<(), Failure> {
    stay()?;
    let mut feeder = Feeder::load()?;
    let mut worlds = Vec::new();
    for work in [Work::Return, Work::Tunnel, Work::Nat] {
        worlds.push((work, World::load(work, FLOWS)?));
    }
    let mut floors = Vec::new();
    for (program, _) in FLOORS {
        floors.push(Floor::load(program)?);
    }
    let mut floor_rounds = [const { Vec::new() }; FLOORS.len()];
    let mut peer = Floor::load(KEEP.0)?;
    let mut kept_rounds = [const { Vec::new() }; KEPT.len()];
    let mut bare_rounds = Vec::new();
    let mut rounds = [const { Vec::new() }; CASES.len()];
    for _ in 0..ROUNDS {
        for ((floor, (program, _)), rounds) in floors.iter_mut().zip(FLOORS).zip(&mut floor_rounds)
        {
            rounds.push(round(CALLS, || floor.run(program, CALL))?);
        }
        let (drop, _) = FLOORS[0];
        feeder.lead_to(floors[0].program(drop)?)?;
        feeder.begin(Work::Tunnel, FLOWS, Order::Other)?;
        bare_rounds.push(round(CALLS, || feeder.run(CALL))?);
        feeder.lead_to(peer.program(KEEP.0)?)?;
        for ((_, flows, order), rounds) in KEPT.iter().zip(&mut kept_rounds) {
            feeder.begin(Work::Tunnel, *flows, *order)?;
            rounds.push(round(CALLS, || feeder.run(CALL))?);
        }
        for (case, rounds) in CASES.iter().zip(&mut rounds) {
            let world = worlds.iter_mut().find(|(work, _)| *work == case.work);
            let (_, world) = world.ok_or("every work has a world")?;
            rounds.push(measure(&mut feeder, world, case)?);
        }
    }
    let bare = Figure::of(&bare_rounds);
    let title = format!("ns a packet in the kernel, {ROUNDS} rounds");
    println!("{title:<48} gross  lowest..highest      net");
    for ((_, name), rounds) in FLOORS.iter().zip(&floor_rounds) {
        println!("  {name:<46}{}", Figure::of(rounds));
    }
    println!("  {:<46}{bare}", "written, handed on, dropped");
    let kept = KEPT.map(|(name, ..)| format!("{}, {name}", KEEP.1));
    let kept = kept.iter().map(String::as_str).zip(&kept_rounds);
    for (name, rounds) in kept.skip(1).chain(CASES.iter().map(|case| case.name).zip(&rounds)) {
        let figure = Figure::of(rounds);
        println!("  {name:<46}{figure}{:>9.0}", figure.median - bare.median);
    }
    Ok(())
}

/// A round of a case. All of its packets had the verdict that they should, or there is no figure.
fn measure(feeder: &mut Feeder, world: &mut World, case: &Case) -> Result<f64, Failure> {
    let (calls, order) = match case.meets {
        Meets::New => (FLOWS / CALL, Order::Begun),
        Meets::Known(order) => (CALLS, order),
    };
    if case.meets == Meets::New {
        world.renew()?;
    }
    feeder.lead_to(world.entry()?)?;
    feeder.begin(case.work, case.flows, order)?;
    let before = world.verdicts(case.verdict);
    let ns = round(calls, || feeder.run(CALL))?;
    let had = world.verdicts(case.verdict) - before;
    if had != u64::from(calls * CALL) {
        let text = format!("{}: {had} of {} packets; {:?}", case.name, calls * CALL, world.drops());
        return Err(text.into());
    }
    if case.meets == Meets::New && world.flows() != FLOWS {
        return Err(format!("{}: {} of {FLOWS} flows", case.name, world.flows()).into());
    }
    Ok(ns)
}

/// The median of so many calls.
fn round(calls: u32, mut call: impl FnMut() -> Result<f64, Failure>) -> Result<f64, Failure> {
    let times = (0..calls).map(|_| call()).collect::<Result<Vec<_>, _>>()?;
    Ok(Figure::of(&times).median)
}

/// A median, and how far it was from others.
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
