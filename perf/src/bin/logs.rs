//! Measures what a log line and an event cost their caller, as ratios to a line that the caller
//! formats and writes to `/dev/null` itself. Redirect standard error, to which the lines go:
//! `target/release/logs 2>/dev/null`. Takes seconds.
//!
//! The cases run in turn, round after round. A round makes fewer calls than the queues hold, and
//! then waits until all are written, so that none is lost.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::time::{Instant, SystemTime};

use config::checked::{Log, LogFormat};
use config::rfc3339::format_ms;
use events::history::history;
use events::log::log;

/// Rounds that count; one more comes first, as a warm-up.
const ROUNDS: usize = 15;
/// Calls of a case in each round, fewer than the queues of the log and the history hold.
const CALLS: u32 = 2_000;
/// The cases; [`call`] takes their indexes.
const CASES: [&str; 5] = [
    "written by the caller",
    "level not in force",
    "log line",
    "log line above the limit",
    "log line and event of the history",
];

fn settings(level: &str, limit: u32) -> Log {
    Log { format: LogFormat::Text, level: level.to_owned(), limit }
}

fn main() -> io::Result<()> {
    let folder = std::env::temp_dir().join(format!("weir-perf-logs-{}", std::process::id()));
    let guard = events::log::start("logs", &settings("info", 0))?;
    events::history::start(Some(&folder), 16 << 20)?;
    let log = log().ok_or_else(|| io::Error::other("the log did not start"))?;
    let history = history().ok_or_else(|| io::Error::other("the history did not start"))?;
    let mut null = File::options().write(true).open("/dev/null")?;
    let mut times: [Vec<f64>; CASES.len()] = Default::default();
    let mut number = 0;
    for round in 0..=ROUNDS {
        for (case, all) in times.iter_mut().enumerate() {
            log.configure(&settings("info", if case == 3 { 1 } else { 0 }));
            let begun = Instant::now();
            for _ in 0..CALLS {
                number += 1;
                call(case, number, &mut null)?;
            }
            let took = begun.elapsed();
            log.flush();
            history.flush();
            // The first round is a warm-up.
            if round > 0 {
                all.push(took.as_nanos() as f64 / f64::from(CALLS));
            }
        }
    }
    let medians = times.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    });
    println!("{:<36} {:>9} {:>7}", "case", "ns a call", "ratio");
    for (name, median) in CASES.iter().zip(medians) {
        println!("{name:<36} {median:>9.0} {:>7.2}", median / medians[0]);
    }
    let lost = (log.counts().lost, history.status().lost);
    drop(guard);
    std::fs::remove_dir_all(&folder)?;
    match lost {
        (0, 0) => Ok(()),
        lost => Err(io::Error::other(format!("{lost:?} lines and events were lost"))),
    }
}

/// Makes one call of a case.
fn call(case: usize, number: u64, null: &mut File) -> io::Result<()> {
    let reason = "connection refused";
    match case {
        0 => {
            let at = format_ms(SystemTime::now());
            let line = format!(
                "{at}  WARN logs: backend unhealthy backend={number} service=a reason={reason:?}\n"
            );
            null.write_all(line.as_bytes())?;
        }
        1 => tracing::debug!(
            event = "generation_switched",
            lcore = number,
            generation = 1,
            "switched"
        ),
        2 => tracing::info!(event = "object_accepted", object = number, reason, "object accepted"),
        3 => tracing::info!(event = "object_accepted", object = 1, reason, "object accepted"),
        _ => tracing::warn!(
            event = "backend_unhealthy",
            backend = number,
            service = "a",
            reason,
            "backend unhealthy"
        ),
    }
    Ok(())
}
