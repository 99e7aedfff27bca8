//! Simulates each kind of flood in each mode, beside honest clients. Usage: `floods`, or `floods
//! --mode nat --kind syn` for one of them.
//!
//! Modes without NAT get 5 M spoofed packets a second (`--rate`). With NAT there are two
//! simulations: one with 80 % of the flows per second that an lcore of this machine can begin,
//! which is measured first, and one with 5 M packets. In the latter, new clients during a flood
//! that begins flows are promised nothing; all other promises apply. If a promise is broken, the
//! program ends with an error after all simulations.

#![forbid(unsafe_code)]

use clap::Parser;
use perf::flood::{Kind, Mode, Plan, ROUND_TRIPS_MS, insert_capacity, run, unconfirmed_ms};
use perf::machine::Pages;
use std::error::Error;

/// Command line: which floods to simulate, and their size.
#[derive(Parser)]
#[command(name = "floods", about = "Simulate floods beside honest clients")]
struct Arguments {
    /// Simulate only this mode.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Simulate only this kind of flood.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Set the spoofed packets per second.
    #[arg(long, default_value_t = 5_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    rate: u64,
    /// Set `region.max_flows`.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1024..))]
    flows: u32,
    /// Set the number of flows established before the flood.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    established: u32,
    /// Set the new honest flows per second.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    new: u32,
    /// Set how long new flows arrive, in milliseconds; the flood lasts 300 ms longer.
    #[arg(long, default_value_t = 1_000)]
    ms: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let _pages = Pages::at_least(perf::fixture::region_pages(arguments.flows));
    let modes = Mode::ALL.into_iter().filter(|mode| arguments.mode.is_none_or(|m| m == *mode));
    let kinds = || Kind::ALL.into_iter().filter(|kind| arguments.kind.is_none_or(|k| k == *kind));
    let trips = ROUND_TRIPS_MS.map(|ms| ms.to_string()).join(" / ");
    println!(
        "| flood beside {} established and {} new flows/s | M/s | established packets lost \
         | new finished, %, round trips of {trips} ms | the same one second after the end | flows \
         before -> maximum -> after | bytes of ICMP errors / bytes in | M/s simulated |",
        arguments.established, arguments.new
    );
    println!("|{}", "---|".repeat(8));
    let mut broken = Vec::new();
    for mode in modes {
        let mut rates = vec![(arguments.rate, mode != Mode::Nat)];
        if mode == Mode::Nat {
            let capacity = insert_capacity(arguments.flows)?;
            let rate = capacity * 4 / 5;
            println!("NAT starts {:.2} M flows per second on this lcore", capacity as f64 / 1e6);
            rates.insert(0, (rate.min(arguments.rate), true));
        }
        for kind in kinds().filter(|kind| kind.exists_in(mode)) {
            for (rate, promised) in rates.iter().copied() {
                let Arguments { flows, established, new: new_per_s, ms, .. } = arguments;
                let plan = Plan { mode, kind, rate, flows, established, new_per_s, ms };
                let outcome = run(&plan)?;
                println!("{outcome}");
                let promises_new = promised || !kind.begins_flows();
                for line in outcome.broken(promises_new) {
                    println!("  BROKEN: {line}; drops {:?}", outcome.drops);
                    broken.push(format!("{mode:?}, {kind:?}: {line}"));
                }
            }
        }
        if mode == Mode::Nat {
            let of = |rate| unconfirmed_ms(arguments.flows, rate);
            let limits: Vec<_> =
                rates.iter().map(|(rate, _)| format!("{:.0} ms", of(*rate))).collect();
            println!("an unconfirmed NAT flow is evicted after {} at most;", limits.join(" and "));
            println!("two round trips must be shorter for a client to be promised a connection");
        }
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(format!("broken: {}", broken.join("; ")).into()),
    }
}
