//! Comparisons: cases that run in alternation, round after round, and their ratios to a
//! reference.

use crate::process::{Outcome, Program, Running};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Cases that are compared with each other.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The title for the output.
    pub title: String,
    /// The cases; the others are stated as ratios of the first one.
    pub cases: Vec<Case>,
    /// The index of the case that forwards frames without filling them, if some cases fill each
    /// frame before they forward it. The cost of filling is the time per packet of a case that only
    /// fills and forwards frames, less that of this case.
    pub forward_only: Option<usize>,
    /// The unit of the figures in [`Comparison::rows`].
    pub unit: Unit,
}

/// The unit of a figure in PROMISES.md.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nanoseconds per packet, without the cost of filling frames where that is known.
    Nanoseconds,
    /// Millions per second.
    Millions,
}

/// One measured configuration.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name in the table.
    pub name: String,
    /// The programs in the order of their start: the measured forwarder, and in some cases a
    /// generator.
    pub programs: Vec<Program>,
    /// The index of the program whose rate is the result.
    pub measured_program: usize,
    /// The socket that connects the programs, if any: the first creates it, the second waits for
    /// it. A stale one of a killed program is removed before each run.
    pub socket: Option<PathBuf>,
    /// The index of the case that fills the same frames and forwards them without processing, if
    /// this case fills each frame before it forwards it.
    pub fill_only_case: Option<usize>,
    /// The row and the column of the figure in PROMISES.md.
    pub cell: Option<(String, &'static str)>,
}

/// The duration of each run, the number of repetitions, and the required share of a core.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings {
    /// Rounds over all cases.
    pub rounds: usize,
    /// Seconds of each run, at least 5. The first 2 give no rate, and shares of cores are measured
    /// after 3.
    pub seconds: u64,
    /// The minimum share of its core for a poller. A run below it is repeated, at most twice.
    pub min_share: f64,
}

/// The result of one run of a case.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Million packets per second, the median over the run's seconds.
    pub mpps: f64,
    /// The smallest share of a core that one of its pollers had.
    pub share: f64,
}

/// The reason why a run has no figure.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A program could not be started.
    #[error("cannot start {program}: {error}; `make setup` installs what is missing")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        error: io::Error,
    },
    /// The program printed no rate, or one of the programs failed.
    #[error(
        "{case}: no valid rate from `{command}`, or a program of the case failed; last lines of \
         all programs:\n{lines}"
    )]
    NoRate {
        /// The case.
        case: String,
        /// The complete command of the measured program.
        command: String,
        /// The last lines of output of all programs of the case.
        lines: String,
    },
}

impl Case {
    /// Creates a case of one program.
    pub fn single(name: &str, program: Program) -> Case {
        let programs = vec![program];
        let name = name.to_string();
        Case { name, programs, measured_program: 0, socket: None, fill_only_case: None, cell: None }
    }

    /// Declares that the case fills each frame, as the case with index `fill_only_case` does.
    pub fn refilling(self, fill_only_case: usize) -> Case {
        Case { fill_only_case: Some(fill_only_case), ..self }
    }

    /// Places the figure in this row and column.
    pub fn in_row(self, row: &str, column: &'static str) -> Case {
        Case { cell: Some((row.to_string(), column)), ..self }
    }

    /// Creates a case of a forwarder and a generator that are connected by a socket; the rate is
    /// that of the packets which return to the generator.
    pub fn fed(name: &str, forwarder: Program, generator: Program, socket: &str) -> Case {
        let case = Case::single(name, forwarder);
        let programs = [case.programs, vec![generator]].concat();
        Case { programs, measured_program: 1, socket: Some(PathBuf::from(socket)), ..case }
    }

    /// Runs the case once.
    ///
    /// # Errors
    /// [`RunError`] if a program cannot be started or fails, or if there is no rate.
    pub fn run(&self, seconds: u64) -> Result<Sample, RunError> {
        if let Some(socket) = &self.socket {
            // Usually there is none; if it cannot be removed, the program reports the error.
            let _ = std::fs::remove_file(socket);
        }
        let mut live = Vec::new();
        for (n, program) in self.programs.iter().enumerate() {
            if n > 0 {
                self.wait_for_socket();
            }
            let failed = |error| RunError::Start { program: program.command[0].clone(), error };
            live.push(program.start().map_err(failed)?);
        }
        let start = Instant::now();
        let (warm, end) = (Duration::from_secs(3), Duration::from_secs(seconds));
        let mut measures_share = false;
        while start.elapsed() < end && live.iter_mut().all(|program| program.is_alive()) {
            std::thread::sleep(Duration::from_millis(50));
            if !measures_share && start.elapsed() >= warm {
                live.iter_mut().for_each(|program| program.start_core_share());
                measures_share = true;
            }
        }
        let failed = live.iter_mut().any(Running::has_failed);
        let share = live.iter().map(Running::share).fold(f64::INFINITY, f64::min);
        // Stop the forwarder first: memif of DPDK 22.11 may crash a forwarder whose peer
        // disappears.
        let outcomes: Vec<Outcome> = live.into_iter().map(|program| program.stop()).collect();
        match outcomes.get(self.measured_program).and_then(|o| median(&o.rates)) {
            Some(mpps) if mpps > 0.0 && !failed => Ok(Sample { mpps, share }),
            _ => Err(self.no_rate_error(&outcomes)),
        }
    }

    /// Waits for the first program to listen. On a timeout, the second one reports the error.
    fn wait_for_socket(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let exists = || self.socket.as_ref().is_none_or(|socket| socket.exists());
        while !exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        // The socket exists a moment before the program listens.
        std::thread::sleep(Duration::from_millis(200));
    }

    fn no_rate_error(&self, outcomes: &[Outcome]) -> RunError {
        let command =
            self.programs.get(self.measured_program).map(|program| program.command.join(" "));
        let lines: Vec<&str> =
            outcomes.iter().flat_map(|o| o.last_lines.iter().map(String::as_str)).collect();
        RunError::NoRate {
            case: self.name.clone(),
            command: command.unwrap_or_default(),
            lines: lines.join("\n"),
        }
    }
}

impl Comparison {
    /// Runs all cases in alternation, prints each figure when it is available, and then the
    /// table.
    ///
    /// # Errors
    /// [`RunError`] of the first case that produced no figure.
    pub fn run(&self, settings: &RunSettings) -> Result<(), RunError> {
        println!("\n{}", self.title);
        let mut samples = vec![Vec::new(); self.cases.len()];
        for round in 1..=settings.rounds {
            for (case, samples) in self.cases.iter().zip(&mut samples) {
                let mut sample = case.run(settings.seconds)?;
                for _ in 0..2 {
                    if sample.share >= settings.min_share {
                        break;
                    }
                    // Another process used the core, so the figure is invalid.
                    sample = case.run(settings.seconds)?;
                }
                println!(
                    "  round {round}  {:<28} {:>8.2} Mpps  share {:.2}",
                    case.name, sample.mpps, sample.share
                );
                samples.push(sample);
            }
        }
        print!("{}", self.table(&samples, settings.min_share));
        print!("{}", self.rows(&samples, settings.min_share));
        Ok(())
    }

    /// Returns the median rate of a case.
    fn median_rate(&self, at: usize, samples: &[Vec<Sample>], min_share: f64) -> Option<f64> {
        median(&rates(samples.get(at)?, min_share))
    }

    /// Returns the cost of filling a frame in nanoseconds, if the case at `at` fills frames.
    fn refill_ns(&self, at: usize, samples: &[Vec<Sample>], min_share: f64) -> Option<f64> {
        let ns = |at| Some(1000.0 / self.median_rate(at, samples, min_share)?);
        Some(ns(self.cases.get(at)?.fill_only_case?)? - ns(self.forward_only?)?)
    }

    /// Returns the figures of the cases that have a cell, as rows for PROMISES.md: the columns in
    /// order of appearance, and the ratio of each further column to the first.
    pub fn rows(&self, samples: &[Vec<Sample>], min_share: f64) -> String {
        let (mut rows, mut columns) = (Vec::<&str>::new(), Vec::<&str>::new());
        for (row, column) in self.cases.iter().filter_map(|case| case.cell.as_ref()) {
            if !rows.contains(&row.as_str()) {
                rows.push(row);
            }
            if !columns.contains(column) {
                columns.push(column);
            }
        }
        if rows.is_empty() {
            return String::new();
        }
        let figure = |row: &str, column: &str| {
            let is_in_cell =
                |case: &Case| case.cell.as_ref().is_some_and(|c| c.0 == row && c.1 == column);
            let at = self.cases.iter().position(is_in_cell)?;
            let mpps = self.median_rate(at, samples, min_share)?;
            let refill = self.refill_ns(at, samples, min_share).unwrap_or(0.0);
            Some(match self.unit {
                Unit::Millions => mpps,
                Unit::Nanoseconds => 1000.0 / mpps - refill,
            })
        };
        let mut text = format!("\n  | {} | {} |", self.unit.name(), columns.join(" | "));
        let first = columns[0];
        let compared = &columns[1..];
        compared.iter().for_each(|column| text += &format!(" {column} / {first} |"));
        text += &format!("\n  |{}\n", "---|".repeat(2 * columns.len()));
        for row in rows {
            text += &format!("  | {row} |");
            for column in &columns {
                let decimals = if self.unit == Unit::Millions { 2 } else { 1 };
                let cell = figure(row, column).map(|f| format!("{f:.decimals$}"));
                text += &format!(" {} |", cell.unwrap_or_default());
            }
            for column in compared {
                let ratio = figure(row, column).zip(figure(row, first)).map(|(f, of)| f / of);
                text += &format!(" {} |", ratio.map(|r| format!("{r:.2}")).unwrap_or_default());
            }
            text.push('\n');
        }
        text
    }

    /// Formats medians, spread, nanoseconds and ratios to the first case. Where the cost of filling
    /// frames is known, nanoseconds and ratio are repeated without it.
    pub fn table(&self, samples: &[Vec<Sample>], min_share: f64) -> String {
        let net = if self.forward_only.is_some() { "  net ns net ratio" } else { "" };
        let mut text = format!(
            "  {:<28} {:>8}  {:>17} {:>8} {:>7}{net}\n",
            "median of all rounds", "Mpps", "lowest..highest", "ns", "ratio"
        );
        for (at, case) in self.cases.iter().enumerate() {
            let median_rate = |at| self.median_rate(at, samples, min_share);
            let (Some(mpps), Some(reference)) = (median_rate(at), median_rate(0)) else { continue };
            let refill_ns = self.refill_ns(at, samples, min_share);
            let samples = &samples[at];
            let valid = rates(samples, min_share);
            let low = valid.iter().copied().fold(f64::INFINITY, f64::min);
            let high = valid.iter().copied().fold(0.0, f64::max);
            let spread = format!("{low:.2}..{high:.2}");
            let below_share = samples.iter().filter(|s| s.share < min_share).count();
            let (name, ns) = (&case.name, 1000.0 / mpps);
            let ratio = mpps / reference;
            // Writing to a String cannot fail.
            let _ = write!(text, "  {name:<28} {mpps:>8.2}  {spread:>17} {ns:>8.1} {ratio:>7.3}");
            if let Some(refill_ns) = refill_ns {
                let net = ns - refill_ns;
                let _ = write!(text, " {net:>7.1} {:>9.3}", 1000.0 / reference / net);
            }
            if below_share > 0 {
                let all = samples.len();
                let _ =
                    write!(text, "  {below_share} of {all} rounds below the minimum core share");
            }
            text.push('\n');
        }
        text
    }
}

impl Unit {
    /// Returns the heading of the table's first column, which names the unit.
    const fn name(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns/packet, net",
            Unit::Millions => "millions/s",
        }
    }
}

/// Returns the rates of the rounds with a sufficient share of their cores, or all if there is
/// none.
fn rates(samples: &[Sample], min_share: f64) -> Vec<f64> {
    let valid: Vec<f64> = samples.iter().filter(|s| s.share >= min_share).map(|s| s.mpps).collect();
    if valid.is_empty() { samples.iter().map(|s| s.mpps).collect() } else { valid }
}

/// Returns the median; of an even number of values, the upper middle one.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests;
