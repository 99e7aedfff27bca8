//! Measures the cost of the control plane:
//!
//! - services with their backends, inserted as objects through the tables and the reconciler into a
//!   plane, and deleted again;
//! - the time of one change;
//! - the time of a start;
//! - the time and size of a scrape of the metrics.
//!
//! The shape is that of the load-balancing benchmark whose figures `PROMISES.md` cites: all objects
//! are built first; then each round inserts all of them, waits until the plane has them, deletes
//! all and waits until the plane is empty. CPU time is the process's own. Bytes are heap bytes that
//! are still reachable after an insert, less those before the first insert; the objects belong to
//! the caller and do not count. A region's bytes are those of its tables, which are allocated at
//! start.

#![forbid(unsafe_code)]

mod change;
mod heap;
mod load;
mod pipeline;
mod restart;
mod rounds;
mod scrape;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use change::{Changes, Step};
use load::Load;
use restart::Restart;
use rounds::{Plane, Round, Rounds};
use scrape::Scrapes;

/// Maximum number of services of a scrape.
const SCRAPED_SERVICES: u32 = 5_000;
/// Number of scrapes after the first.
const SCRAPES: u32 = 21;

/// Measure the control plane: insert and delete objects, change one, restart.
#[derive(Parser)]
struct Args {
    /// Set the number of services, each with a frontend
    #[arg(long, default_value_t = 50_000)]
    services: u32,
    /// Set the backends of each service, one measurement per value
    #[arg(long, value_delimiter = ',', default_value = "1,10")]
    backends: Vec<u32>,
    /// Set the Maglev table slots of services with several backends
    #[arg(long, default_value_t = 251)]
    table: u32,
    /// Set the changes per transaction
    #[arg(long, default_value_t = 500)]
    batch: usize,
    /// Set how often all services are inserted and deleted
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Set the number of single changes
    #[arg(long, default_value_t = 400)]
    changes: u32,
    /// Run only these measurements
    #[arg(long, value_delimiter = ',')]
    only: Vec<Measurement>,
}

/// A measurement.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Insert and delete all, in-memory map plane
    Memory,
    /// Insert and delete all, region
    Region,
    /// Insert and delete all, region in kernel maps (root)
    Maps,
    /// Change one backend and wait until the lcore has acknowledged it
    Change,
    /// Start over tables that are up to date
    Restart,
    /// Scrape the metrics, of at most 5,000 services
    Scrape,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

fn quantile(values: impl Iterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

fn show_rounds(rounds: &Rounds) {
    let plane = match rounds.plane {
        Plane::Memory => "memory",
        Plane::Region => "region",
        Plane::Maps => "kernel maps",
    };
    let median_of = |of: &dyn Fn(&Round) -> f64| median(rounds.rounds.iter().map(of));
    let max_heap = rounds.rounds.iter().map(|r| r.heap_bytes).fold(0.0, f64::max);
    println!(
        "{plane:<12} {:>8} {:>9} {:>8.2} {:>8.2} {:>9.2} {:>9.0} {:>9.0} {max_heap:>8.0} {:>8.1} \
         {:>8.0}",
        rounds.load.services,
        rounds.load.backends,
        median_of(&|r| r.cpu_us[0]),
        median_of(&|r| r.cpu_us[1]),
        median_of(&|r| r.cpu_us[0] + r.cpu_us[1]),
        median_of(&|r| r.rate[0]),
        median_of(&|r| r.rate[1]),
        median_of(&|r| r.heap_count),
        rounds.plane_bytes,
    );
}

fn show_changes(changes: &Changes) {
    let Load { services, backends, .. } = changes.load;
    println!("one backend of {backends}, {services} services, {} changes:", changes.steps.len());
    let row = |what: &str, of: &dyn Fn(&Step) -> Duration| {
        let ms = || changes.steps.iter().map(|step| of(step).as_secs_f64() * 1e3);
        let (median, p99) = (quantile(ms(), 0.5), quantile(ms(), 0.99));
        println!("  {what:<44} {median:>8.3} ms median {p99:>8.3} ms p99");
    };
    row("on disk (append and sync)", &|step| step.disk);
    row("from disk: committed, lcores notified", &|step| step.committed);
    row("CPU time of the control loop until committed", &|step| step.cpu);
    row("from disk: acknowledged, frontends done", &|step| step.done);
}

fn show_restart(services: u32, restart: &Restart) {
    let Restart { read, attach, rows, pass } = restart;
    let all = *read + *attach + *rows + *pass;
    println!("restart with {services} unchanged services: {} ms", all.as_millis());
    println!(
        "  {} ms store, {} ms region, {} ms rows, {} ms full pass without changes",
        read.as_millis(),
        attach.as_millis(),
        rows.as_millis(),
        pass.as_millis()
    );
}

fn show_scrapes(scrapes: &Scrapes) {
    let Load { services, backends, .. } = scrapes.load;
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let all = || scrapes.others.iter().map(|took| ms(*took));
    let (bytes, series) = scrapes.text;
    println!(
        "scrape of {services} services with {backends} backends each: {series} series, {:.1} MB",
        bytes as f64 / 1e6
    );
    println!(
        "  CPU {:.1} ms median, {:.1} ms p90; {:.1} ms after a commit; {:.1} ms for the older format",
        median(all()),
        quantile(all(), 0.9),
        ms(scrapes.first),
        ms(scrapes.plain)
    );
}

fn measure(args: &Args) -> Result<(), String> {
    let selected = |what: Measurement| args.only.is_empty() || args.only.contains(&what);
    let planes = [
        (Measurement::Memory, Plane::Memory),
        (Measurement::Region, Plane::Region),
        (Measurement::Maps, Plane::Maps),
    ];
    println!(
        "per service      services  backends    us in   us out  together      in/s     out/s     \
         heap  objects    plane"
    );
    for (_, plane) in planes.into_iter().filter(|(what, _)| selected(*what)) {
        for backends in args.backends.iter().copied() {
            let (services, table) = (args.services, args.table);
            let load = Load { services, backends, table, tunnel: plane != Plane::Memory };
            show_rounds(&rounds::measure(plane, load, args.rounds, args.batch)?);
        }
    }
    println!(
        "us: CPU time, median of {} rounds; heap: maximum in bytes; plane: bytes",
        args.rounds
    );
    if selected(Measurement::Change) {
        change::measure(args.services, args.changes)?.iter().for_each(show_changes);
    }
    if selected(Measurement::Restart) {
        show_restart(args.services, &restart::measure(args.services)?);
    }
    if selected(Measurement::Scrape) {
        for backends in args.backends.iter().copied() {
            let services = args.services.min(SCRAPED_SERVICES);
            let load = Load { services, backends, table: args.table, tunnel: true };
            show_scrapes(&scrape::measure(load, SCRAPES)?);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("control: {error}");
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single test, since a second one in parallel would use the same counted heap.
    #[test]
    fn every_measurement_runs_and_heap_per_service_does_not_grow() {
        // 2,000 entries fill half of a map of 4,096 slots. At 3,000, deleted slots add up over the
        // rounds until a map doubles, by chance of its hash seed.
        let load = Load { services: 2_000, backends: 1, table: 0, tunnel: false };
        let rounds = rounds::measure(Plane::Memory, load, 12, 500).expect("it runs").rounds;
        let heaps: Vec<f64> = rounds.iter().map(|round| round.heap_bytes).collect();
        // From the second round on, the maps have the capacity that deletions need as well.
        let grown = heaps[2..].iter().copied().fold(0.0, f64::max);
        // The tolerance permits one map of a batch to double.
        assert!(grown < heaps[1] * 1.05, "bytes per service in each round: {heaps:?}");

        let few = ["control", "--services", "60", "--backends", "1,3", "--batch", "16"];
        let few = few.into_iter().chain(["--rounds", "2", "--changes", "6"]);
        assert_eq!(measure(&Args::parse_from(few)), Ok(()));
    }
}
