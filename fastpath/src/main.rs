//! The `fastpath` program: loads the configuration, launches the fast path, and runs until a
//! signal.

#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser};
use std::path::PathBuf;
use std::process::ExitCode;

/// Forward packets: Weir's data plane process, which owns the NIC. Stop it with SIGTERM.
#[derive(Parser)]
#[command(name = "fastpath", version)]
struct Arguments {
    /// Read the configuration from this file.
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/weir.toml")]
    config: PathBuf,
    /// Override one key, for example --set ingress.mtu=9001; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// List the NIC drivers of the linked DPDK, and exit.
    #[arg(long)]
    drivers: bool,
    /// Print the man page, and exit.
    #[arg(long, hide = true)]
    man: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.man {
        return match clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("fastpath: standard output: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments.drivers {
        println!("{}", dpdk_bindings::Eal::version());
        dpdk_bindings::linked_drivers().for_each(|driver| println!("{driver}"));
        return ExitCode::SUCCESS;
    }
    let config = match config::load_to_run(Some(&arguments.config), &arguments.sets) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{}", error.render());
            return ExitCode::from(2);
        }
    };
    if let Some(error) = hugepages::upgrade::hand_over(&config, "fastpath") {
        eprintln!("fastpath: {error}");
        return ExitCode::FAILURE;
    }
    // The log's thread is started before those of the data plane. The guard is dropped last, so
    // that all lines are written.
    let _log = match events::log::start("fastpath", &config.log) {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("fastpath: starting the log's thread: {error}");
            return ExitCode::FAILURE;
        }
    };
    match fastpath::launch::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(event = "data_plane_failed", %error, "data plane failed");
            if error.is_permanent() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
