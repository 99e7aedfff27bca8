//! `demo`: runs real traffic from emulated gateways of both clouds through Weir while backends
//! change, and prints a summary.

#![forbid(unsafe_code)]

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tests::lab::folder::remove_all;
use tests::lab::netns::need_root;
use tests::lab::process::find;
use tests::lab::scenario::{self, Outcome, Plan};
use tests::lab::settings::Plane;
use tests::lab::topology::Lab;
use tests::lab::{LabError, Result};

mod view;

/// Show Weir at work between an emulated AWS gateway and an emulated Azure gateway.
///
/// Everything runs in its own network namespaces on virtual wires: no cloud, no NIC, no
/// hugepages, and nothing is left behind. Takes well under five minutes. With PLANE=xdp in the
/// environment, the XDP program in the kernel moves the packets.
#[derive(Parser)]
#[command(name = "demo")]
struct Arguments {
    /// Set the number of requests through each gateway; about as many again are made on long-lived
    /// connections and to servers without a service.
    #[arg(long, default_value_t = 4_000)]
    requests: u64,
    /// Print plain lines even on a terminal, in place of the live view of weir top.
    #[arg(long)]
    plain: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(outcome) => summary(&outcome),
        Err(e) => {
            eprintln!("demo: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<Outcome> {
    need_root()?;
    let plane = Plane::from_env();
    find(plane.program(), plane.program())?;
    find("slowpath", "slowpath")?;
    find("weir", "cli")?;
    println!("Creating the lab: a cloud side, the appliance, four web servers behind it.");
    clean_up_on_signals()?;
    let mut lab = Lab::new(&["web-1", "web-2", "web-3", "web-4"])?;
    match plane.is_xdp() {
        true => println!(
            "Starting the gateways, the XDP program in the kernel (its loader is ebpf-fallback) \
             and slowpath."
        ),
        false => println!("Starting the gateways, fastpath (DPDK on virtual wires) and slowpath."),
    }
    let live = std::io::stdout().is_terminal() && !arguments.plain;
    let report_interval = Duration::from_millis(if live { 500 } else { 2_000 });
    let plan =
        Plan { requests: arguments.requests, pause: Duration::from_millis(15), report_interval };
    let mut view = view::View::new(live, &lab);
    let outcome = scenario::run(&mut lab, plan, &mut |progress| view.show(progress));
    view.end();
    drop(lab);
    outcome
}

/// Removes the lab's files on SIGINT, SIGTERM and SIGHUP, and ends this process; the namespaces and
/// daemons end with it.
fn clean_up_on_signals() -> Result<()> {
    // The signals are caught, not blocked: a child process would inherit blocked signals, and
    // SIGTERM would not end it.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(LabError::io("catching signals"))?;
    let wait = move || {
        if signals.forever().next().is_some() {
            view::end_top();
            remove_all();
            eprintln!("\ndemo: stopped by a signal; everything was removed");
            std::process::exit(130);
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
    thread.map(drop).map_err(LabError::io("starting the signal thread"))
}

/// Prints the claims about Weir that the traffic confirmed or refuted.
fn summary(outcome: &Outcome) -> ExitCode {
    let claims = outcome.claims();
    println!("\nResults after {:.1?} of traffic:", outcome.took);
    for claim in &claims {
        println!("  {} {}", if claim.holds { "ok   " } else { "WRONG" }, claim.text);
    }
    let wrong = claims.iter().filter(|claim| !claim.holds).count();
    if wrong == 0 {
        println!("All {} claims hold.", claims.len());
        return ExitCode::SUCCESS;
    }
    println!("{wrong} of {} claims do not hold. Details:", claims.len());
    for (name, stats) in &outcome.clients {
        print!("client {name}: {stats}");
    }
    print!("AWS gateway: {}", outcome.gateway);
    println!("{}", LabError::Other("run with WEIR_LAB_KEEP=1 to keep the logs".into()));
    ExitCode::FAILURE
}
