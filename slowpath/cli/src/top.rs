//! `weir top`: a live view of the appliance. On a terminal it is a full-screen program; with
//! `--once`, `--samples`, another output format or without a terminal it prints text.

mod app;
mod content;
mod data;
mod draw;
mod format;
mod history;
mod page;
pub mod plain;
mod sample;
mod sampler;
mod screen;
mod theme;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::options::{GlobalOptions, Output};
use app::App;
use page::View;
use sample::{Sample, Source};
use theme::Theme;

/// Arguments of `weir top`.
#[derive(Args)]
pub struct TopArgs {
    /// View to show first; the keys 1 to 8 show the others
    #[arg(value_enum, default_value_t = View::Overview)]
    view: View,
    /// Seconds between two samples, at least 0.1; more while slowpath responds slowly
    #[arg(long, default_value_t = 1.0)]
    every: f64,
    /// Print one sample as text, and exit
    #[arg(long, conflicts_with = "samples")]
    once: bool,
    /// Print this number of samples as text
    #[arg(long)]
    samples: Option<u64>,
    /// Show the first line of this file, read again with each sample
    #[arg(long, value_name = "FILE")]
    caption: Option<PathBuf>,
}

/// Runs `weir top`.
pub fn run(options: &GlobalOptions, socket: &Path, args: &TopArgs) -> Result<ExitCode, String> {
    let every = Duration::try_from_secs_f64(args.every)
        .map_err(|_| {
            let every = args.every;
            format!("--every {every}: invalid number of seconds; write for example 0.5")
        })?
        .max(Duration::from_millis(100));
    let samples = if args.once { Some(1) } else { args.samples };
    let terminal = std::io::stdout().is_terminal() && has_cursor(std::env::var("TERM").ok());
    if samples.is_some() || options.output() != Output::Table || !terminal {
        plain::run(options, socket, every, samples, terminal && samples != Some(1))?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = Source { socket: socket.to_owned(), caption: args.caption.clone(), every };
    // Without slowpath the command fails before it touches the terminal.
    let sample = Sample::fetch(&source.socket, source.caption.as_deref())?;
    let theme = Theme::from_environment(|name| std::env::var(name).ok());
    let interval = source.interval(sample.took);
    screen::run(App::new(theme, sample, args.view, interval), source)
}

/// Returns whether a terminal of this type can position its cursor.
fn has_cursor(term: Option<String>) -> bool {
    term.is_some_and(|term| !["", "dumb", "unknown"].contains(&term.as_str()))
}

#[cfg(test)]
mod tests;
