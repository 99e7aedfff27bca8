//! The `fastpath` program: reads the settings, prepares, launches, waits for a signal.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Weir's packet-moving process. It owns the NIC; stop it with SIGTERM.
#[derive(Parser)]
#[command(name = "fastpath", version)]
struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/weir.toml")]
    config: PathBuf,
    /// Overrides one key, as in --set ingress.mtu=9001; may be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let config = match config::load_to_run(Some(&arguments.config), &arguments.sets) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{}", error.render());
            return ExitCode::from(2);
        }
    };
    match fastpath::launch::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fastpath: {error}");
            ExitCode::FAILURE
        }
    }
}
