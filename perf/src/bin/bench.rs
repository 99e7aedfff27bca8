//! Runs the comparisons: `bench`, or `bench null` for those whose title holds a word.

use clap::Parser;
use perf::compare::Effort;
use perf::machine::{Pages, ping_pong};
use perf::peers::{self, Core, Memory, c_loop, eal, testpmd};
use perf::{Case, Comparison};
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
    /// Names the comparisons and ends.
    #[arg(long)]
    list: bool,
}

/// Where the two programs of a memif case meet.
const SOCKET: &str = "/run/weir-perf-memif.sock";

/// Weir's own cases between null ports: name, work, flows. 64 bytes inside the gateway's tunnel.
const JOURNEYS: [(&str, &str, &str); 8] = [
    ("weir, packets written only", "refill", "1024"),
    ("weir, AWS return", "return", "1024"),
    ("weir, tunnel, 1,024 flows", "tunnel", "1024"),
    ("weir, tunnel, 65,536 flows", "tunnel", "65536"),
    ("weir, tunnel, 1 M flows", "tunnel", "1048576"),
    ("weir, NAT44, 1,024 flows", "nat", "1024"),
    ("weir, NAT44, 65,536 flows", "nat", "65536"),
    ("weir, NAT44, 1 M flows", "nat", "1048576"),
];

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
    // Two programs side by side at most, each with its memory in pages of 2 MiB.
    let need = 2 * peers::MEMORY_MIB / 2;
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
    for comparison in comparisons(memory, arguments.seconds + 2)? {
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

/// All comparisons. A case of Weir's is one line more in the list that it belongs to:
/// `Case::alone("weir return", peers::ours(&program("..."), null("weir-perf-w"), &[..]))`.
fn comparisons(memory: Memory, seconds: u64) -> Result<Vec<Comparison>, Box<dyn Error>> {
    let null = |prefix: &str| eal(Core::Second, memory, prefix, &["net_null0", "net_null1"]);
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
    let mut on_null = vec![
        Case::alone("C loop, 5tswap", c_loop(null("weir-perf-c"), "5tswap", seconds)),
        Case::alone("C loop, macswap", c_loop(null("weir-perf-c"), "macswap", seconds)),
        Case::alone("testpmd, 5tswap", testpmd(null("weir-perf-t"), "5tswap", 2)),
        Case::alone("testpmd, macswap", testpmd(null("weir-perf-t"), "macswap", 2)),
    ];
    for (name, work, flows) in JOURNEYS {
        let own = ["--work", work, "--flows", flows, "--seconds", &seconds.to_string()];
        let devices = ["net_null0,size=146", "net_null1,size=146"];
        let arguments = eal(Core::Second, memory, "weir-perf-w", &devices);
        let program = program("journey")?;
        on_null.push(Case::alone(name, peers::ours(&program.to_string_lossy(), arguments, &own)));
    }
    Ok(vec![
        Comparison {
            title: "null: one lcore between two net_null ports".to_string(),
            cases: on_null,
        },
        Comparison {
            title: "memif: there and back, AWS frames of 1,024 flows, two cores".to_string(),
            cases: vec![
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
                    peers::ours(
                        &program("journey")?.to_string_lossy(),
                        server("weir-perf-w"),
                        &["--work", "return", "--flows", "1024", "--seconds", &seconds.to_string()],
                    ),
                    generator()?,
                    SOCKET,
                ),
            ],
        },
    ])
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
