//! `weir log`: the level of slowpath's log.

use std::path::Path;

use ::events::log::level::LevelStatus;
use clap::{Args, Subcommand};
use config::duration;

use super::options::GlobalOptions;
use super::output::print;
use super::request::{Request, escaped, get, send_json};

/// Subcommands of `weir log`.
#[derive(Subcommand)]
pub enum LogCommand {
    /// Show the level of slowpath's log, or change it until slowpath ends
    Level(LevelArgs),
}

/// Arguments of `weir log level`.
#[derive(Args)]
pub struct LevelArgs {
    /// Level, levels of modules, or both: `warn`, `bgp=debug`, `warn,bgp=debug`. Levels: error,
    /// warn, info, debug, trace, off
    directives: Option<String>,
    /// Return to the configured level after this time, for example 90s, 10m or 2h
    #[arg(long = "for", value_name = "DURATION", requires = "directives")]
    duration: Option<String>,
    /// Return to the configured level now
    #[arg(long, conflicts_with_all = ["directives", "duration"])]
    reset: bool,
}

/// Runs the subcommand.
pub fn run(options: &GlobalOptions, socket: &Path, command: &LogCommand) -> Result<(), String> {
    let LogCommand::Level(args) = command;
    let duration = match &args.duration {
        Some(text) => Some(duration::parse(text).map_err(|error| format!("--for: {error}"))?),
        None => None,
    };
    let status: LevelStatus = match &args.directives {
        None if !args.reset => get(socket, "/log/level")?,
        directives => {
            let level = directives.as_ref().map(|level| format!("level={}", escaped(level)));
            let seconds = duration.map(|duration| format!("seconds={}", duration.as_secs()));
            let query = level.into_iter().chain(seconds).collect::<Vec<_>>().join("&");
            let path = format!("/log/level?{query}");
            send_json(socket, &Request::new("PUT", &path)).map_err(|error| error.to_string())?
        }
    };
    print(options, &status, || text(&status));
    Ok(())
}

fn text(status: &LevelStatus) -> String {
    let LevelStatus { level, origin, configured, left_s } = status;
    match left_s {
        Some(left) => format!("{level} (by {origin}, for {left} s; then {configured})\n"),
        None if level == configured => format!("{level} (by {origin})\n"),
        None => format!("{level} (by {origin}, until slowpath ends; configured: {configured})\n"),
    }
}
