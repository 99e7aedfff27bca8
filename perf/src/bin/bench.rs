//! Runs the comparisons: `bench`, or `bench null` for those whose title holds a word.

use clap::Parser;
use perf::compare::Effort;
use perf::compare::Refill;
use perf::machine::{Pages, ping_pong};
use perf::peers::{self, Core, Memory, c_loop, eal, testpmd};
use perf::{Case, Comparison, Program};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which comparisons, how long and how often.
#[derive(Parser)]
#[command(about = "Measures Weir against testpmd and a C loop in the same run")]
struct Arguments {
    /// Only comparisons whose title holds one of these words.
    words: Vec<String>,
    /// Rounds over all cases of a comparison.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each run; the first three do not count.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,
    /// Between null ports, only what the figures are ratios of and the cases of ours whose names
    /// hold this.
    #[arg(long)]
    only: Option<String>,
    /// Names the comparisons and ends.
    #[arg(long)]
    list: bool,
}

/// Where the two programs of a memif case meet.
const SOCKET: &str = "/run/weir-perf-memif.sock";

/// Weir's own cases between null ports: name, work, family, flows. 64 bytes inside the tunnel.
const JOURNEYS: [(&str, &str, &str, &str); 12] = [
    ("weir, AWS return", "return", "4", "1024"),
    ("weir, AWS return, IPv6", "return", "6", "1024"),
    ("weir, AWS return, other port", "elsewhere", "4", "1024"),
    ("weir, tunnel, 1,024 flows", "tunnel", "4", "1024"),
    ("weir, tunnel, 65,536 flows", "tunnel", "4", "65536"),
    ("weir, tunnel, 1 M flows", "tunnel", "4", MILLION),
    ("weir, tunnel, 65,536, IPv6", "tunnel", "6", "65536"),
    ("weir, NAT44, 1,024 flows", "nat", "4", "1024"),
    ("weir, NAT44, 65,536 flows", "nat", "4", "65536"),
    ("weir, NAT44, 1 M flows", "nat", "4", MILLION),
    ("weir, NAT66, 65,536 flows", "nat", "6", "65536"),
    ("weir, NAT66, 1 M flows", "nat", "6", MILLION),
];

/// The same where half of the packets are backends' answers, and where gateways' packets come by
/// several pairs of an endpoint and a node: further arguments of the journey.
const OTHERS: [(&str, &str, &str, &[&str]); 7] = [
    ("weir, tunnel both ways, 65,536 flows", "tunnel", "65536", &["--answers"]),
    ("weir, tunnel both ways, 1 M flows", "tunnel", MILLION, &["--answers"]),
    ("weir, NAT44 both ways, 65,536 flows", "nat", "65536", &["--answers"]),
    ("weir, NAT44 both ways, 1 M flows", "nat", MILLION, &["--answers"]),
    ("weir, AWS return, 16 pairs", "return", "1024", &["--pairs", "16"]),
    ("weir, AWS return, 64 pairs", "return", "1024", &["--pairs", "64"]),
    ("weir, tunnel, 64 pairs, 65,536 flows", "tunnel", "65536", &["--pairs", "64"]),
];

/// The most flows of any case.
const MILLION: &str = "1048576";

/// `net_null` ports for so many lcores, whose frames have the length of those that arrive there.
const ARMS: [&str; 4] =
    ["net_null0,size=146", "net_null1,size=78", "net_null2,size=146", "net_null3,size=78"];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // Two programs side by side at most, or one with its region, in pages of 2 MiB.
    let region = perf::world::region_pages(MILLION.parse()?);
    let need = peers::MEMORY_MIB / 2 + region.max(peers::MEMORY_MIB / 2);
    let pages = if arguments.list { None } else { Some(Pages::at_least(need)) };
    let memory = match &pages {
        Some(Err(error)) => {
            println!("WARNING: no huge pages ({error}): all figures are 3 to 4 times too low");
            Memory::Small
        }
        _ => Memory::Huge,
    };
    let effort = Effort { rounds: arguments.rounds, seconds: arguments.seconds, least_share: 0.9 };
    let chosen = |title: &str| {
        arguments.words.is_empty() || arguments.words.iter().any(|word| title.contains(word))
    };
    for comparison in comparisons(memory, arguments.seconds + 2, arguments.only.as_deref())? {
        if !chosen(&comparison.title) {
            continue;
        }
        if arguments.list {
            println!("{}", comparison.title);
            continue;
        }
        let took = ping_pong()?;
        println!(
            "\nping-pong between the cores: {} ns (near 130..170, far 550..570)",
            took.as_nanos()
        );
        comparison.run(&effort)?;
    }
    Ok(())
}

/// All comparisons.
fn comparisons(
    memory: Memory,
    seconds: u64,
    only: Option<&str>,
) -> Result<Vec<Comparison>, Box<dyn Error>> {
    let memif = |core, prefix: &str, role: &str| {
        let device = format!("net_memif0,role={role},id=0,socket={SOCKET},socket-abstract=no");
        eal(core, memory, prefix, &[&device])
    };
    let server = |prefix: &str| memif(Core::Second, prefix, "server");
    let generator = || {
        let generate = program("generate")?;
        let own = ["--kind", "aws", "--flows", "1024", "--seconds", &seconds.to_string()];
        let client = memif(Core::First, "weir-perf-g", "client");
        Ok::<_, Box<dyn Error>>(peers::ours(&generate.to_string_lossy(), client, &own))
    };
    let through_memif = vec![
        Case::fed(
            "testpmd, macswap",
            testpmd(server("weir-perf-t"), "macswap", 1),
            generator()?,
            SOCKET,
        ),
        Case::fed(
            "C loop, macswap",
            c_loop(server("weir-perf-c"), "macswap", seconds),
            generator()?,
            SOCKET,
        ),
        Case::fed(
            "weir, AWS return",
            journey(server("weir-perf-w"), "return", "4", "1024", seconds, &[])?,
            generator()?,
            SOCKET,
        ),
    ];
    Ok(vec![
        on_null(memory, seconds, only)?,
        crossing(memory, seconds, ("65,536", "65536"))?,
        crossing(memory, seconds, ("1 M", MILLION))?,
        Comparison {
            title: "memif: there and back, AWS frames of 1,024 flows, two cores".to_string(),
            cases: through_memif,
            refill: None,
        },
    ])
}

fn on_null(memory: Memory, seconds: u64, only: Option<&str>) -> Result<Comparison, Box<dyn Error>> {
    let null = |prefix: &str| eal(Core::Second, memory, prefix, &["net_null0", "net_null1"]);
    let ours = || eal(Core::Second, memory, "weir-perf-w", &ARMS[..2]);
    let mut cases = vec![
        Case::alone("C loop, 5tswap", c_loop(null("weir-perf-c"), "5tswap", seconds)),
        Case::alone("C loop, io", c_loop(null("weir-perf-c"), "io", seconds)),
        Case::alone(
            "weir, packets written only",
            journey(ours(), "refill", "4", "1024", seconds, &[])?,
        ),
        Case::alone("C loop, macswap", c_loop(null("weir-perf-c"), "macswap", seconds)),
        Case::alone("testpmd, 5tswap", testpmd(null("weir-perf-t"), "5tswap", 2)),
        Case::alone("testpmd, macswap", testpmd(null("weir-perf-t"), "macswap", 2)),
    ];
    if only.is_some() {
        // The loop's two and the writing alone.
        cases.truncate(3);
    }
    for (name, work, family, flows) in JOURNEYS {
        if only.is_some_and(|word| !name.contains(word)) {
            continue;
        }
        let program = journey(ours(), work, family, flows, seconds, &[])?;
        cases.push(Case::alone(name, program).refilling());
    }
    for (name, work, flows, more) in OTHERS {
        if only.is_some_and(|word| !name.contains(word)) {
            continue;
        }
        let program = journey(ours(), work, "4", flows, seconds, more)?;
        cases.push(Case::alone(name, program).refilling());
    }
    Ok(Comparison {
        title: "null: one lcore between two net_null ports".to_string(),
        cases,
        refill: Some(Refill { writes: 2, passes: 1 }),
    })
}

/// One lcore and two; 2 is the best ratio that there can be.
fn crossing(
    memory: Memory,
    seconds: u64,
    (name, flows): (&str, &str),
) -> Result<Comparison, Box<dyn Error>> {
    let one = eal(Core::Second, memory, "weir-perf-w", &ARMS[..2]);
    let one = journey(one, "nat", "4", flows, seconds, &["--answers"])?;
    let two = eal(Core::Both, memory, "weir-perf-w", &ARMS);
    let two = journey(two, "nat", "4", flows, seconds, &["--lcores", "2"])?;
    let title = format!("cross: NAT44 of {name} flows, answers at the other lcore than requests");
    let cases = vec![Case::alone("one lcore", one), Case::alone("two lcores", two)];
    Ok(Comparison { title, cases, refill: None })
}

/// Weir's journey with those EAL arguments.
fn journey(
    eal: Vec<String>,
    work: &str,
    family: &str,
    flows: &str,
    seconds: u64,
    more: &[&str],
) -> Result<Program, Box<dyn Error>> {
    let seconds = seconds.to_string();
    let own = ["--work", work, "--family", family, "--flows", flows, "--seconds", &seconds];
    Ok(peers::ours(&program("journey")?.to_string_lossy(), eal, &[&own, more].concat()))
}

/// A program of this crate, which lies beside this one.
fn program(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} is not there: type `make bench`, which builds it", path.display()).into())
}
