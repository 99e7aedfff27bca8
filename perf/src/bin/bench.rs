//! Runs the comparisons: `bench` runs all, `bench null` those whose title contains "null".

#![forbid(unsafe_code)]

use clap::Parser;
use perf::compare::{RunSettings, Unit};
use perf::machine::{Pages, ping_pong};
use perf::peers::{self, Core, Memory, c_loop, eal, testpmd};
use perf::{Case, Comparison, Program};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Command line: which comparisons to run, how long and how often.
#[derive(Parser)]
#[command(about = "Measure Weir against testpmd and a C loop in the same run")]
struct Arguments {
    /// Run only comparisons whose title contains one of these words.
    words: Vec<String>,
    /// Set the rounds over all cases of a comparison [default: 3, or 1 with --quick].
    #[arg(long)]
    rounds: Option<usize>,
    /// Set the seconds of each run; rates leave out the first two, shares of a core are measured
    /// after three.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,
    /// Run only Weir's cases whose names contain this, with the references that they need; memif
    /// always runs all of its cases.
    #[arg(long)]
    only: Option<String>,
    /// Run one round of fewer cases, without the comparisons cross and memif.
    #[arg(long)]
    quick: bool,
    /// List the comparisons and their cases without running them.
    #[arg(long)]
    list: bool,
}

/// The socket that connects the two programs of a memif case.
const SOCKET: &str = "/run/weir-perf-memif.sock";

/// Weir cases on one lcore between null ports, with 64-byte packets inside the tunnel. Each is
/// measured with requests only, answers only, and both.
struct Group {
    /// The value of `journey --work`.
    work: &'static str,
    /// The IP version inside the tunnel, 4 or 6.
    family: u8,
    flows: u32,
    /// Number of combinations of a gateway endpoint and a gateway node.
    pairs: u32,
    /// Whether frames are evicted from the L1 and L2 caches before a stage reads them.
    cold: bool,
    /// Whether the cases are included in `--quick`.
    quick: bool,
}

const fn group(work: &'static str, family: u8, flows: u32) -> Group {
    Group { work, family, flows, pairs: 1, cold: false, quick: false }
}

impl Group {
    const fn by_pairs(self, pairs: u32) -> Group {
        Group { pairs, ..self }
    }

    const fn cold(self) -> Group {
        Group { cold: true, ..self }
    }

    const fn quick(self) -> Group {
        Group { quick: true, ..self }
    }

    fn name(&self) -> String {
        let tracked = matches!(self.work, "tunnel" | "nat");
        let work = match (self.work, self.family) {
            ("return", _) => "AWS return",
            ("elsewhere", _) => "AWS return, other port",
            ("nat", 4) => "NAT44",
            ("nat", _) => "NAT66",
            (other, _) => other,
        };
        let mut name = work.to_string();
        if tracked {
            name += &format!(", {} flows", flows_text(self.flows));
        }
        if self.family == 6 && self.work != "nat" {
            name += ", IPv6";
        }
        if self.pairs > 1 {
            name += &format!(", {} pairs", self.pairs);
        }
        name + if self.cold { ", cold frames" } else { "" }
    }
}

fn flows_text(flows: u32) -> String {
    match flows {
        MILLION => "1 M".to_string(),
        flows => format!("{},{:03}", flows / 1000, flows % 1000),
    }
}

const GROUPS: &[Group] = &[
    group("return", 4, 1024).quick(),
    group("return", 4, 1024).by_pairs(16),
    group("return", 4, 1024).by_pairs(48).quick(),
    group("return", 4, 1024).cold().quick(),
    group("return", 4, 1024).by_pairs(16).cold(),
    group("return", 4, 1024).by_pairs(48).cold(),
    group("return", 6, 1024),
    group("elsewhere", 4, 1024),
    group("tunnel", 4, 1024),
    group("tunnel", 4, 65_536).quick(),
    group("tunnel", 4, 65_536).by_pairs(48),
    group("tunnel", 4, 65_536).cold(),
    group("tunnel", 4, MILLION).quick(),
    group("tunnel", 6, 65_536),
    group("nat", 4, 1024),
    group("nat", 4, 65_536).quick(),
    group("nat", 4, 65_536).cold(),
    group("nat", 4, MILLION).quick(),
    group("nat", 6, 65_536),
    group("nat", 6, MILLION),
];

const DIRECTIONS: [&str; 3] = ["requests", "answers", "both"];

/// The largest number of flows in any case.
const MILLION: u32 = 1_048_576;

/// EAL devices: `net_null` ports whose frame sizes match the traffic of each port.
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
    // Pages of 2 MiB for two programs side by side, or for one program and its region.
    let region = perf::fixture::region_pages(MILLION);
    let need = peers::MEMORY_MIB / 2 + region.max(peers::MEMORY_MIB / 2);
    let pages = if arguments.list { None } else { Some(Pages::at_least(need)) };
    let memory = match &pages {
        Some(Err(error)) => {
            println!("WARNING: no huge pages ({error}): all rates are 3 to 4 times too low");
            Memory::Small
        }
        _ => Memory::Huge,
    };
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 3 });
    let settings = RunSettings { rounds, seconds: arguments.seconds, min_share: 0.9 };
    let chosen = |comparison: &Comparison| {
        let title = &comparison.title;
        arguments.words.is_empty() || arguments.words.iter().any(|word| title.contains(word))
    };
    let mut comparisons = Suite::new(memory, arguments).comparisons()?;
    comparisons.retain(chosen);
    if arguments.list {
        for comparison in comparisons {
            println!("{}", comparison.title);
            comparison.cases.iter().for_each(|case| println!("  {}", case.name));
        }
        return Ok(());
    }
    let runs = rounds * comparisons.iter().map(|one| one.cases.len()).sum::<usize>();
    let seconds = runs as u64 * (arguments.seconds + 1);
    println!("{runs} runs: about {} minutes, longer if runs are repeated", seconds / 60 + 1);
    for comparison in comparisons {
        let took = ping_pong()?;
        println!(
            "\nping-pong between the cores: {} ns (near 130..170, far 550..570)",
            took.as_nanos()
        );
        comparison.run(&settings)?;
    }
    Ok(())
}

/// The settings of this run that all comparisons share.
struct Suite<'a> {
    memory: Memory,
    /// The seconds after which a program ends by itself, as the text of a command-line argument.
    seconds: String,
    only: Option<&'a str>,
    quick: bool,
}

impl Suite<'_> {
    fn new(memory: Memory, arguments: &Arguments) -> Suite<'_> {
        let seconds = (arguments.seconds + 2).to_string();
        Suite { memory, seconds, only: arguments.only.as_deref(), quick: arguments.quick }
    }

    fn is_chosen(&self, name: &str) -> bool {
        self.only.is_none_or(|word| name.contains(word))
    }

    fn comparisons(&self) -> Result<Vec<Comparison>, Box<dyn Error>> {
        let mut all = vec![self.on_null()?, self.new_flows()?, self.crossing()?, self.counters()?];
        all.push(self.captures()?);
        if !self.quick {
            all.push(self.through_memif()?);
        }
        all.retain(|comparison| !comparison.cases.is_empty());
        Ok(all)
    }

    /// Returns a program that runs Weir's packet path on `lcores` lcores between null ports.
    fn journey(
        &self,
        lcores: usize,
        work: &str,
        family: u8,
        flows: u32,
        more: &[&str],
    ) -> Result<Program, Box<dyn Error>> {
        let core = if lcores == 1 { Core::Second } else { Core::Both };
        let eal = eal(core, self.memory, "weir-perf-w", &ARMS[..2 * lcores]);
        let more =
            if lcores == 1 { more } else { &[&["--lcores", "2", "--together"], more].concat() };
        self.journey_on(eal, work, family, flows, more)
    }

    /// Returns a program that runs Weir's packet path with the given EAL arguments.
    fn journey_on(
        &self,
        eal: Vec<String>,
        work: &str,
        family: u8,
        flows: u32,
        more: &[&str],
    ) -> Result<Program, Box<dyn Error>> {
        let (family, flows) = (family.to_string(), flows.to_string());
        let own = ["--work", work, "--family", &family, "--flows", &flows];
        let own = [&own[..], &["--seconds", &self.seconds], more].concat();
        Ok(peers::metered(&program("journey")?.to_string_lossy(), eal, &own))
    }

    /// Compares Weir's packet path with the C loop and testpmd on one lcore between null ports.
    fn on_null(&self) -> Result<Comparison, Box<dyn Error>> {
        let seconds = self.seconds.parse()?;
        let null =
            |prefix: &str| eal(Core::Second, self.memory, prefix, &["net_null0", "net_null1"]);
        let peer = |mode: &str| c_loop(null("weir-perf-c"), mode, seconds);
        let mut cases = vec![
            Case::single("C loop, 5tswap", peer("5tswap")),
            Case::single("C loop, io", peer("io")),
        ];
        // The index of "C loop, io".
        let forward_only = Some(1);
        if self.only.is_none() && !self.quick {
            cases.push(Case::single("C loop, macswap", peer("macswap")));
            for mode in ["5tswap", "macswap"] {
                let testpmd = testpmd(null("weir-perf-t"), mode, 2);
                cases.push(Case::single(&format!("testpmd, {mode}"), testpmd));
            }
        }
        let mut fill_only_cases: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for group in GROUPS.iter().filter(|group| group.quick || !self.quick) {
            for direction in DIRECTIONS {
                let name = format!("weir, {}, {direction}", group.name());
                if !self.is_chosen(&name) {
                    continue;
                }
                let cold: &[&str] = if group.cold { &["--cold"] } else { &[] };
                let by = |direction| [cold, &["--direction", direction]].concat();
                // Traffic that is returned arrives through the gateway in both directions.
                let tracked = matches!(group.work, "tunnel" | "nat");
                let frames = if tracked { direction } else { DIRECTIONS[0] };
                let fill_only_case = match fill_only_cases.get(&(group.cold, frames)) {
                    Some(at) => *at,
                    None => {
                        let name = format!(
                            "weir, {frames} written only{}",
                            if group.cold { ", cold frames" } else { "" }
                        );
                        let program = self.journey(1, "refill", 4, 1024, &by(frames))?;
                        cases.push(Case::single(&name, program));
                        fill_only_cases.insert((group.cold, frames), cases.len() - 1);
                        cases.len() - 1
                    }
                };
                let pairs = group.pairs.to_string();
                let more = [&by(direction)[..], &["--pairs", &pairs]].concat();
                let program = self.journey(1, group.work, group.family, group.flows, &more)?;
                let case = Case::single(&name, program).refilling(fill_only_case);
                cases.push(case.in_row(&group.name(), direction));
            }
        }
        let title = "null: one lcore between two net_null ports".to_string();
        Ok(Comparison { title, cases, forward_only, unit: Unit::Nanoseconds })
    }

    /// Compares flow creation: each packet begins a flow.
    fn new_flows(&self) -> Result<Comparison, Box<dyn Error>> {
        let mut cases = Vec::new();
        for (work, name) in [("tunnel", "tunnel"), ("nat", "NAT44")] {
            for flows in [65_536, MILLION] {
                for (lcores, column) in [(1, "one lcore"), (2, "two lcores")] {
                    let row = format!("new flows, {name}, table of {}", flows_text(flows));
                    let name = format!("{row}, {column}");
                    if self.is_chosen(&name) && (!self.quick || flows == MILLION) {
                        let program = self.journey(lcores, work, 4, flows, &["--new"])?;
                        cases.push(Case::single(&name, program).in_row(&row, column));
                    }
                }
            }
        }
        let title = "new: flows started per second".to_string();
        Ok(Comparison { title, cases, forward_only: None, unit: Unit::Millions })
    }

    /// Compares the cost of a capture: off, of other packets, and of all packets.
    fn captures(&self) -> Result<Comparison, Box<dyn Error>> {
        let mut cases = Vec::new();
        let works = [("return", 1024, "AWS return"), ("tunnel", 65_536, "tunnel, 65,536 flows")];
        let works = works.into_iter().chain([("nat", 65_536, "NAT44, 65,536 flows")]);
        for (work, flows, row) in works {
            for (capture, column) in
                [("off", "no capture"), ("other", "no packet matches"), ("all", "all match")]
            {
                let name = format!("capture, {row}, {column}");
                if self.is_chosen(&name) && (!self.quick || work == "return") {
                    let program = self.journey(1, work, 4, flows, &["--capture", capture])?;
                    cases.push(Case::single(&name, program).in_row(row, column));
                }
            }
        }
        let title = "captures: packets captured while they are forwarded".to_string();
        Ok(Comparison { title, cases, forward_only: None, unit: Unit::Nanoseconds })
    }

    /// Compares the cost of per-service counters: one set for each of 1,000 services, or one for
    /// all.
    fn counters(&self) -> Result<Comparison, Box<dyn Error>> {
        let mut cases = Vec::new();
        for (work, name) in [("tunnel", "tunnel"), ("nat", "NAT44")] {
            let row = format!("{name}, 65,536 flows, 1,000 services");
            for (counted, column) in [("1", "shared counters"), ("1000", "own counters")] {
                let name = format!("{row}, {column}");
                if self.is_chosen(&name) {
                    let more = ["--services", "1000", "--counted", counted];
                    let program = self.journey(1, work, 4, 65_536, &more)?;
                    cases.push(Case::single(&name, program).in_row(&row, column));
                }
            }
        }
        let title = "counters: own counters for each of 1,000 services, or shared".to_string();
        Ok(Comparison { title, cases, forward_only: None, unit: Unit::Nanoseconds })
    }

    /// Compares both directions on one lcore and on two, where each lcore receives the answers to
    /// the other's requests; the best possible ratio is 2.
    fn crossing(&self) -> Result<Comparison, Box<dyn Error>> {
        let mut cases = Vec::new();
        for flows in [65_536, MILLION] {
            let row = format!("NAT44, {} flows, both directions", flows_text(flows));
            for (lcores, column) in [(1, "one lcore"), (2, "two lcores")] {
                let name = format!("{row}, {column}");
                if self.is_chosen(&name) && !self.quick {
                    let both = ["--direction", "both"];
                    let program = self.journey(lcores, "nat", 4, flows, &both)?;
                    cases.push(Case::single(&name, program).in_row(&row, column));
                }
            }
        }
        let title = "cross: answers on another lcore than requests".to_string();
        Ok(Comparison { title, cases, forward_only: None, unit: Unit::Millions })
    }

    /// Compares forwarders on one core with a generator on another, connected by memif.
    fn through_memif(&self) -> Result<Comparison, Box<dyn Error>> {
        let seconds = self.seconds.parse()?;
        let memif = |core, prefix: &str, role: &str| {
            let device = format!("net_memif0,role={role},id=0,socket={SOCKET},socket-abstract=no");
            eal(core, self.memory, prefix, &[&device])
        };
        let server = |prefix: &str| memif(Core::Second, prefix, "server");
        let generate = program("generate")?;
        let own = ["--kind", "aws", "--flows", "1024", "--seconds", &self.seconds];
        let client = memif(Core::First, "weir-perf-g", "client");
        let generator = peers::metered(&generate.to_string_lossy(), client, &own);
        let weir = self.journey_on(server("weir-perf-w"), "return", 4, 1024, &[])?;
        let case = |name, forwarder| Case::fed(name, forwarder, generator.clone(), SOCKET);
        let cases = vec![
            case("testpmd, macswap", testpmd(server("weir-perf-t"), "macswap", 1)),
            case("C loop, macswap", c_loop(server("weir-perf-c"), "macswap", seconds)),
            case("weir, AWS return", weir),
        ];
        let title = "memif: round trip, AWS frames of 1,024 flows, two cores".to_string();
        Ok(Comparison { title, cases, forward_only: None, unit: Unit::Nanoseconds })
    }
}

/// Returns the path of another program of this crate, next to the running one.
fn program(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let path = own.parent().unwrap_or(Path::new(".")).join(name);
    if path.exists() {
        return Ok(path);
    }
    Err(format!("{} does not exist: type `make bench` to build it", path.display()).into())
}
