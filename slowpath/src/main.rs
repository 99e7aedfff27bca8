//! The `slowpath` process: reads the configuration, starts all parts and waits for a signal.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use slowpath::sources::CONFIG;
use slowpath::sources::file::ConfigFile;
use slowpath::start::Previous;

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
    /// Create what slowpath needs to run without root, and exit; run this as root
    #[arg(long)]
    prepare: bool,
    /// Print the man page, and exit
    #[arg(long, hide = true)]
    man: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.man {
        return match clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("slowpath: standard output: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let default = std::path::Path::new(CONFIG);
    let file = cli.config.as_deref().or(default.exists().then_some(default));
    let load = if cli.prepare { config::load } else { config::load_to_run };
    let config = match load(file, &cli.set) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{}", error.render());
            return ExitCode::from(2);
        }
    };
    // Dropped after everything else, so that the last lines are written.
    let _log = match events::log::start("slowpath", &config.log) {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("slowpath: starting the log's thread: {error}");
            return ExitCode::FAILURE;
        }
    };
    if cli.prepare {
        return match slowpath::start::prepare(&config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("slowpath: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if let Some(error) = hugepages::upgrade::hand_over(&config, "slowpath") {
        eprintln!("slowpath: {error}");
        return ExitCode::FAILURE;
    }
    let state = config.control.state.as_deref();
    let previous = Previous::read(state);
    if let Err(error) = events::history::start(state, config.events.max_bytes) {
        eprintln!("slowpath: starting the history's thread: {error}");
        return ExitCode::FAILURE;
    }
    let watched = file.map(|file| ConfigFile::new(file, &cli.set, config.plane));
    match slowpath::start::run(config, watched, &previous) {
        Ok(()) => {
            tracing::info!(event = "slowpath_stopped", "slowpath stopped");
            ExitCode::SUCCESS
        }
        Err(error) if slowpath::start::has_started() => {
            tracing::error!(event = "slowpath_failed", %error, "slowpath failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            tracing::error!(event = "slowpath_start_failed", %error, "slowpath not started");
            ExitCode::FAILURE
        }
    }
}
