//! The `slowpath` process: reads the configuration, starts all parts and waits for a signal.

#![forbid(unsafe_code)]

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use slowpath::sources::CONFIG;
use slowpath::sources::file::ConfigFile;
use tracing_subscriber::EnvFilter;

/// Run Weir's control plane: compile services into tables, check health, serve API and metrics
#[derive(Parser)]
#[command(name = "slowpath", version)]
struct Cli {
    /// Read this configuration file [default: /etc/weir/weir.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a setting of file and environment, as in --set ingress.mtu=9001
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();

    let default = std::path::Path::new(CONFIG);
    let file = cli.config.as_deref().or(default.exists().then_some(default));
    let config = match config::load_to_run(file, &cli.set) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{}", error.render());
            return ExitCode::from(2);
        }
    };
    let watched = file.map(|file| ConfigFile::new(file, &cli.set));
    match slowpath::start::run(config, watched) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slowpath: {error}");
            ExitCode::FAILURE
        }
    }
}
