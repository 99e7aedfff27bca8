//! The `fastpath` program: loads the configuration, launches the fast path, and runs until a
//! signal.

#![forbid(unsafe_code)]

use clap::Parser;
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
